"""Decide which heads each mask knocks out."""

from _stage import run
from caploc.design_checks import warnings
from caploc.designs import design_table, likely_to_matter, sample_masks
from caploc.files import BASELINE, DESIGN, GRADIENTS, MODEL, read_json, read_table, write_table
from caploc.heads import HeadGrid
from caploc.params import load_params


def main() -> None:
    """Sample the masks; more masks never change the earlier ones."""
    params = load_params()
    design, gradients = params.design, read_table(GRADIENTS)
    masks = sample_masks(
        design.scheme,
        HeadGrid.of_model(read_json(MODEL)),
        design.masks,
        design.density,
        params.seed,
        weights=likely_to_matter(gradients) if design.scheme == "weighted" else None,
    )
    for warning in warnings(masks, read_table(BASELINE), gradients):
        print(f"warning: {warning}")
    write_table(DESIGN, design_table(masks))


if __name__ == "__main__":
    run(main)

"""Decide which heads each mask knocks out."""

from _stage import run
from caploc.designs import design_table, never_knocked_out, sample_masks
from caploc.files import DESIGN, MODEL, read_json, write_table
from caploc.heads import HeadGrid
from caploc.params import load_params


def main() -> None:
    """Sample the masks; more masks never change the earlier ones."""
    params = load_params()
    n_heads = len(HeadGrid.of_model(read_json(MODEL)))
    design = params.design
    masks = sample_masks(design.scheme, n_heads, design.masks, design.density, params.seed)
    if missed := never_knocked_out(masks):
        print(f"warning: {missed} of {n_heads} heads are in no mask and cannot be found; raise design.masks")
    write_table(DESIGN, design_table(masks))


if __name__ == "__main__":
    run(main)

"""Recover every head's effect, choose the heads of each capability, and say how sure that is."""

from _stage import run
from caploc.designs import design_masks
from caploc.files import (
    BASELINE,
    EFFECTS,
    GRADIENTS,
    HEADS,
    INTERACTIONS,
    MODEL,
    REFINEMENT,
    read_json,
    read_table,
    write_json,
    write_table,
)
from caploc.findings import conclude
from caploc.heads import HeadGrid
from caploc.params import load_params
from caploc.recovery.fits import fit_all, method
from caploc.recovery.observations import observe


def main() -> None:
    """Fit the estimator to every capability, then choose sets of heads by the objective."""
    params = load_params()
    grid = HeadGrid.of_model(read_json(MODEL))
    masks = design_masks(read_table(REFINEMENT / "design.parquet"), len(grid))
    measured = {name: read_table(REFINEMENT / f"{name}.parquet") for name in params.capabilities}
    observations = observe(measured, read_table(BASELINE), read_table(GRADIENTS))
    fits = fit_all(masks, observations, method(params.recovery, sparsity=params.sparsity, seed=params.seed))
    found = conclude(
        masks,
        fits,
        [name for name, observed in observations.items() if not observed.is_control],
        grid,
        localization=params.localization,
        sparsity=params.sparsity,
        replicates=params.recovery.bootstrap,
        seed=params.seed,
    )
    write_table(EFFECTS, found.effects)
    write_table(INTERACTIONS, found.interactions)
    write_json(HEADS, found.heads)


if __name__ == "__main__":
    run(main)

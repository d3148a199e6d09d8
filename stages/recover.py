"""Recover every head's effect, and choose the heads of each capability."""

from _stage import run
from caploc.capabilities.manifest import rebuild
from caploc.designs import design_masks
from caploc.files import (
    CAPABILITIES,
    DESIGN,
    EFFECTS,
    HEADS,
    MEASUREMENTS,
    MODEL,
    read_json,
    read_table,
    write_json,
    write_table,
)
from caploc.heads import HeadGrid
from caploc.localization import localize, mark_chosen
from caploc.params import load_params
from caploc.recovery.effects import estimate_effects, mask_scores
from caploc.recovery.lasso import LassoRecovery


def main() -> None:
    """Fit the estimator to each capability's scores, then rank heads by the objective."""
    params = load_params()
    recovery = params.recovery
    grid = HeadGrid.of_model(read_json(MODEL))
    masks = design_masks(read_table(DESIGN), len(grid))
    capabilities = rebuild(read_json(CAPABILITIES))
    scores = {
        name: mask_scores(read_table(MEASUREMENTS / f"{name}.parquet"), recovery.score)
        for name in capabilities
    }
    estimator = LassoRecovery(recovery.alpha, relative=recovery.alpha_relative)
    effects = estimate_effects(masks, scores, grid, estimator, bootstrap=recovery.bootstrap, seed=params.seed)
    heads = localize(
        effects,
        grid,
        sparsity=params.sparsity,
        objective=params.localization.objective,
        weight=params.localization.weight,
        controls=[name for name, capability in capabilities.items() if capability.is_control],
    )
    write_table(EFFECTS, mark_chosen(effects, heads))
    write_json(HEADS, heads)


if __name__ == "__main__":
    run(main)

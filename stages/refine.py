"""Measure more masks, about the heads that are still in doubt."""

from functools import partial

import numpy as np

from _stage import run
from caploc.capabilities.manifest import rebuild
from caploc.designs import design_heads, design_masks, design_table
from caploc.files import (
    BASELINE,
    CAPABILITIES,
    DESIGN,
    GRADIENTS,
    MODEL,
    REFINEMENT,
    read_json,
    read_table,
    write_table,
)
from caploc.heads import HeadGrid
from caploc.localization import choose
from caploc.measurement import Measurements, measure_masks, write_measurements
from caploc.params import load_params
from caploc.recovery.fits import method
from caploc.recovery.observations import Observations, observe
from caploc.refinement import refine


def main() -> None:
    """Add rounds of masks, as many as params.yaml allows; none by default."""
    params, model = load_params(), read_json(MODEL)
    capabilities = rebuild(read_json(CAPABILITIES))
    prompts = {name: capability.splits["measure"] for name, capability in capabilities.items()}
    measurements = Measurements.of_model(model, params.runtime)
    baseline, gradients = read_table(BASELINE), read_table(GRADIENTS)

    def observed(masks: np.ndarray) -> dict[str, Observations]:
        tables = measure_masks(measurements, prompts, design_heads(design_table(masks)), "refine")
        return observe(tables, baseline, gradients)

    first = design_masks(read_table(DESIGN), len(HeadGrid.of_model(model)))
    design = refine(
        first,
        observed,
        method(params.recovery, sparsity=params.sparsity, seed=params.seed),
        partial(choose, sparsity=params.sparsity, **params.localization.model_dump()),
        [name for name, capability in capabilities.items() if not capability.is_control],
        **params.refinement.model_dump(),
        seed=params.seed,
    )
    table = design_table(design)
    tables = measure_masks(measurements, prompts, design_heads(table), "refine")
    write_table(REFINEMENT / "design.parquet", table)
    write_measurements(REFINEMENT, tables, prompts, measurements.store)


if __name__ == "__main__":
    run(main)

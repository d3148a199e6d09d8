"""Knock out the chosen heads on prompts never used for recovery."""

from _stage import run
from caploc.capabilities.manifest import rebuild
from caploc.files import BASELINE, CAPABILITIES, HEADS, MODEL, VALIDATION, read_json, read_table, write_table
from caploc.heads import HeadGrid
from caploc.measurement import Measurements
from caploc.params import load_params
from caploc.validation import head_sets, validate


def main() -> None:
    """Compare chosen, target-only and random sets of heads on every capability's validate split."""
    params, model = load_params(), read_json(MODEL)
    settings = params.validation
    sets = head_sets(
        read_json(HEADS), HeadGrid.of_model(model), random_sets=settings.random_sets, seed=params.seed
    )
    measurements = Measurements.of_model(model, params.runtime)
    capabilities = rebuild(read_json(CAPABILITIES))
    table = validate(
        sets, capabilities, read_table(BASELINE), measurements, bootstrap=settings.bootstrap, seed=params.seed
    )
    write_table(VALIDATION, table, measurements.store.context)


if __name__ == "__main__":
    run(main)

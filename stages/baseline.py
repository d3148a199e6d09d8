"""Score the intact model on every prompt; stop if it lacks a capability."""

from _stage import run
from caploc.baseline import baseline_table, require_above_floor
from caploc.capabilities.manifest import rebuild
from caploc.files import BASELINE, CAPABILITIES, MODEL, read_json, write_table
from caploc.measurement import Measurements
from caploc.params import load_params


def main() -> None:
    """Score both splits of every capability with no head knocked out."""
    params = load_params()
    capabilities = rebuild(read_json(CAPABILITIES))
    measurements = Measurements.of_model(read_json(MODEL), params.runtime)
    table = baseline_table(capabilities, measurements)
    require_above_floor(table, capabilities, params.prompts.floor)
    write_table(BASELINE, table, measurements.store.context)


if __name__ == "__main__":
    run(main)

"""Differentiate every prompt's margin by every head's gate: what can be known before any knockout."""

from _stage import run
from caploc.capabilities.manifest import rebuild
from caploc.files import CAPABILITIES, GRADIENTS, MODEL, read_json, write_table
from caploc.gradients import gradients_table
from caploc.measurement import Measurements
from caploc.params import load_params


def main() -> None:
    """Take the gradients at each value of the gates that params.yaml lists, and average them."""
    params = load_params()
    capabilities = rebuild(read_json(CAPABILITIES))
    measurements = Measurements.of_model(read_json(MODEL), params.runtime)
    table = gradients_table(measurements.scorer, capabilities, params.gradients.gates)
    write_table(GRADIENTS, table, measurements.store.context)


if __name__ == "__main__":
    run(main)

"""Score every capability under every mask."""

from _stage import run
from caploc.capabilities.manifest import rebuild
from caploc.designs import design_heads
from caploc.files import CAPABILITIES, DESIGN, MEASUREMENTS, MODEL, read_json, read_table
from caploc.measurement import Measurements, measure_masks, write_measurements
from caploc.params import load_params


def main() -> None:
    """Measure what the store lacks, then write each capability's table from the store."""
    capabilities = rebuild(read_json(CAPABILITIES))
    prompts = {name: capability.splits["measure"] for name, capability in capabilities.items()}
    measurements = Measurements.of_model(read_json(MODEL), load_params().runtime)
    tables = measure_masks(measurements, prompts, design_heads(read_table(DESIGN)), "measure")
    write_measurements(MEASUREMENTS, tables, prompts, measurements.store)


if __name__ == "__main__":
    run(main)

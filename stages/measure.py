"""Score every capability under every mask."""

from _stage import run
from caploc.capabilities.manifest import rebuild
from caploc.designs import design_heads
from caploc.files import CAPABILITIES, DESIGN, MEASUREMENTS, MODEL, read_json, read_table, write_table
from caploc.measurement import Evaluation, Measurements, scores_table
from caploc.params import load_params


def main() -> None:
    """Measure what the store lacks, then write each capability's table from the store."""
    capabilities = rebuild(read_json(CAPABILITIES))
    prompts = {name: capability.splits["measure"] for name, capability in capabilities.items()}
    masks = design_heads(read_table(DESIGN))
    measurements = Measurements.of_model(read_json(MODEL), load_params().runtime)
    measurements.fill((Evaluation(mask, p) for mask in masks.values() for p in prompts.values()), "measure")
    for name, prompt_set in prompts.items():
        scores = {
            mask_id: measurements.scores(Evaluation(mask, prompt_set)) for mask_id, mask in masks.items()
        }
        provenance = {**measurements.store.context, "capability": name, "prompts": prompt_set.fingerprint}
        write_table(MEASUREMENTS / f"{name}.parquet", scores_table(scores, prompt_set), provenance)


if __name__ == "__main__":
    run(main)

"""Validate the whole experiment before any expensive work; write what is asked for, resolved."""

from _stage import run
from caploc.capabilities.manifest import describe
from caploc.files import CAPABILITIES, REQUEST, write_json
from caploc.models.shape import count_heads
from caploc.models.sources import resolve
from caploc.params import load_params


def main() -> None:
    """Check params.yaml as a whole: keys, values, capabilities, model, and that the masks suffice."""
    params = load_params()
    capabilities = describe(
        params.capabilities,
        seed=params.seed,
        measure=params.prompts.measure,
        validate=params.prompts.validate_,
    )
    source = resolve(params.model)
    params.require_heads(count_heads(source))
    write_json(REQUEST, {"source": source.model_dump(), "dtype": params.dtype})
    write_json(CAPABILITIES, capabilities)


if __name__ == "__main__":
    run(main)

"""Fetch the model into the model cache, and state what later stages need to know of it."""

from _stage import run
from caploc.files import MODEL, REQUEST, read_json, write_json
from caploc.models.shape import describe
from caploc.models.sources import ModelSource


def main() -> None:
    """Fetch the requested model's weights and tokenizer, if the model cache lacks them."""
    request = read_json(REQUEST)
    write_json(MODEL, describe(ModelSource(**request["source"]), request["dtype"]))


if __name__ == "__main__":
    run(main)

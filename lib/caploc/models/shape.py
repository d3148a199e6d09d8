"""What is known of a model before its weights are loaded: its heads, and who it is."""
# ruff: noqa: PLC0415 - torch and transformers take seconds to import, and presets state their heads

from typing import Any

from caploc.errors import CaplocError
from caploc.models.sources import ModelSource, fetch, identity, read_config, resolved_revision


def count_heads(source: ModelSource) -> int:
    """Return a model's number of query heads; for a preset at once, else from its config alone.

    Raises
    ------
    CaplocError
        If the config cannot be had, or the architecture is not supported.
    """
    if source.heads_per_layer is not None:
        layers, heads = source.heads_per_layer
        return layers * heads
    return sum(layer.n_heads for layer in _attention_layers(source))


def describe(source: ModelSource, dtype: str) -> dict[str, Any]:
    """Fetch a model's files and state what later stages need to know of it.

    Returns
    -------
    dict
        ``name, source, revision, sha256, dtype, heads_per_layer, layers, head_dim``.

    Raises
    ------
    CaplocError
        If the model cannot be had, or the architecture is not supported.
    """
    folder = fetch(source)
    layers = _attention_layers(source)
    revision = resolved_revision(source, folder)
    if revision is not None:  # later stages must load these weights, whatever the branch has by then
        source = source.model_copy(update={"revision": revision})
    return {
        "name": source.name,
        "source": source.model_dump(),
        "revision": revision,
        "sha256": identity(source, folder),
        "dtype": dtype,
        "heads_per_layer": [layer.n_heads for layer in layers],
        "layers": [layer.number for layer in layers],
        "head_dim": layers[0].head_width,
    }


def _attention_layers(source: ModelSource) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from caploc.models.attention import attention_layers, require_heads

    try:
        config = read_config(source)
        require_heads(config)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except CaplocError:
        raise
    except Exception as error:  # a config can be wrong in any way
        raise CaplocError(f'the config of "{source.name}" makes no model: {error}') from error
    return attention_layers(model)

"""Where each architecture keeps its attention output projection: the one place that knows.

A head's output is a slice of the *input* of that projection; everything else follows from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from caploc.errors import CaplocError
from caploc.heads import HeadGrid

# model_type -> (the list of decoder layers, the projection within a layer)
_PROJECTIONS = {
    "gpt2": ("transformer.h", "attn.c_proj"),
    "llama": ("model.layers", "self_attn.o_proj"),
    "mistral": ("model.layers", "self_attn.o_proj"),
    "qwen2": ("model.layers", "self_attn.o_proj"),
    "qwen3": ("model.layers", "self_attn.o_proj"),
}


@dataclass(frozen=True)
class AttentionLayer:
    """One layer's attention output projection.

    Parameters
    ----------
    number : int
        The layer's number in the model, from 0.
    projection : torch.nn.Module
        Maps the concatenated outputs of the heads, ``n_heads * head_width`` wide, to the residual stream.
    n_heads : int
        Query heads.
    head_width : int
        Width of one head's output.
    """

    number: int
    projection: nn.Module
    n_heads: int
    head_width: int


def supported_architectures() -> list[str]:
    """Return the ``model_type`` of every architecture whose heads can be knocked out."""
    return sorted(_PROJECTIONS)


def require_supported(model_type: str) -> None:
    """Check that the architecture's heads can be knocked out.

    Raises
    ------
    CaplocError
        If caploc does not know where they are.
    """
    if model_type not in _PROJECTIONS:
        raise CaplocError(
            f'the architecture "{model_type}" is not supported: caploc knows where the heads are in '
            + ", ".join(supported_architectures())
        )


def attention_layers(model: Any) -> list[AttentionLayer]:
    """Find the attention output projections of a transformers causal language model.

    Raises
    ------
    CaplocError
        If the architecture is unknown, or a projection's input is not heads x head width.
    """
    config = model.config
    require_supported(config.model_type)
    layers_path, projection_path = _PROJECTIONS[config.model_type]
    layers = model.get_submodule(layers_path)
    return [
        _attention_layer(number, layer.get_submodule(projection_path), config)
        for number, layer in enumerate(layers.children())
    ]


def head_grid(model: Any) -> HeadGrid:
    """Return the query heads of a model; the model may be on the meta device, without weights."""
    return grid_of(attention_layers(model))


def grid_of(layers: Sequence[AttentionLayer]) -> HeadGrid:
    """Return the query heads of some attention layers."""
    return HeadGrid(tuple(layer.n_heads for layer in layers), tuple(layer.number for layer in layers))


def _attention_layer(number: int, projection: nn.Module, config: Any) -> AttentionLayer:
    n_heads = config.num_attention_heads
    width = _input_width(projection)
    stated = getattr(config, "head_dim", None) or width // n_heads
    if n_heads * stated != width:
        raise CaplocError(
            f"layer {number} does not look like {n_heads} heads of width {stated}: "
            f"its output projection reads {width} features"
        )
    return AttentionLayer(number, projection, n_heads, stated)


def _input_width(projection: Any) -> int:
    # GPT-2 keeps its weights transposed, in a Conv1D that names only its output width
    return projection.in_features if isinstance(projection, nn.Linear) else projection.weight.shape[0]

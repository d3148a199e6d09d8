"""Where each architecture keeps its attention output projection: the one place that knows.

A head's output is a slice of the *input* of that projection; everything else follows from it.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from caploc.errors import CaplocError
from caploc.heads import HeadGrid

# (the list of decoder layers, the projection within a layer) -> the model_types that have it there; layers
# without it (state space, linear attention, convolution) have no heads
_PLACES = {
    ("model.layers", "self_attn.o_proj"): (
        "llama",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "gemma",
        "gemma2",
        "gemma3_text",
        "phi3",
        "olmo2",
        "starcoder2",
        "granite",
        "granitemoe",
        "stablelm",
        "cohere",
        "cohere2",
        "glm4",
        "smollm3",
        "gpt_oss",
        "deepseek_v3",
        "jamba",
        "qwen3_next",
    ),
    ("model.language_model.layers", "self_attn.o_proj"): ("gemma3",),
    ("model.layers", "self_attn.out_proj"): ("lfm2",),
    ("model.layers", "self_attn.dense"): ("phi",),
    ("model.decoder.layers", "self_attn.out_proj"): ("opt",),
    ("gpt_neox.layers", "attention.dense"): ("gpt_neox",),
    ("transformer.h", "attn.c_proj"): ("gpt2", "gpt_bigcode"),
    ("transformer.h", "attn.out_proj"): ("gptj",),
    ("transformer.h", "attn.attention.out_proj"): ("gpt_neo",),
    ("transformer.h", "self_attention.dense"): ("bloom", "falcon"),
    ("transformer.blocks", "attn.out_proj"): ("mpt",),
}
_PLACE_OF = {model_type: place for place, model_types in _PLACES.items() for model_type in model_types}

# what an output projection is called where the table does not say
_OUTPUT_NAMES = ("o_proj", "out_proj", "dense", "c_proj", "wo")

_UNFIT = {
    "diffllama": "its heads write in pairs, so a slice of the projection's input is no head",
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

    def columns(self, head: int) -> slice:
        """Return where a head's output lies in the projection's input."""
        return slice(head * self.head_width, (head + 1) * self.head_width)


def known_architectures() -> list[str]:
    """Return every ``model_type`` whose heads are known by name; others are found by shape, or refused."""
    return sorted(_PLACE_OF)


def require_heads(config: Any) -> None:
    """Check, from the config alone, that a model is a decoder with attention heads.

    Raises
    ------
    CaplocError
        Saying why heads cannot be knocked out of this architecture.
    """
    reason = _UNFIT.get(config.model_type)
    if getattr(config, "is_encoder_decoder", False):
        reason = "it is an encoder-decoder"
    elif config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        reason = "it is an encoder"
    elif not getattr(_text_config(config), "num_attention_heads", None):
        reason = "it has no attention heads"
    if reason:
        raise CaplocError(
            f'the architecture "{config.model_type}" is not supported: {reason}; caploc knocks attention '
            "heads out of decoder-only language models"
        )


def attention_layers(model: Any) -> list[AttentionLayer]:
    """Find the attention output projections of a transformers causal language model.

    Raises
    ------
    CaplocError
        If the architecture has no heads to knock out, is not in the table and its shapes leave open where
        they are, or if a projection's input is not heads x head width.
    """
    config = model.config
    require_heads(config)
    layers_path, path = _place(model)
    found = [
        _attention_layer(number, layer, path, _text_config(config))
        for number, layer in enumerate(model.get_submodule(layers_path).children())
        if _has_heads(layer, path)
    ]
    if not found or len({id(layer.projection) for layer in found}) < len(found):
        reason = "several layers share one projection" if found else "no layer of it has attention heads"
        raise CaplocError(f'this "{config.model_type}" is not supported: {reason}')
    return found


def decoder_layers(model: Any) -> nn.ModuleList:
    """Return a model's list of decoder layers, attention or not."""
    layers: Any = model.get_submodule(_place(model)[0])
    return layers


def head_grid(model: Any) -> HeadGrid:
    """Return the query heads of a model; the model may be on the meta device, without weights."""
    return grid_of(attention_layers(model))


def grid_of(layers: Sequence[AttentionLayer]) -> HeadGrid:
    """Return the query heads of some attention layers."""
    return HeadGrid(tuple(layer.n_heads for layer in layers), tuple(layer.number for layer in layers))


@contextmanager
def recorded_heads(layers: Sequence[AttentionLayer]) -> Iterator[list[Tensor]]:
    """Record what the heads of some layers write in the block's forwards, [B, T, heads * width] a call."""
    recorded: list[Tensor] = []
    with ExitStack() as hooks:
        for layer in layers:
            spy = layer.projection.register_forward_pre_hook(
                lambda _, args: recorded.append(args[0].detach().clone())
            )
            hooks.enter_context(spy)
        yield recorded


def _place(model: Any) -> tuple[str, str]:
    """Return where a model's decoder layers are, and within one its projection."""
    return _PLACE_OF.get(model.config.model_type) or _place_by_shape(model)


def _attention_layer(number: int, layer: nn.Module, path: str, config: Any) -> AttentionLayer:
    attention, projection = layer.get_submodule(path.rpartition(".")[0]), layer.get_submodule(path)
    width, _ = _shape(projection)
    n_heads, head_width = _heads(attention, width, config)
    if n_heads * head_width != width:
        raise CaplocError(
            f"layer {number} does not look like {n_heads} heads of width {head_width}: "
            f"its output projection reads {width} features"
        )
    return AttentionLayer(number, projection, n_heads, head_width)


def _heads(attention: Any, width: int, config: Any) -> tuple[int, int]:
    """Return heads and head width as the layer, else the config, states them."""
    n_heads = next(
        (
            n
            for name in ("num_heads", "num_attention_heads", "n_heads")
            if (n := getattr(attention, name, None))
        ),
        config.num_attention_heads,
    )
    # the value heads' own width comes first: queries and keys may be wider or narrower
    stated = (getattr(attention, name, None) for name in ("v_head_dim", "head_dim", "head_size"))
    return n_heads, next(filter(None, stated), None) or getattr(config, "head_dim", None) or width // n_heads


def _place_by_shape(model: Any) -> tuple[str, str]:
    """Find the layers and the projection of an architecture that the table lacks."""
    config = _text_config(model.config)
    stacks = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == config.num_hidden_layers
    ]
    places = {
        (stack, path)
        for stack in stacks
        for layer in model.get_submodule(stack)
        for path in _fitting(layer, config)
    }
    if len(places) != 1:
        raise CaplocError(
            f'the architecture "{model.config.model_type}" is not supported: its layers do not show by their '
            f"shapes which projection reads the heads ({len(places)} could); caploc knows "
            + ", ".join(known_architectures())
        )
    return places.pop()


def _fitting(layer: nn.Module, config: Any) -> Iterator[str]:
    for path, attention in layer.named_modules():
        if not _is_attention(attention):
            continue
        for name, projection in attention.named_children():
            if name in _OUTPUT_NAMES and hasattr(projection, "weight"):
                width, out = _shape(projection)
                n_heads, head_width = _heads(attention, width, config)
                if n_heads * head_width == width and out == config.hidden_size:
                    yield f"{path}.{name}"


def _shape(projection: Any) -> tuple[int, int]:
    """Return the width of a projection's input and of its output."""
    # GPT-2 keeps its weights transposed, in a Conv1D that names only its output width
    if hasattr(projection, "in_features"):
        return projection.in_features, projection.out_features
    return projection.weight.shape[0], projection.weight.shape[-1]


def _has_heads(layer: nn.Module, path: str) -> bool:
    attention: Any = layer
    *parents, name = path.split(".")
    for parent in parents:
        attention = getattr(attention, parent, None)
    return _is_attention(attention) and getattr(attention, name, None) is not None


def _is_attention(module: Any) -> bool:
    """Tell attention from what some hybrids call so: recurrences, whose states no head owns alone."""
    name = type(module).__name__.lower()
    return "attention" in name and "delta" not in name and "lightning" not in name


def _text_config(config: Any) -> Any:
    return config.get_text_config(decoder=True)

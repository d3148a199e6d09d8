"""Heads of a model knocked out by gates, for as long as a context lasts."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from caploc.errors import CaplocError
from caploc.heads import HeadGrid, HeadLike
from caploc.models.attention import AttentionLayer, attention_layers, grid_of
from caploc.replacements import Replacement


@contextmanager
def knockout(
    model: nn.Module,
    heads: Iterable[HeadLike] | Tensor,
    *,
    scale: float = 0.0,
    replacement: Replacement | None = None,
) -> Iterator[None]:
    """Knock heads out of a model inside a ``with`` block.

    A head's slice x of the input of its layer's attention output projection becomes
    ``gate * x + (1 - gate) * r``. The gate is 1 for an intact head and `scale` for those given; r is 0
    (zero-ablation, the default) or what `replacement` holds (mean and resample ablation). The projection's
    bias stays. It works under any attention implementation, with a cache, in ``generate``, in inference
    mode and under autograd, where gradients reach gates that require them.

    Parameters
    ----------
    model : torch.nn.Module
        A transformers causal language model.
    heads : iterable of int, str or (int, int), or Tensor
        The heads to knock out of every row, as flat indices, ``"L16H21"`` or ``(16, 21)``; or gates of
        shape [rows, n_heads], one row of gates for each row of the batch, or one for all.
    scale : float
        The gate of the heads given by name: 0 knocks them out, 0.5 halves them.
    replacement : Replacement, optional
        What a knocked-out head writes instead of 0; see :mod:`caploc.replacements`.

    Raises
    ------
    CaplocError
        If a head does not exist, or the model is compiled, which makes it deaf to gates.
    ValueError
        If gates are not finite floats of the shape [rows, n_heads], or meet a batch with another
        number of rows.

    Examples
    --------
    >>> with knockout(model, ["L16H21", (15, 13)]):
    ...     logits = model(input_ids).logits
    """
    if hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None:
        raise CaplocError(
            "the model is compiled, and would ignore a knockout: compile it within the block, if at all"
        )
    layers = attention_layers(model)
    grid = grid_of(layers)
    gates = heads if isinstance(heads, Tensor) else head_gates(grid, heads, scale)  # [rows or 1, n_heads]
    if gates.ndim != 2 or gates.shape[1] != len(grid):
        raise ValueError(f"gates must have the shape [rows, {len(grid)}], got {list(gates.shape)}")
    if not gates.is_floating_point() or not bool(gates.isfinite().all()):
        raise ValueError("gates must be finite floating-point numbers: 0 = knocked out, 1 = intact")
    with ExitStack() as hooks:
        if replacement is not None:
            hooks.enter_context(replacement.follow(model))
        for i, (layer, columns) in enumerate(zip(layers, grid.slices(), strict=True)):
            layer_gates = gates[:, columns]
            if isinstance(heads, Tensor) or bool((layer_gates != 1).any()):
                instead = None if replacement is None else lambda like, i=i: replacement.outputs(i, like)
                gate_input = _gate_input(layer, layer_gates, instead)
                hooks.enter_context(layer.projection.register_forward_pre_hook(gate_input))
        yield


def head_gates(grid: HeadGrid, heads: Iterable[HeadLike], scale: float = 0.0) -> Tensor:
    """Return gates of shape [1, n_heads]: `scale` for the heads given, 1 for all others."""
    gates = torch.ones(1, len(grid))
    gates[:, grid.indices(heads)] = scale
    return gates


def mask_gates(grid: HeadGrid, masks: Iterable[Iterable[HeadLike]]) -> Tensor:
    """Return gates of shape [masks, n_heads], a row for each mask."""
    return torch.cat([head_gates(grid, heads) for heads in masks])


def _gate_input(
    layer: AttentionLayer, gates: Tensor, instead: Callable[[Tensor], Tensor] | None
) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
    prepared: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def wide_gates(like: Tensor) -> Tensor:  # [rows or 1, 1, heads * width]
        if gates.requires_grad:  # each backward frees its graph
            return _widen(gates, layer.head_width, like)
        key = (like.device, like.dtype)
        if key not in prepared:
            # a tensor made in inference mode could not be used under autograd later in the block
            with torch.inference_mode(mode=False):
                prepared[key] = _widen(gates, layer.head_width, like)
        return prepared[key]

    def hook(_projection: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        outputs = args[0]  # [B, T, heads * width]
        if gates.shape[0] not in (1, outputs.shape[0]):
            raise ValueError(
                f"{gates.shape[0]} rows of gates met a batch of {outputs.shape[0]} rows; beams and several "
                "returned sequences need a row each: gates.repeat_interleave(n, dim=0)"
            )
        wide = wide_gates(outputs)
        gated = outputs * wide
        return (gated if instead is None else gated + (1 - wide) * instead(outputs), *args[1:])

    return hook


def _widen(gates: Tensor, head_width: int, like: Tensor) -> Tensor:
    return gates.to(like).repeat_interleave(head_width, dim=1).unsqueeze(1)

"""Heads of a model knocked out by gates, for as long as a context lasts."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from caploc.heads import HeadGrid, HeadLike
from caploc.models.attention import AttentionLayer, attention_layers, grid_of


@contextmanager
def knockout(model: nn.Module, heads: Iterable[HeadLike] | Tensor) -> Iterator[None]:
    """Knock heads out of a model (zero-ablation) inside a ``with`` block.

    A head's slice of the input of its layer's attention output projection is multiplied by a gate:
    0 = knocked out, 1 = intact. The projection's bias stays.

    Parameters
    ----------
    model : torch.nn.Module
        A transformers causal language model.
    heads : iterable of int, str or (int, int), or Tensor
        The heads to knock out of every row, as flat indices, ``"L16H21"`` or ``(16, 21)``; or gates of
        shape [rows, n_heads], one row of gates for each row of the batch.

    Raises
    ------
    CaplocError
        If a head does not exist.
    ValueError
        If gates are not finite floats of the shape [rows, n_heads], or meet a batch with another
        number of rows.

    Examples
    --------
    >>> with knockout(model, ["L16H21", (15, 13)]):
    ...     logits = model(input_ids).logits
    """
    layers = attention_layers(model)
    grid = grid_of(layers)
    gates = heads if isinstance(heads, Tensor) else head_gates(grid, heads)  # [rows or 1, n_heads]
    if gates.ndim != 2 or gates.shape[1] != len(grid):
        raise ValueError(f"gates must have the shape [rows, {len(grid)}], got {list(gates.shape)}")
    if not gates.is_floating_point() or not bool(gates.isfinite().all()):
        raise ValueError("gates must be finite floating-point numbers: 0 = knocked out, 1 = intact")
    with ExitStack() as hooks:
        for layer, columns in zip(layers, grid.slices(), strict=True):
            layer_gates = gates[:, columns]
            if isinstance(heads, Tensor) or bool((layer_gates != 1).any()):
                handle = layer.projection.register_forward_pre_hook(_gate_input(layer, layer_gates))
                hooks.callback(handle.remove)
        yield


def head_gates(grid: HeadGrid, heads: Iterable[HeadLike]) -> Tensor:
    """Return gates of shape [1, n_heads]: 0 for the heads given, 1 for all others."""
    gates = torch.ones(1, len(grid))
    gates[:, grid.indices(heads)] = 0
    return gates


def _gate_input(
    layer: AttentionLayer, gates: Tensor
) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
    wide = gates.repeat_interleave(layer.head_width, dim=1).unsqueeze(1)  # [rows or 1, 1, heads * width]

    def hook(_projection: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        outputs = args[0]  # [B, T, heads * width]
        if wide.shape[0] not in (1, outputs.shape[0]):
            raise ValueError(f"{wide.shape[0]} rows of gates met a batch of {outputs.shape[0]} rows")
        return (outputs * wide.to(outputs), *args[1:])

    return hook

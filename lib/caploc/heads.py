"""Attention heads and how they are counted: layer, head <-> flat index <-> ``L16H21``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from caploc.errors import CaplocError

Head = tuple[int, int]
HeadLike = int | str | Head

_NAME = re.compile(r"L(\d+)H(\d+)")


@dataclass(frozen=True)
class HeadGrid:
    """The query heads of a model.

    Layers may differ in their number of heads, and layers without attention may be missing; heads
    are numbered flat, layer by layer.

    Parameters
    ----------
    heads_per_layer : tuple of int
        Query heads of each attention layer.
    layers : tuple of int, optional
        True number of each attention layer; ``0, 1, 2, ...`` by default.
    """

    heads_per_layer: tuple[int, ...]
    layers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            object.__setattr__(self, "layers", tuple(range(len(self.heads_per_layer))))
        if len(self.layers) != len(self.heads_per_layer) or min(self.heads_per_layer, default=0) < 1:
            raise ValueError("a head grid needs at least one layer, and a positive number of heads for each")

    @classmethod
    def of_model(cls, model: Mapping[str, Any]) -> Self:
        """Return the grid of the model that the download stage described."""
        return cls(tuple(model["heads_per_layer"]), tuple(model["layers"]))

    def __len__(self) -> int:
        """Return the number of heads."""
        return sum(self.heads_per_layer)

    @property
    def heads(self) -> list[Head]:
        """Every ``(layer, head)`` in flat order."""
        return [
            (layer, h) for layer, n in zip(self.layers, self.heads_per_layer, strict=True) for h in range(n)
        ]

    def name(self, index: int) -> str:
        """Return ``L16H21`` for a flat index."""
        layer, head = self.heads[index]
        return f"L{layer}H{head}"

    def index(self, head: HeadLike) -> int:
        """Return the flat index of a head given as flat index, ``(layer, head)`` or ``"L16H21"``.

        Raises
        ------
        CaplocError
            If the text is no head's name, or the model has no such head.
        """
        if isinstance(head, str):
            match = _NAME.fullmatch(head.strip().upper())
            if match is None:
                raise CaplocError(f'"{head}" is no head: write layer and head, both from 0, as in L16H21')
            head = (int(match[1]), int(match[2]))
        for number in head if isinstance(head, tuple) else (head,):
            if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
                raise CaplocError(
                    f"{head!r} is no head: give a flat index, (layer, head), or a name like L16H21"
                )
        if isinstance(head, tuple):
            layer, within = head
            if layer in self.layers:
                position = self.layers.index(layer)
                if 0 <= within < self.heads_per_layer[position]:
                    return sum(self.heads_per_layer[:position]) + within
            raise CaplocError(f"the model has no head L{layer}H{within}: {self.describe()}")
        if not 0 <= head < len(self):
            raise CaplocError(f"the model has no head number {head}: {self.describe()}")
        return int(head)

    def indices(self, heads: Iterable[HeadLike]) -> list[int]:
        """Return the sorted flat indices of some heads, each once."""
        return sorted({self.index(head) for head in heads})

    def names(self, indices: Iterable[int]) -> list[str]:
        """Return the names of some flat indices, in the order given."""
        return [self.name(index) for index in indices]

    def slices(self) -> list[slice]:
        """Return where each layer's heads lie in the flat order."""
        ends = [0]
        for n in self.heads_per_layer:
            ends.append(ends[-1] + n)
        return [slice(first, end) for first, end in pairwise(ends)]

    def describe(self) -> str:
        """Say the grid's shape in words."""
        sizes: Sequence[int] = sorted(set(self.heads_per_layer))
        each = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        return f"{len(self.layers)} attention layers (L{self.layers[0]} to L{self.layers[-1]}) x {each} heads"

"""Addition of two small numbers."""

from itertools import product

import numpy as np

from caploc.capabilities.prompts import Family, Item, Metric, Prompt

SHOTS = ((2, 2), (5, 5), (8, 8), (3, 3))
"""Doubles, so that no item is a shown sum turned around."""

LARGEST = 12
"""Largest operand."""

HEADER = "".join(f"{left}+{right}={left + right}\n" for left, right in SHOTS)


def _items(_rng: np.random.Generator) -> list[Item]:
    operands = range(1, LARGEST + 1)
    return [
        Item(
            group=(min(left, right), max(left, right)),
            prompt=Prompt(text=f"{HEADER}{left}+{right}=", answer=str(left + right)),
        )
        for left, right in product(operands, operands)
        if (left, right) not in SHOTS
    ]


FAMILY = Family(
    name="addition",
    summary="the sum of two small numbers, after four examples",
    metric=Metric.EXACT,
    chance=0.0,
    items=_items,
)

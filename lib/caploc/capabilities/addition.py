"""Addition of two small numbers."""

from itertools import product

import numpy as np

from caploc.capabilities.prompts import Family, Item, Metric, Prompt

SHOTS = ((7, 2), (3, 8), (5, 1), (6, 4))
"""Sums shown before the question; neither they nor their reverse are items."""

LARGEST = 10
"""Largest operand."""

HEADER = "".join(f"{left} + {right} = {left + right}\n" for left, right in SHOTS)


def _items(_rng: np.random.Generator) -> list[Item]:
    operands = range(1, LARGEST + 1)
    return [
        Item(
            group=(min(left, right), max(left, right)),
            prompt=Prompt(text=f"{HEADER}{left} + {right} =", answer=f" {left + right}"),
        )
        for left, right in product(operands, operands)
        if (left, right) not in SHOTS and (right, left) not in SHOTS
    ]


FAMILY = Family(
    name="addition",
    summary="the sum of two small numbers, after four examples",
    metric=Metric.EXACT,
    chance=0.0,
    items=_items,
)

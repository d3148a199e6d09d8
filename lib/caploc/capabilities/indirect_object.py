"""Indirect-object identification: of two people named, who is handed the thing."""

from itertools import combinations

import numpy as np

from caploc.capabilities.prompts import Family, Item, Metric, Prompt

NAMES = (
    "Mary", "John", "Anna", "Peter", "Sarah", "David", "Laura", "James", "Emma", "Paul",
    "Alice", "Mark", "Lucy", "Tom", "Jane", "Robert", "Kate", "Simon", "Helen", "Jack",
    "Rachel", "Daniel", "Susan", "George",
)  # fmt: skip

PLACES = (
    "store", "park", "market", "school", "station", "library", "beach", "garden", "office", "kitchen",
    "museum", "harbor",
)  # fmt: skip

THINGS = (
    "drink", "book", "letter", "ticket", "basket", "flower", "coin", "sandwich", "map", "key",
    "pencil", "ball",
)  # fmt: skip

TEMPLATES = (
    "When {first} and {second} went to the {place}, {giver} gave a {thing} to",
    "While {first} and {second} were at the {place}, {giver} handed a {thing} to",
    "After {first} and {second} got to the {place}, {giver} offered a {thing} to",
    "Then {first} and {second} met at the {place}, and {giver} passed a {thing} to",
)


def _items(rng: np.random.Generator) -> list[Item]:
    def pick(words: tuple[str, ...]) -> str:
        return words[rng.integers(len(words))]

    items = []
    for pair in combinations(NAMES, 2):
        for giver, receiver in (pair, pair[::-1]):
            first, second = (giver, receiver) if rng.integers(2) else (receiver, giver)
            text = pick(TEMPLATES).format(
                first=first, second=second, place=pick(PLACES), giver=giver, thing=pick(THINGS)
            )
            items.append(Item(group=pair, prompt=Prompt(text=text, answer=f" {receiver}")))
    return items


FAMILY = Family(
    name="indirect_object",
    summary="which of two people is given a thing",
    metric=Metric.EXACT,
    chance=0.0,
    items=_items,
)

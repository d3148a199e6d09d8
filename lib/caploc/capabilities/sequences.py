"""What comes next in a well-known series."""

from itertools import chain

import numpy as np

from caploc.capabilities.prompts import Family, Item, Metric, Prompt

WINDOW = 3
"""How many members are shown before the one asked for."""

CYCLES = {
    "days": (
        ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
        ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    ),
    "months": (
        (
            "January", "February", "March", "April", "May", "June",
            "July", "August", "September", "October", "November", "December",
        ),
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    ),
}  # fmt: skip
"""Series that start anew after their last member, in their long and short spellings."""

LINES = {
    "letters": (tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),),
    "numbers": (
        (
            "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
            "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
            "nineteen", "twenty",
        ),
    ),
    "tens": (("ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"),),
    "ordinals": (
        (
            "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
            "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth",
            "eighteenth", "nineteenth", "twentieth",
        ),
    ),
}  # fmt: skip
"""Series that end, in their one spelling."""


def _windows(name: str, line: tuple[str, ...]) -> list[Item]:
    return [
        Item(
            group=(name, start),
            prompt=Prompt(
                text="In order: " + ", ".join(line[start : start + WINDOW]) + ",",
                answer=f" {line[start + WINDOW]}",
            ),
        )
        for start in range(len(line) - WINDOW)
    ]


def _items(_rng: np.random.Generator) -> list[Item]:
    cycles = ((name, (*line, *line[:WINDOW])) for name, lines in CYCLES.items() for line in lines)
    lines = ((name, line) for name, lines in LINES.items() for line in lines)
    return [item for name, line in chain(cycles, lines) for item in _windows(name, line)]


FAMILY = Family(
    name="sequences",
    summary="the next day, month, letter, number word or ordinal",
    metric=Metric.EXACT,
    chance=0.0,
    items=_items,
)

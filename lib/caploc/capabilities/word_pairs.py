"""The shape that several families share: a word is shown, its counterpart is the answer."""

from collections.abc import Hashable, Sequence

import numpy as np

from caploc.capabilities.prompts import Family, Item, Metric, Prompt


def word_pair_family(
    name: str,
    summary: str,
    *,
    pattern: str,
    shots: Sequence[tuple[str, str]],
    pairs: Sequence[tuple[str, str]],
) -> Family:
    """Make a family that asks for the second word of each pair.

    Pairs that share a word, whichever side it stands on, are one group.

    Parameters
    ----------
    name, summary : str
        As for `Family`.
    pattern : str
        A line with ``{word}`` and ``{answer}``; the prompt ends before the answer and its space.
    shots : sequence of (str, str)
        Pairs shown, a line each, before the question.
    pairs : sequence of (str, str)
        The items, none of which shares a word with a shot.

    Returns
    -------
    Family
        Scored by exact match.
    """
    question, _, _ = pattern.partition(" {answer}")
    header = "".join(pattern.format(word=word, answer=answer) + "\n" for word, answer in shots)
    groups = _groups(pairs)

    def items(_rng: np.random.Generator) -> list[Item]:
        return [
            Item(groups[word], Prompt(text=header + question.format(word=word), answer=f" {answer}"))
            for word, answer in pairs
        ]

    return Family(name=name, summary=summary, metric=Metric.EXACT, chance=0.0, items=items)


def _groups(pairs: Sequence[tuple[str, str]]) -> dict[str, Hashable]:
    """Give words that pairs connect one group, named by the first of them."""
    group = {word: word for pair in pairs for word in pair}
    for word, answer in pairs:
        kept, merged = group[word], group[answer]
        group = {member: kept if name == merged else name for member, name in group.items()}
    return dict(group)

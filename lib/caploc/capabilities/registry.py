"""The capabilities by name, and how their prompts are drawn into two splits."""

import zlib
from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from caploc.capabilities import (
    addition,
    agreement,
    antonyms,
    capitals,
    indirect_object,
    past_tense,
    prose,
    sequences,
)
from caploc.capabilities.prompts import Capability, Family, Item, Prompt, PromptSet
from caploc.errors import CaplocError, did_you_mean

MEASURE_SHARE = 0.4
"""Share of a family's items that the measure split gets; the proof gets the larger part."""

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        indirect_object.FAMILY,
        addition.FAMILY,
        capitals.FAMILY,
        antonyms.FAMILY,
        sequences.FAMILY,
        past_tense.FAMILY,
        agreement.FAMILY,
        prose.FAMILY,
    )
}
"""Every built-in family, in the order in which they are listed to the user."""


def build(name: str, *, seed: int, measure: int, validate: int) -> Capability:
    """Sample a capability's prompts.

    Which prompts a split can hold depends on the seed and the name alone, so asking for more
    prompts keeps the ones there were.

    Parameters
    ----------
    name : str
        A key of `FAMILIES`.
    seed : int
        Decides the split, the order and the dress of the prompts.
    measure, validate : int
        How many prompts each split gets.

    Returns
    -------
    Capability
        With the splits ``measure`` and ``validate``, which share no group.

    Raises
    ------
    CaplocError
        If the name is unknown, or a split has fewer prompts than asked for.
    """
    if name not in FAMILIES:
        known = list(FAMILIES)
        raise CaplocError(
            f'params.yaml: unknown capability "{name}"{did_you_mean(name, known)}; known: {", ".join(known)}'
        )
    family = FAMILIES[name]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    pools = _split(family.items(rng), rng)
    counts = {"measure": measure, "validate": validate}
    return Capability(
        name=family.name,
        summary=family.summary,
        metric=family.metric,
        chance=family.chance,
        splits={
            split: PromptSet(family.metric, _first(pool, counts[split], name, split))
            for split, pool in pools.items()
        },
    )


def build_all(names: Sequence[str], *, seed: int, measure: int, validate: int) -> dict[str, Capability]:
    """Sample several capabilities, as `build` does each.

    Parameters
    ----------
    names : sequence of str
        Keys of `FAMILIES`, each at most once.
    seed, measure, validate : int
        As for `build`.

    Returns
    -------
    dict of str to Capability
        In the order of `names`.

    Raises
    ------
    CaplocError
        If `names` is empty or holds a name twice, or `build` refuses one.
    """
    if not names:
        raise CaplocError(f"no capability is named; choose from {', '.join(FAMILIES)}")
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise CaplocError(f"capabilities named twice: {', '.join(twice)}; name each once")
    return {name: build(name, seed=seed, measure=measure, validate=validate) for name in names}


def _split(items: list[Item], rng: np.random.Generator) -> dict[str, list[Prompt]]:
    """Deal whole groups to the splits in random order, then shuffle each split."""
    by_group: defaultdict[Hashable, list[Prompt]] = defaultdict(list)
    for item in items:
        by_group[item.group].append(item.prompt)
    groups = list(by_group.values())
    pools: dict[str, list[Prompt]] = {"measure": [], "validate": []}
    for index in rng.permutation(len(groups)):
        split = "measure" if len(pools["measure"]) < MEASURE_SHARE * len(items) else "validate"
        pools[split].extend(groups[index])
    return {split: [pool[index] for index in rng.permutation(len(pool))] for split, pool in pools.items()}


def _first(pool: list[Prompt], count: int, name: str, split: str) -> tuple[Prompt, ...]:
    if not 1 <= count <= len(pool):
        raise CaplocError(
            f'capability "{name}" has {len(pool)} prompts in its {split} split, not {count}; '
            f"set prompts.{split} to between 1 and {len(pool)}, or leave {name} out"
        )
    return tuple(pool[:count])

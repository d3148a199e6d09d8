"""From the responses of all capabilities to the few heads of each."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from caploc.recovery.response import Response

_SHORTLIST = 64  # heads, by their value alone, that may enter a set
_SWEEPS = 3

Value = Callable[[list[int], np.ndarray], np.ndarray]


def choose(
    responses: Mapping[str, Response], capability: str, *, sparsity: int, objective: str, weight: float
) -> list[int]:
    """Choose the heads of one capability.

    Parameters
    ----------
    responses : mapping of str to Response
        Of every capability and control.
    capability : str
        Whose heads are sought.
    sparsity : int
        Heads to choose, at most: only heads that the capability needs, and that are worth more than
        they cost the others, are ever chosen.
    objective : {'joint', 'contrast', 'target'}
        ``target`` ranks heads by the capability's own drop (the paper's ranking). ``contrast`` ranks them by
        that less `weight` times the mean drop of the others, where positive. ``joint`` maximizes the same
        difference for the set as a whole, one head after the other, then by exchanges.
    weight : float
        What a drop of the others costs, beside one of the capability itself.

    Returns
    -------
    list of int
        Flat indices in rank order; ties by index.
    """
    own = responses[capability]
    others = [response for name, response in responses.items() if name != capability]

    def value(heads: list[int], candidates: np.ndarray) -> np.ndarray:
        drop = own.drops_with(heads, candidates)
        if objective == "target" or not others:
            return drop
        return drop - weight * np.mean(
            [np.maximum(o.drops_with(heads, candidates), 0) for o in others], axis=0
        )

    needed = np.flatnonzero(own.single_drops() > 0)
    alone = value([], needed)
    ranked = needed[np.argsort(-alone, kind="stable")]
    if objective != "joint":
        return ranked[: min(sparsity, int((alone > 0).sum()))].tolist()
    shortlist = ranked[:_SHORTLIST]
    chosen = _grow(value, shortlist, sparsity)
    for _ in range(_SWEEPS):
        exchanged = _exchange(value, shortlist, chosen)
        if exchanged == chosen:
            break
        chosen = exchanged
    kept = _prune(partial(worth, responses, capability, weight=weight), chosen)
    return _grow(value, np.sort(kept), sparsity)


def worth(
    responses: Mapping[str, Response], capability: str, heads: Sequence[int], *, weight: float
) -> float:
    """Return the expected drop of a capability less `weight` times the mean drop of the others."""
    drops = {name: response.drop(list(heads)) for name, response in responses.items()}
    own = drops.pop(capability)
    return own - weight * float(np.mean([max(drop, 0.0) for drop in drops.values()])) if drops else own


def _grow(value: Value, candidates: np.ndarray, sparsity: int) -> list[int]:
    """Take the best candidate, then the best beside it, and so on."""
    chosen: list[int] = []
    left = candidates.astype(int)
    while len(chosen) < sparsity and len(left):
        best = int(value(chosen, left).argmax())
        chosen.append(int(left[best]))
        left = np.delete(left, best)
    return chosen


def _exchange(value: Value, candidates: np.ndarray, chosen: list[int]) -> list[int]:
    """Replace each head by the one that serves the set best in its place."""
    chosen = list(chosen)
    for i in range(len(chosen)):
        rest = chosen[:i] + chosen[i + 1 :]
        free = np.setdiff1d(candidates, rest)
        chosen[i] = int(free[value(rest, free).argmax()])
    return chosen


def _prune(worth_of: Callable[[list[int]], float], chosen: list[int]) -> list[int]:
    """Leave out heads as long as the set is worth more without one of them."""
    while chosen:
        fewer = [chosen[:i] + chosen[i + 1 :] for i in range(len(chosen))]
        values = [worth_of(heads) for heads in fewer]
        best = int(np.argmax(values))
        if values[best] < worth_of(chosen):
            break
        chosen = fewer[best]
    return chosen

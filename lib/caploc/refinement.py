"""More masks where findings are in doubt: rounds of knockouts of the heads that may or may not be chosen."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from caploc.adaptive import next_masks
from caploc.recovery.doubt import Choose
from caploc.recovery.fits import Fit, Method, fit_all
from caploc.recovery.observations import Observations

_REPLICATES = 50
_LEAST_DOUBT = 1e-3
_STABLE_ROUNDS = 3


def refine(
    design: np.ndarray,
    observe: Callable[[np.ndarray], Mapping[str, Observations]],
    fit_one: Method,
    choose: Choose,
    localized: Sequence[str],
    *,
    masks: int,
    rounds: int,
    seed: int,
) -> np.ndarray:
    """Add masks to a design, each round's about the heads that the rounds before left in doubt.

    A head is in doubt for a capability by how far its probability of being chosen is from 0 and 1; what
    counts is the capability that doubts it most. It ends early when every capability's heads were the
    same for three rounds.

    Parameters
    ----------
    design : ndarray of bool, [n_masks, n_heads]
        The masks so far; new ones knock out as many heads.
    observe : callable
        Measures all capabilities under some masks.
    fit_one, choose : callable
        How effects are recovered, and heads chosen.
    localized : sequence of str
        The capabilities that get heads.
    masks : int
        Masks to add, at most.
    rounds : int
        In how many rounds.
    seed : int
        The same seed and scores give the same masks.

    Returns
    -------
    ndarray of bool, [n_masks + n_added, n_heads]
        The design, with the masks added.
    """
    first, size = len(design), round(design.sum(axis=1).mean())
    history: list[dict[str, list[int]]] = []
    for end in np.unique(np.linspace(first, first + masks, rounds + 1).round().astype(int))[1:]:
        fits = fit_all(design, observe(design), fit_one)
        responses = {name: fit.response for name, fit in fits.items()}
        history.append({name: sorted(choose(responses, name)) for name in localized})
        latest = history[-_STABLE_ROUNDS:]
        if len(latest) == _STABLE_ROUNDS and all(chosen == latest[0] for chosen in latest):
            break
        rng = np.random.default_rng([seed, len(design)])
        doubt = np.maximum(_doubt(fits, choose, localized, rng), _LEAST_DOUBT)
        design = np.vstack([design, next_masks(doubt, size, end - len(design), rng)])
    return design


def _doubt(
    fits: Mapping[str, Fit], choose: Choose, localized: Sequence[str], rng: np.random.Generator
) -> np.ndarray:
    n_heads = len(next(iter(fits.values())).effects)
    selected = np.zeros((len(localized), n_heads))
    for _ in range(_REPLICATES):
        drawn = {name: fit.replicate(rng)[1] for name, fit in fits.items()}
        for row, name in enumerate(localized):
            selected[row, choose(drawn, name)] += 1 / _REPLICATES
    return np.minimum(selected, 1 - selected).max(axis=0)

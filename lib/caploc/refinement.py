"""More masks where findings are in doubt: the sets of heads that might be chosen, knocked out themselves."""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice

import numpy as np

from caploc.recovery.doubt import Choose
from caploc.recovery.fits import Fit, Method, fit_all
from caploc.recovery.observations import Observations

_TRIES = 10
_LEAST_A_ROUND = 8  # masks: a choice that fewer leave alone is not stable for that
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
    """Add masks to a design, each a set of heads that might be chosen, for all that is known so far.

    A round fits all capabilities, then takes them in turn: effects are drawn from what the data leave open,
    and the heads chosen by them become a mask (posterior sampling, Thompson 1933). Heads beyond doubt are in
    every such mask of their capability, doubtful ones in some; and what a set costs is measured, where
    random masks only let it be added up. It ends early when every capability's heads were the same for
    three rounds, or no new set comes up.

    Parameters
    ----------
    design : ndarray of bool, [n_masks, n_heads]
        The masks so far.
    observe : callable
        Measures all capabilities under some masks.
    fit_one, choose : callable
        How effects are recovered, and heads chosen.
    localized : sequence of str
        The capabilities that get heads.
    masks : int
        Masks to add, at most.
    rounds : int
        In how many rounds, of eight masks at least.
    seed : int
        The same seed and scores give the same masks.

    Returns
    -------
    ndarray of bool, [n_masks + n_added, n_heads]
        The design, with the masks added.
    """
    first = len(design)
    history: list[dict[str, list[int]]] = []
    rounds = max(1, min(rounds, masks // _LEAST_A_ROUND))
    for end in np.unique(np.linspace(first, first + masks, rounds + 1).round().astype(int))[1:]:
        fits = fit_all(design, observe(design), fit_one)
        responses = {name: fit.response for name, fit in fits.items()}
        history.append({name: sorted(choose(responses, name)) for name in localized})
        latest = history[-_STABLE_ROUNDS:]
        if len(latest) == _STABLE_ROUNDS and all(chosen == latest[0] for chosen in latest):
            break
        count = end - len(design)
        new = _plausible_sets(fits, choose, localized, design, count, np.random.default_rng([seed, end]))
        if not len(new):
            break
        design = np.vstack([design, new])
    return design


def _plausible_sets(
    fits: Mapping[str, Fit],
    choose: Choose,
    localized: Sequence[str],
    design: np.ndarray,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return up to `count` masks that the design lacks, by drawing a bounded number of times."""
    known = {mask.tobytes() for mask in design}
    new: list[np.ndarray] = []
    for name in islice(cycle(localized), _TRIES * count):
        drawn = {other: fit.replicate(rng)[1] for other, fit in fits.items()}
        mask = np.zeros(design.shape[1], dtype=bool)
        mask[choose(drawn, name)] = True
        if mask.any() and mask.tobytes() not in known:
            known.add(mask.tobytes())
            new.append(mask)
        if len(new) == count:
            break
    return np.array(new, dtype=bool).reshape(-1, design.shape[1])

"""How sure a finding is: what would have been chosen, had masks and prompts fallen otherwise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from caploc.recovery.fits import Fit
from caploc.recovery.response import Response

Choose = Callable[[Mapping[str, Response], str], list[int]]
Worth = Callable[[Mapping[str, Response], str, list[int]], float]

_FOLDS = 5
_FRACTIONS = (0.25, 0.5, 0.75)
_CONFIDENCE = 0.9


@dataclass(frozen=True)
class Doubt:
    """How sure a capability's effects and its chosen heads are.

    Parameters
    ----------
    stderr, ci_low, ci_high : ndarray, [n_heads]
        Standard error and 90 % interval of each effect.
    selected : ndarray, [n_heads]
        Probability of being chosen.
    regret : float
        What knowing all effects exactly would add to the worth of the chosen set, as expected: the most
        that more masks can buy.
    p_value : float
        Probability of predictions as good as these, for masks held out, if the heads chosen without them
        did not matter.
    learning : list of dict
        For ever more ``masks``: ``agreement`` with the chosen heads, and ``worth``, by all masks' effects, of
        the heads chosen from these masks only.
    """

    stderr: np.ndarray
    ci_low: np.ndarray
    ci_high: np.ndarray
    selected: np.ndarray
    regret: float
    p_value: float
    learning: list[dict[str, float]]


def doubts(
    masks: np.ndarray,
    fits: Mapping[str, Fit],
    chosen: Mapping[str, list[int]],
    choose: Choose,
    worth: Worth,
    *,
    replicates: int,
    seed: int,
) -> dict[str, Doubt]:
    """Doubt what was found.

    Parameters
    ----------
    masks : ndarray, [n_masks, n_heads]
        1 = knocked out.
    fits : mapping of str to Fit
        Of all capabilities and controls.
    chosen : mapping of str to list of int
        The heads of each capability (of no control).
    choose, worth : callable
        How heads were chosen, and what a set of them is worth.
    replicates : int
        Draws behind each standard error, interval and probability.
    seed : int
        Of the draws and folds.
    """
    responses = {name: fit.response for name, fit in fits.items()}
    n_heads = masks.shape[1]
    effects = {name: np.empty((replicates, n_heads)) for name in fits}
    selected = {name: np.zeros(n_heads) for name in fits}
    regret = dict.fromkeys(chosen, 0.0)
    rng = np.random.default_rng(seed)
    for b in range(replicates):
        drawn: dict[str, Response] = {}
        for name, fit in fits.items():
            effects[name][b], drawn[name] = fit.replicate(rng)
        for name, heads in chosen.items():
            best = choose(drawn, name)
            selected[name][best] += 1
            regret[name] += max(worth(drawn, name, best) - worth(drawn, name, heads), 0) / replicates
    p_values = _held_out(masks, fits, chosen, choose, rng)
    learning = _learning(fits, responses, chosen, choose, worth, len(masks))
    low, high = (1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2
    return {
        name: Doubt(
            stderr=effects[name].std(axis=0, ddof=1),
            ci_low=np.quantile(effects[name], low, axis=0),
            ci_high=np.quantile(effects[name], high, axis=0),
            selected=selected[name] / replicates,
            regret=regret.get(name, 0.0),
            p_value=p_values.get(name, 1.0),
            learning=learning.get(name, []),
        )
        for name in fits
    }


def _held_out(
    masks: np.ndarray,
    fits: Mapping[str, Fit],
    chosen: Mapping[str, list[int]],
    choose: Choose,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Return the one-sided p-value of the correlation of predictions and scores, over held-out masks.

    For each fold the heads are chosen, and their effects fitted, without its masks; a mask's score is then
    predicted from which of these heads it knocks out. Equal masks share a fold, and how many heads a mask
    knocks out explains nothing: any heads would predict that.
    """
    distinct = np.unique(masks, axis=0, return_inverse=True)[1].ravel()
    n_distinct = distinct.max() + 1
    fold_of = (rng.permutation(n_distinct) % _FOLDS)[distinct]
    size = masks.sum(axis=1)
    folds = [np.flatnonzero(fold_of == fold) for fold in range(min(_FOLDS, n_distinct))]
    predicted = {name: np.zeros(len(masks)) for name in chosen}
    observed = {name: np.zeros(len(masks)) for name in chosen}
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(masks)), fold)
        responses = {name: fit.refit(rest).response for name, fit in fits.items()}
        for name in chosen:
            heads = choose(responses, name)
            predicted[name][fold] = _beyond_mean(responses[name].scores_under(masks[fold], heads))
            observed[name][fold] = _beyond_mean(fits[name].scores[fold])
        size[fold] = _beyond_mean(size[fold])
    freedom = n_distinct - len(folds) - 2
    return {
        name: _one_sided(_beyond(predicted[name], size), _beyond(observed[name], size), freedom)
        for name in chosen
    }


def _beyond_mean(values: np.ndarray) -> np.ndarray:
    return values - values.mean()


def _beyond(values: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return what a line through the origin of `other` does not explain."""
    length = other @ other
    return values - other * (values @ other / length) if length > 0 else values


def _one_sided(predicted: np.ndarray, observed: np.ndarray, freedom: int) -> float:
    norm = np.linalg.norm(predicted) * np.linalg.norm(observed)
    if norm == 0 or freedom < 1:
        return 1.0
    r = min(float(predicted @ observed) / norm, 1 - 1e-12)
    # each fold is predicted from the others: every pair of masks counts twice, which doubles the variance
    return float(stats.t.sf(r * np.sqrt(freedom / 2 / (1 - r**2)), freedom))


def _learning(
    fits: Mapping[str, Fit],
    responses: Mapping[str, Response],
    chosen: Mapping[str, list[int]],
    choose: Choose,
    worth: Worth,
    n_masks: int,
) -> dict[str, list[dict[str, float]]]:
    curves: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for fraction in (*_FRACTIONS, 1.0):
        n = round(fraction * n_masks)
        fewer = (
            {name: fit.refit(np.arange(n)).response for name, fit in fits.items()} if n < n_masks else None
        )
        for name, heads in chosen.items():
            found = heads if fewer is None else choose(fewer, name)
            agreement = len(set(found) & set(heads)) / max(len(heads), 1)
            curves[name].append({"masks": n, "agreement": agreement, "worth": worth(responses, name, found)})
    return curves

"""Masks chosen in rounds, each round's from what the rounds before it left in doubt.

Doubt is about membership: which heads belong to the best subset of the sparsity asked for. A round knocks
out most often the heads of which that is least sure, so that masks are spent where they decide something.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.stats import norm, t

from caploc.designs import inclusion_probabilities, sample_masks, systematic_mask
from caploc.recovery.swaps import BestSubsetRecovery

_FIRST = 0.5  # of the masks are balanced: doubts mean little before every head was knocked out a few times
_POWER = 0.7  # of the doubts; below 1, as they are themselves in doubt
_LEAST_DOUBT = 1e-6
_LEAST_NOISE = 1e-4  # of the scores' variance
_PRIOR = 4.0  # variance of an effect over the scores'
_SPANNED = 1e-9  # of the longest column is left, but for rounding, of one that others span
_SETTLED_ROUNDS, _SETTLED_DOUBT = 3, 0.02
_FOUND = 1e-4  # at most is the p-value of a head that is found, times all heads and the sparsity
_ENOUGH = 3  # masks for each bit that tells the subset from others


@dataclass(frozen=True)
class AdaptiveRun:
    """What adaptive rounds measured.

    Attributes
    ----------
    masks : ndarray of bool, [n_masks, n_heads]
        In the order measured; True = knocked out.
    scores : ndarray, [n_masks, n_capabilities]
        What was measured under them.
    chosen : tuple of ndarray
        Each capability's heads, flat indices in ascending order.
    settled : bool
        Whether it stopped before the masks were spent, because no choice was in doubt any more.
    """

    masks: np.ndarray
    scores: np.ndarray
    chosen: tuple[np.ndarray, ...]
    settled: bool


def adaptive_masks(
    measure: Callable[[np.ndarray], np.ndarray],
    n_heads: int,
    *,
    masks: int,
    density: float,
    sparsity: int,
    rounds: int = 8,
    seed: int,
) -> AdaptiveRun:
    """Measure a balanced design, then rounds of masks about the heads that are still in doubt.

    It stops early when every capability's choice was the same for three rounds and is beyond doubt, from
    masks that are enough for :func:`found`. The same scores give the same masks: a killed run whose
    measurements are kept resumes.

    Parameters
    ----------
    measure : callable
        Takes masks [n, n_heads] and returns their scores [n, n_capabilities].
    n_heads : int
        The model's heads.
    masks : int
        Masks in all, at most.
    density : float
        Share of the heads that a mask knocks out.
    sparsity : int
        Heads to find for each capability.
    rounds : int
        Rounds after the balanced half.
    seed : int
        The same seed and scores give the same masks.
    """
    size = max(1, round(density * n_heads))
    ends = np.linspace(max(1, round(_FIRST * masks)), masks, rounds + 1).round().astype(int)
    design = sample_masks("balanced", n_heads, int(ends[0]), density, seed)
    scores = measure(design)
    history: list[list[list[int]]] = []
    for end in ends[1:]:
        judged = [doubts(design, capability, sparsity) for capability in scores.T]
        doubt = np.max([doubt for _, doubt in judged], axis=0)
        history.append([chosen.tolist() for chosen, _ in judged])
        unchanged = history[-_SETTLED_ROUNDS:] == history[-1:] * _SETTLED_ROUNDS
        enough = len(design) >= _enough(n_heads, sparsity)
        if unchanged and enough and doubt.max() < _SETTLED_DOUBT:
            break
        new = next_masks(doubt, size, end - len(design), np.random.default_rng([seed, len(design)]))
        design, scores = np.vstack([design, new]), np.vstack([scores, measure(new)])
    chosen = tuple(best_subset(design, capability, sparsity) for capability in scores.T)
    return AdaptiveRun(design, scores, chosen, settled=len(design) < masks)


def doubts(masks: np.ndarray, scores: np.ndarray, sparsity: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the best subset, and how doubtful each head's place in or outside of it is.

    A head is in doubt by two counts, of which the greater holds. Its effect, given the others of the
    subset, may lie beyond the middle between the weakest effect inside and the strongest outside. And it
    may stand in for another: the probability that a head outside belongs in place of one inside, by their
    likelihoods.

    Parameters
    ----------
    masks : ndarray of bool, [n_masks, n_heads]
        True = knocked out.
    scores : ndarray, [n_masks]
        Lower = the knocked out heads were needed.
    sparsity : int
        Size of the subset.

    Returns
    -------
    chosen : ndarray of int, [sparsity]
        Flat indices, ascending.
    doubt : ndarray, [n_heads]
        From about 0 to a half.
    """
    chosen = best_subset(masks, scores, sparsity)
    evidence = _Evidence.of(masks, scores, chosen)
    places = np.arange(len(chosen))
    product, length = evidence.beside(places)
    swap = np.zeros(len(length))
    for place, head in enumerate(chosen):
        own_product, own_length = evidence.beside(np.delete(places, place))
        product[head], length[head] = own_product[head], own_length[head]
        odds = _swap_odds(own_product, own_length, head, evidence.noise)
        swap = np.maximum(swap, odds / (1 + odds))
    # a normal prior, wide beside the scores, has an answer for heads that no mask has knocked out
    precision = length / evidence.noise + 1 / (_PRIOR * scores.var())
    size, deviation = np.abs(product / evidence.noise / precision), precision**-0.5
    inside = np.isin(np.arange(len(size)), chosen)
    border = (size[inside].min() + size[~inside].max(initial=0)) / 2
    beyond = norm.cdf(np.where(inside, border - size, size - border) / deviation)
    return chosen, np.clip(np.maximum(beyond, swap), _LEAST_DOUBT, 0.5)


def next_masks(doubt: np.ndarray, size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw masks that knock out the heads in doubt most often.

    For several capabilities, hand in the maximum of their doubts.

    Parameters
    ----------
    doubt : ndarray, [n_heads]
        As from :func:`doubts`.
    size : int
        Heads a mask, at most half of the heads.
    count : int
        Masks to draw.
    rng : Generator
        Where they come from.

    Returns
    -------
    ndarray of bool, [count, n_heads]
        True = knocked out.
    """
    probabilities = inclusion_probabilities(doubt**_POWER, size, uniform=0)
    drawn = [systematic_mask(probabilities, rng) for _ in range(count)]
    return np.array(drawn, dtype=bool).reshape(count, len(doubt))


def best_subset(masks: np.ndarray, scores: np.ndarray, sparsity: int) -> np.ndarray:
    """Return the heads of the best subset, flat indices in ascending order."""
    return np.flatnonzero(BestSubsetRecovery(sparsity).fit(masks, scores).coef_)


def found(masks: np.ndarray, scores: np.ndarray, sparsity: int) -> np.ndarray:
    """Return the heads of the best subset that chance does not explain.

    A head is found if the p-value of its effect, by a one-sided t-test given the others of the subset,
    stays below 1e-4 when multiplied by the number of all heads and by the sparsity (Bonferroni). The level
    is strict as the same masks chose the subset; ``benchmarks/planted.py`` measures how often it errs. None
    is found from fewer masks than ``3 * sparsity * log2(n_heads)``, which some subset fits whatever happens.

    Parameters
    ----------
    masks : ndarray of bool, [n_masks, n_heads]
        True = knocked out.
    scores : ndarray, [n_masks]
        Lower = the knocked out heads were needed.
    sparsity : int
        Size of the subset.

    Returns
    -------
    ndarray of int
        Flat indices, ascending.
    """
    n_masks, n_heads = masks.shape
    chosen = best_subset(masks, scores, sparsity)
    if n_masks < _enough(n_heads, sparsity):
        return chosen[:0]
    evidence = _Evidence.of(masks, scores, chosen)
    variances = evidence.noise * np.linalg.inv(evidence.chosen_rows[:, chosen]).diagonal()
    p_values = t.cdf(evidence.effects / np.sqrt(variances), n_masks - len(chosen) - 1)
    return chosen[p_values * n_heads * sparsity < _FOUND]


def _enough(n_heads: int, sparsity: int) -> float:
    return _ENOUGH * sparsity * np.log2(n_heads)


@dataclass(frozen=True)
class _Evidence:
    """What centred masks and scores say of heads: products with the scores and squared lengths, [n_heads]."""

    chosen: np.ndarray
    product: np.ndarray
    length: np.ndarray
    chosen_rows: np.ndarray  # [n_chosen, n_heads], products of the chosen heads' columns with all
    effects: np.ndarray  # [n_chosen], by least squares
    noise: float  # variance of what is left of the scores

    @classmethod
    def of(cls, masks: np.ndarray, scores: np.ndarray, chosen: np.ndarray) -> Self:
        columns, heights = masks - masks.mean(axis=0), scores - scores.mean()
        rows, product = columns[:, chosen].T @ columns, columns.T @ heights
        effects = np.linalg.solve(rows[:, chosen], product[chosen])
        left = heights @ heights - product[chosen] @ effects
        # a perfect fit would leave no noise to judge by
        noise = max(left / max(1, len(scores) - len(chosen) - 1), _LEAST_NOISE * scores.var())
        return cls(chosen, product, (columns**2).sum(axis=0), rows, effects, float(noise))

    def beside(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return products and lengths of what the chosen heads at some places leave of every column."""
        heads, rows = self.chosen[places], self.chosen_rows[places]
        weights = np.linalg.solve(rows[:, heads], rows)
        length = self.length - (weights * rows).sum(axis=0)
        spanned = length < _SPANNED * self.length.max()
        product = self.product - self.product[heads] @ weights
        return np.where(spanned, 0, product), np.where(spanned, 0, length)


def _swap_odds(product: np.ndarray, length: np.ndarray, head: int, noise: float) -> np.ndarray:
    """Return the odds that each head belongs in a chosen head's place, and its own that any does."""
    gain = np.where(product * product[head] > 0, product**2, 0) / np.where(length > 0, length, 1)
    odds = np.exp(np.minimum(0, (gain - gain[head]) / (2 * noise)))
    odds[length == 0] = odds[head] = 0
    odds[head] = odds.max()
    return odds

"""Pairs of heads whose joint knock-out does more, or less, than both knock-outs add up to."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from caploc.errors import CaplocError

LEAST_TOGETHER = 3


def pair_interactions(masks: np.ndarray, scores: np.ndarray, candidates: Sequence[int]) -> pd.DataFrame:
    """Estimate what knocking out two heads does beyond the sum of both effects, for all pairs of candidates.

    For each pair (a, b), by least squares over the masks,
    ``score = c + sum of the knocked-out candidates' effects + excess * (a and b both knocked out)``.

    How to read it: a negative excess well beyond its noise marks backup heads, either of which suffices, so
    that neither matters much alone (`additive` near 0, `joint` clearly negative). A positive excess marks
    heads of one chain: with either gone, the other has nothing left to lose. Near 0, the two are
    independent, and the linear estimators of this package tell all. Many pairs are looked at: among 45,
    one reaches ``|z| > 3.3`` by chance in 1 of 20 analyses. A strong pair lends some of its excess to pairs
    that share a head with it: believe the strongest first. NaN is no verdict: the design knocks these two
    out together in fewer than 3 masks, or never lets one of them be seen without the other.

    Parameters
    ----------
    masks : ndarray of bool, [n_masks, n_heads]
        True = knocked out.
    scores : ndarray, [n_masks]
        The score of each mask.
    candidates : sequence of int
        Flat indices of the leading heads. Effects of all other heads count as noise, so leave none out that
        matters; but a backup has little effect alone, and may rank low.

    Returns
    -------
    DataFrame
        ``head_a, head_b, together, additive, joint, excess, stderr, z``, a pair a row, the most negative z
        first, NaN last. ``together``: masks that knock out both. ``additive``: the sum of both effects.
        ``joint``: the effect of knocking out both, ``additive + excess``. ``z``: ``excess / stderr``.

    Raises
    ------
    CaplocError
        If there are too few masks for so many candidates.
    """
    X = np.asarray(masks, dtype=float)[:, list(candidates)]
    y = np.asarray(scores, dtype=float)
    n_masks, n_candidates = X.shape
    degrees = n_masks - n_candidates - 2
    if degrees < 1:
        raise CaplocError(
            f"{n_masks} masks cannot tell pairs among {n_candidates} heads; "
            f"raise design.masks to at least {n_candidates + 3}, or take fewer candidates"
        )
    pairs = np.array(list(combinations(range(n_candidates), 2)), dtype=int).reshape(-1, 2)
    products = X[:, pairs[:, 0]] * X[:, pairs[:, 1]]
    together = products.sum(0)

    # Frisch-Waugh-Lovell: each product is regressed on the main effects once, not each pair's model anew.
    mains = np.column_stack([np.ones(n_masks), X])
    explained = np.linalg.lstsq(mains, np.column_stack([y, products]), rcond=None)[0]
    left = np.column_stack([y, products]) - mains @ explained
    residual, left = left[:, 0], left[:, 1:]
    squares = (left**2).sum(0)
    told = (together >= LEAST_TOGETHER) & (squares > 1e-9 * n_masks)
    squares = np.where(told, squares, np.nan)
    excess = left.T @ residual / squares
    stderr = np.sqrt((residual @ residual - excess**2 * squares) / degrees / squares)

    effects = explained[1:, [0]] - explained[1:, 1:] * excess
    each = np.arange(len(pairs))
    additive = effects[pairs[:, 0], each] + effects[pairs[:, 1], each]
    heads = np.asarray(candidates, dtype=int)[pairs]
    table = pd.DataFrame(
        {
            "head_a": heads[:, 0],
            "head_b": heads[:, 1],
            "together": together.astype(int),
            "additive": additive,
            "joint": additive + excess,
            "excess": excess,
            "stderr": stderr,
            "z": excess / stderr,
        }
    )
    return table.sort_values("z", kind="stable", ignore_index=True)

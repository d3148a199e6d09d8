"""Which heads each mask knocks out: the measurement matrix of compressed sensing.

Every design is prefix-stable: mask i depends on the seed, the scheme, the density and, for balanced
designs, on the masks before it, but never on how many masks there are.
"""

import numpy as np
import pandas as pd


def sample_masks(scheme: str, n_heads: int, n_masks: int, density: float, seed: int) -> np.ndarray:
    """Sample a design.

    Parameters
    ----------
    scheme : {'bernoulli', 'balanced'}
        ``bernoulli`` knocks each head out independently; ``balanced`` (the paper's stratified
        sampling, arXiv 2603.03335) takes in each mask the heads knocked out least so far, ties at random.
    n_heads, n_masks : int
        Columns and rows.
    density : float
        Share of the heads that a mask knocks out, at least one head.
    seed : int
        The same seed gives the same masks.

    Returns
    -------
    ndarray of bool, [n_masks, n_heads]
        True = knocked out.
    """
    sample = {"bernoulli": _bernoulli, "balanced": _balanced}[scheme]
    return sample(n_heads, n_masks, density, seed)


def never_knocked_out(masks: np.ndarray) -> int:
    """Return how many heads no mask knocks out: whatever they do, it cannot be found."""
    return int((~masks.any(axis=0)).sum())


def design_table(masks: np.ndarray) -> pd.DataFrame:
    """Return a design as a table: ``mask_id`` and ``heads``, the list of flat indices knocked out."""
    return pd.DataFrame(
        {"mask_id": np.arange(len(masks), dtype=np.int32), "heads": [np.flatnonzero(mask) for mask in masks]}
    )


def design_heads(table: pd.DataFrame) -> dict[int, tuple[int, ...]]:
    """Return the flat indices that each mask knocks out, by ``mask_id``."""
    return {int(i): tuple(heads.tolist()) for i, heads in zip(table["mask_id"], table["heads"], strict=True)}


def design_masks(table: pd.DataFrame, n_heads: int) -> np.ndarray:
    """Return a table's masks as an array of bool, [n_masks, n_heads]."""
    masks = np.zeros((len(table), n_heads), dtype=bool)
    for row, heads in enumerate(table["heads"]):
        masks[row, heads] = True
    return masks


def _bernoulli(n_heads: int, n_masks: int, density: float, seed: int) -> np.ndarray:
    masks = np.zeros((n_masks, n_heads), dtype=bool)
    for i in range(n_masks):
        rng = np.random.default_rng([seed, i])
        while not masks[i].any():  # an empty mask would only repeat the baseline
            masks[i] = rng.random(n_heads) < density
    return masks


def _balanced(n_heads: int, n_masks: int, density: float, seed: int) -> np.ndarray:
    masks = np.zeros((n_masks, n_heads), dtype=bool)
    times = np.zeros(n_heads, dtype=int)
    size = max(1, round(density * n_heads))
    for i in range(n_masks):
        ties = np.random.default_rng([seed, i]).random(n_heads)
        masks[i, np.lexsort((ties, times))[:size]] = True
        times += masks[i]
    return masks

"""Which heads each mask knocks out: the measurement matrix of compressed sensing.

Every design is prefix-stable: mask i depends on the seed, the scheme, the density and, for balanced
designs, on the masks before it, but never on how many masks there are.
"""

import numpy as np
import pandas as pd

from caploc.errors import CaplocError
from caploc.heads import HeadGrid

_MOST = 0.5  # of the masks may knock one head out: beyond, its column tells less again
_UNIFORM = 0.25  # of a weighted design ignores the weights: heads of weight 0 may matter


def sample_masks(
    scheme: str,
    heads: HeadGrid | int,
    n_masks: int,
    density: float,
    seed: int,
    *,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Sample a design.

    Parameters
    ----------
    scheme : {'bernoulli', 'balanced', 'layer_balanced', 'single', 'weighted'}
        ``bernoulli`` knocks each head out independently; ``balanced`` (the paper's stratified
        sampling, arXiv 2603.03335) takes in each mask the heads knocked out least so far, ties at random;
        ``layer_balanced`` also spreads every mask over the layers, by their number of heads; ``single``
        is the exhaustive sweep, head i alone in mask i; ``weighted`` knocks out more often the heads that
        weigh more, with :func:`inclusion_probabilities`.
    heads : HeadGrid or int
        The columns; a number is one layer of so many heads.
    n_masks : int
        Rows.
    density : float
        Share of the heads that a mask knocks out, at least one head; ``single`` has its own.
    seed : int
        The same seed gives the same masks.
    weights : ndarray, [n_heads], optional
        How likely each head is to matter, up to a factor; for ``weighted`` only.

    Returns
    -------
    ndarray of bool, [n_masks, n_heads]
        True = knocked out.

    Raises
    ------
    CaplocError
        If ``single`` has fewer heads than masks, or ``weighted`` knocks out more than half of the heads.
    """
    grid = HeadGrid((heads,)) if isinstance(heads, int) else heads
    n_heads = len(grid)
    size = max(1, round(density * n_heads))
    match scheme:
        case "bernoulli":
            return _bernoulli(n_heads, n_masks, density, seed)
        case "balanced":
            return _balanced(n_heads, n_masks, size, seed)
        case "layer_balanced":
            return _layer_balanced(grid, n_masks, size, seed)
        case "single":
            return _single(n_heads, n_masks)
        case "weighted" if weights is not None:
            return _weighted(inclusion_probabilities(weights, size), n_masks, seed)
    raise ValueError(f"{scheme} is no scheme, or lacks its weights")


def inclusion_probabilities(weights: np.ndarray, size: int, *, uniform: float = _UNIFORM) -> np.ndarray:
    """Return how probably each mask of a weighted design knocks each head out.

    Parameters
    ----------
    weights : ndarray, [n_heads]
        At least 0, not all of them 0.
    size : int
        Heads a mask.
    uniform : float
        Share of the knockouts that goes to all heads alike.

    Returns
    -------
    ndarray, [n_heads]
        Proportional to the mixture, but at most a half; their sum is `size`.

    Raises
    ------
    CaplocError
        If `size` is more than half of the heads.
    """
    if size > _MOST * len(weights):
        raise CaplocError(
            f"{size} of {len(weights)} heads a mask are more than half of them; lower design.density"
        )
    mixture = (1 - uniform) * weights / weights.sum() + uniform / len(weights)
    probabilities = mixture * size
    while (probabilities > _MOST).any():
        capped = probabilities >= _MOST
        left = size - _MOST * capped.sum()
        probabilities[capped] = _MOST
        probabilities[~capped] = mixture[~capped] * left / mixture[~capped].sum()
    return probabilities


def likely_to_matter(gradients: pd.DataFrame) -> np.ndarray:
    """Return weights for a weighted design, [n_heads]: how strongly gradients move any capability's prompts.

    Parameters
    ----------
    gradients : DataFrame
        ``capability, prompt_id, gradient``; see :func:`caploc.gradients.gradients_table`.
    """
    sizes = [
        np.sqrt((np.stack(part.tolist()) ** 2).mean(axis=0))
        for _, part in gradients.groupby("capability", sort=False)["gradient"]
    ]
    telling = [size / size.sum() for size in sizes if size.any()]
    return np.mean(telling, axis=0) if telling else np.ones_like(sizes[0])


def systematic_mask(probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a mask that knocks every head out with its own probability, and always as many heads.

    Systematic sampling in random order: the probabilities are laid end to end, and the heads taken on
    which equidistant points fall.

    Parameters
    ----------
    probabilities : ndarray, [n_heads]
        At most 1; their sum is the number of heads to knock out.
    rng : Generator
        Where the order and the first point come from.
    """
    order = rng.permutation(len(probabilities))
    points = np.arange(round(probabilities.sum())) + rng.random()
    ends = probabilities[order].cumsum()
    mask = np.zeros(len(probabilities), dtype=bool)
    # rounding may leave the last end a little below the last point
    mask[order[np.searchsorted(ends[:-1], points, side="right")]] = True
    return mask


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


def _balanced(n_heads: int, n_masks: int, size: int, seed: int) -> np.ndarray:
    masks = np.zeros((n_masks, n_heads), dtype=bool)
    times = np.zeros(n_heads, dtype=int)
    for i in range(n_masks):
        ties = np.random.default_rng([seed, i]).random(n_heads)
        masks[i, np.lexsort((ties, times))[:size]] = True
        times += masks[i]
    return masks


def _layer_balanced(grid: HeadGrid, n_masks: int, size: int, seed: int) -> np.ndarray:
    n_heads = len(grid)
    width = np.repeat(grid.heads_per_layer, grid.heads_per_layer)  # [n_heads], of each head's layer
    layer = np.repeat(np.arange(len(grid.layers)), grid.heads_per_layer)
    first = np.array([heads.start for heads in grid.slices()])
    share, rest = np.divmod(size * width, n_heads)  # of each mask belongs to the head's layer
    masks = np.zeros((n_masks, n_heads), dtype=bool)
    times = np.zeros(n_heads, dtype=int)
    for i in range(n_masks):
        ties = np.random.default_rng([seed, i]).random(n_heads)
        rank = np.empty(n_heads, dtype=int)  # in the layer: 0 is the head knocked out least so far
        rank[np.lexsort((ties, times, layer))] = np.arange(n_heads) - first[layer]
        # every layer has its whole share; of those with a fraction left, the ones furthest behind get more
        behind = (i + 1) * size * width - n_heads * (np.add.reduceat(times, first)[layer] + share)
        turn = np.where(rank < share, 0, np.where((rank == share) & (rest > 0), 1, 2))
        masks[i, np.lexsort((ties, -behind, turn))[:size]] = True
        times += masks[i]
    return masks


def _single(n_heads: int, n_masks: int) -> np.ndarray:
    if n_masks > n_heads:
        raise CaplocError(
            f"{n_masks} masks of one head each are more than the {n_heads} heads; lower design.masks"
        )
    return np.eye(n_masks, n_heads, dtype=bool)


def _weighted(probabilities: np.ndarray, n_masks: int, seed: int) -> np.ndarray:
    masks = [systematic_mask(probabilities, np.random.default_rng([seed, i])) for i in range(n_masks)]
    return np.array(masks, dtype=bool).reshape(n_masks, len(probabilities))

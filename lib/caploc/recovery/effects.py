"""The effect of every head on every capability, from a design and its measurements."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from caploc.errors import CaplocError
from caploc.heads import HeadGrid


def mask_scores(measurements: pd.DataFrame, score: str) -> np.ndarray:
    """Return each mask's mean score over its valid prompts, in the order of ``mask_id``, [n_masks].

    Parameters
    ----------
    measurements : DataFrame
        ``mask_id, prompt_id, logprob, correct, valid``.
    score : {'logprob', 'accuracy'}
        ``logprob``: mean natural log-probability of the answers. ``accuracy``: share of correct answers;
        a control, which has none, keeps its log-probability.

    Raises
    ------
    CaplocError
        If a mask has no valid prompt.
    """
    valid = measurements[measurements["valid"]]
    lost = sorted(set(measurements["mask_id"]) - set(valid["mask_id"]))
    if lost:
        raise CaplocError(
            f"no prompt has finite scores under mask {lost[0]}; is dtype too narrow for this model?"
        )
    column = "correct" if score == "accuracy" and valid["correct"].notna().all() else "logprob"
    return valid[column].astype(float).groupby(valid["mask_id"]).mean().to_numpy()


def estimate_effects(
    masks: np.ndarray,
    scores: Mapping[str, np.ndarray],
    grid: HeadGrid,
    estimator: Any,
    *,
    bootstrap: int,
    seed: int,
) -> pd.DataFrame:
    """Estimate every head's effect on every capability.

    Parameters
    ----------
    masks : ndarray of bool, [n_masks, n_heads]
        True = knocked out.
    scores : mapping of str to ndarray, [n_masks]
        The mean score of each mask, by capability.
    grid : HeadGrid
        The model's heads.
    estimator
        An unfitted estimator of :mod:`caploc.recovery`.
    bootstrap : int
        Resamples of the masks behind each standard error.
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    DataFrame
        ``capability, layer, head, effect, stderr, standardized``, every head of every capability.

    Raises
    ------
    CaplocError
        If a capability's scores allow no fit; the message names the capability.
    """
    parts = []
    for capability, y in scores.items():
        try:
            fitted = _fit(estimator, masks, y)
        except CaplocError as error:
            raise CaplocError(f"{capability}: {error}") from error
        part = pd.DataFrame(grid.heads, columns=["layer", "head"])
        part.insert(0, "capability", capability)
        part["effect"] = fitted.coef_
        part["stderr"] = bootstrap_stderr(estimator, masks, y, bootstrap, seed)
        part["standardized"] = fitted.standardized_
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def bootstrap_stderr(
    estimator: Any, masks: np.ndarray, scores: np.ndarray, resamples: int, seed: int
) -> np.ndarray:
    """Return the standard error of each coefficient over resamples of the masks, [n_heads].

    A resample that allows no fit, its scores being all alike, says that no head has an effect.
    """
    rng = np.random.default_rng(seed)
    n = len(scores)
    draws = (rng.integers(n, size=n) for _ in range(resamples))
    return np.std([_coefficients(estimator, masks[draw], scores[draw]) for draw in draws], axis=0, ddof=1)


def _coefficients(estimator: Any, masks: np.ndarray, scores: np.ndarray) -> np.ndarray:
    try:
        return _fit(estimator, masks, scores).coef_
    except CaplocError:
        return np.zeros(masks.shape[1])


def _fit(estimator: Any, masks: np.ndarray, scores: np.ndarray) -> Any:
    fresh: Any = clone(estimator)
    return fresh.fit(masks, scores)

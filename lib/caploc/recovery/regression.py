"""What every estimator of heads' effects shares: checks, standardization, weights and prediction."""

import warnings
from abc import ABC, abstractmethod
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from caploc.errors import CaplocError


class MaskRegression(RegressorMixin, BaseEstimator, ABC):
    """A linear model of the scores of masks: ``score = intercept + sum of the knocked-out heads' effects``.

    A subclass finds the effects; the base standardizes scores to mean 0 and variance 1, centres the masks'
    columns, and takes the effects back to the scores' unit.

    Attributes
    ----------
    coef_ : ndarray, [n_heads]
        Effect of each head, in the scores' unit; negative = the capability needs the head.
    standardized_ : ndarray, [n_heads]
        The same in standard deviations of the scores.
    score_std_ : float
        That standard deviation.
    intercept_ : float
        The expected score with no head knocked out.
    n_features_in_ : int
        The number of heads.
    """

    def fit(
        self,
        masks: np.ndarray,
        scores: np.ndarray,
        *,
        prior: np.ndarray | None = None,
        sample_weight: np.ndarray | None = None,
    ) -> Self:
        """Fit to masks and their scores.

        A mask that occurs repeatedly is one observation: its mean score, of its total weight. No subclass's
        cross-validation or subsample can then be flattered by a twin in its other part, as in a bootstrap.

        Parameters
        ----------
        masks : ndarray, [n_masks, n_heads]
            1 = knocked out.
        scores : ndarray, [n_masks]
            The score of each mask.
        prior : ndarray, [n_heads], optional
            A guess of the effects in any positive unit: signs and relative sizes count, and all zeros say
            nothing. Only `AdaptiveLassoRecovery` and `PriorRidgeRecovery` use it; the others ignore it.
        sample_weight : ndarray, [n_masks], optional
            How much each score counts, above 0: a mask of weight 2 equals that mask given twice.
            Best is one over the variance of the score's noise.

        Raises
        ------
        CaplocError
            If the scores do not vary, or the solver does not converge.
        """
        X = np.asarray(masks, dtype=float)
        y = np.asarray(scores, dtype=float)
        weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        guess = None if prior is None else np.asarray(prior, dtype=float)
        _check(X, y, weight, guess)
        mean = np.average(y, weights=weight)
        self.score_std_ = float(np.sqrt(np.average((y - mean) ** 2, weights=weight)))
        if not self.score_std_ > 1e-12 * max(1.0, np.abs(y).max()):
            raise CaplocError(
                f"every one of the {len(y)} masks has the same score, {y[0]:g}: there is nothing to recover; "
                "raise design.density, or choose another recovery.score"
            )
        z = (y - mean) / self.score_std_
        column_means = np.average(X, axis=0, weights=weight)
        X, z, weight = _merge_repeats(X, z, weight)
        row_scale = np.sqrt(weight / weight.mean())
        informative = guess if guess is not None and guess.any() else None
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            try:
                effects = self._solve((X - column_means) * row_scale[:, None], z * row_scale, informative)
            except ConvergenceWarning as warning:
                raise CaplocError(
                    f"{type(self).__name__} does not converge on {len(z)} masks of {X.shape[1]} heads; "
                    "raise design.masks, or choose another recovery.estimator"
                ) from warning
        self.standardized_ = effects
        self.coef_ = effects * self.score_std_
        self.intercept_ = float(mean - column_means @ self.coef_)
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, masks: np.ndarray) -> np.ndarray:
        """Return the expected scores under some masks."""
        check_is_fitted(self)
        return np.asarray(masks, dtype=float) @ self.coef_ + self.intercept_

    @abstractmethod
    def _solve(self, X: np.ndarray, z: np.ndarray, prior: np.ndarray | None) -> np.ndarray:
        """Return the effects that explain z by X without an intercept, [n_heads].

        Parameters
        ----------
        X : ndarray, [n_distinct_masks, n_heads]
            Centred masks, each row scaled by the square root of its weight (mean weight 1).
        z : ndarray, [n_distinct_masks]
            Standardized scores, scaled likewise.
        prior : ndarray, [n_heads], optional
            As in `fit`; never all zeros.
        """


def _check(X: np.ndarray, y: np.ndarray, weight: np.ndarray, prior: np.ndarray | None) -> None:
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"masks [n_masks, n_heads] and scores [n_masks], not {X.shape} and {y.shape}")
    if not np.isfinite(y).all():
        raise ValueError("scores must be finite")
    if not np.isfinite(X).all():
        raise ValueError("masks must be finite")
    if weight.shape != y.shape or not (np.isfinite(weight) & (weight > 0)).all():
        raise ValueError(f"sample_weight [n_masks = {len(y)}] must be finite and above 0")
    if prior is not None and (prior.shape != X.shape[1:] or not np.isfinite(prior).all()):
        raise ValueError(f"prior [n_heads = {X.shape[1]}] must be finite")


def _merge_repeats(
    X: np.ndarray, z: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct masks in order of first occurrence, their mean scores and total weights."""
    numbers: dict[bytes, int] = {}
    number = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in X])
    total = np.bincount(number, weights=weight)
    first = np.unique(number, return_index=True)[1]
    return X[first], np.bincount(number, weights=weight * z) / total, total

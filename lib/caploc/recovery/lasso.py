"""The paper's estimator: a Lasso of standardized scores on the masks."""

from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Lasso

from caploc.errors import CaplocError


class LassoRecovery(RegressorMixin, BaseEstimator):
    """Effects of knocked-out heads by L1-penalized least squares (arXiv 2603.03335).

    Minimizes ``||z - X b - c||^2 / (2 n) + alpha ||b||_1``, where z are the scores standardized to mean 0
    and variance 1, and X the masks (1 = knocked out).

    Parameters
    ----------
    alpha : float
        The penalty; the paper's is 0.01.
    relative : bool
        Take alpha as a fraction of ``alpha_max_``, the least penalty under which all effects are zero.

    Attributes
    ----------
    coef_ : ndarray, [n_heads]
        Effect of each head, in the scores' unit; negative = the capability needs the head.
    standardized_ : ndarray, [n_heads]
        The same in standard deviations of the scores.
    intercept_ : float
        The expected score with no head knocked out.
    alpha_max_ : float
        See `relative`.
    """

    def __init__(self, alpha: float = 0.01, *, relative: bool = False) -> None:
        self.alpha = alpha
        self.relative = relative

    def fit(self, masks: np.ndarray, scores: np.ndarray) -> Self:
        """Fit to masks [n_masks, n_heads] (1 = knocked out) and their scores [n_masks].

        Raises
        ------
        CaplocError
            If the scores do not vary, or alpha is so large that every effect would be zero.
        """
        X = np.asarray(masks, dtype=float)
        y = np.asarray(scores, dtype=float)
        if X.ndim != 2 or y.shape != X.shape[:1]:
            raise ValueError(f"masks [n_masks, n_heads] and scores [n_masks], not {X.shape} and {y.shape}")
        if not np.isfinite(y).all():
            raise ValueError("scores must be finite")
        scale = y.std()
        if not scale > 1e-12 * max(1.0, np.abs(y).max()):
            raise CaplocError(
                f"every one of the {len(y)} masks has the same score, {y[0]:g}: there is nothing to recover; "
                "raise design.density, or choose another recovery.score"
            )
        z = (y - y.mean()) / scale
        self.alpha_max_ = float(np.abs((X - X.mean(0)).T @ z).max() / len(z))
        alpha = self.alpha * self.alpha_max_ if self.relative else self.alpha
        if alpha >= self.alpha_max_:
            raise CaplocError(
                f"recovery.alpha {self.alpha:g} makes every effect zero: it must be below "
                f"{1.0 if self.relative else self.alpha_max_:g} here"
            )
        lasso = Lasso(alpha=alpha, max_iter=100_000, tol=1e-7).fit(X, z)
        self.standardized_ = lasso.coef_
        self.coef_ = lasso.coef_ * scale
        self.intercept_ = float(lasso.intercept_ * scale + y.mean())
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, masks: np.ndarray) -> np.ndarray:
        """Return the expected scores under some masks."""
        return np.asarray(masks, dtype=float) @ self.coef_ + self.intercept_

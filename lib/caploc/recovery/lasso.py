"""The paper's estimator: a Lasso of standardized scores on the masks."""

import numpy as np
from sklearn.linear_model import Lasso

from caploc.errors import CaplocError
from caploc.recovery.regression import MaskRegression


class LassoRecovery(MaskRegression):
    """Effects of knocked-out heads by L1-penalized least squares (arXiv 2603.03335).

    Minimizes ``||z - X b - c||^2 / (2 n) + alpha ||b||_1``, where z are the scores standardized to mean 0
    and variance 1, and X the masks (1 = knocked out).

    Parameters
    ----------
    alpha : float
        The penalty; the paper's is 0.01.
    relative : bool
        Take alpha as a fraction of ``alpha_max_``, the least penalty under which all effects are zero.
        If alpha is not below that, `fit` raises CaplocError.

    Attributes
    ----------
    alpha_max_ : float
        See `relative`.
    """

    def __init__(self, alpha: float = 0.01, *, relative: bool = False) -> None:
        self.alpha = alpha
        self.relative = relative

    def _solve(self, X: np.ndarray, z: np.ndarray, prior: np.ndarray | None) -> np.ndarray:  # noqa: ARG002
        self.alpha_max_ = least_zeroing_penalty(X, z)
        alpha = self.alpha * self.alpha_max_ if self.relative else self.alpha
        if alpha >= self.alpha_max_:
            raise CaplocError(
                f"recovery.alpha {self.alpha:g} makes every effect zero: it must be below "
                f"{1.0 if self.relative else self.alpha_max_:g} here"
            )
        lasso = Lasso(alpha=alpha, fit_intercept=False, max_iter=100_000, tol=1e-7)
        return lasso.fit(X, z).coef_


def least_zeroing_penalty(X: np.ndarray, z: np.ndarray) -> float:
    """Return alpha_max = ``max |X'z| / n``, the least Lasso penalty under which every effect is zero."""
    return float(np.abs(X.T @ z).max() / len(z))

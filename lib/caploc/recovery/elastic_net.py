"""The elastic net: a Lasso that shares an effect among heads knocked out together."""

import numpy as np
from sklearn.linear_model import ElasticNetCV
from sklearn.model_selection import KFold

from caploc.recovery.lasso import least_zeroing_penalty
from caploc.recovery.lasso_path import FOLDS, FRACTIONS
from caploc.recovery.regression import MaskRegression

L1_RATIOS = (0.5, 0.8, 0.95, 1.0)


class ElasticNetRecovery(MaskRegression):
    """Effects under both an L1 and an L2 penalty (Zou & Hastie 2005, JRSS B 67:301).

    Minimizes ``||z - X b||^2 / (2 n) + alpha (r ||b||_1 + (1 - r) ||b||^2 / 2)``; alpha and the ratio r, out
    of 0.5, 0.8, 0.95 and 1, have the least squared error in 5-fold cross-validation.

    Parameters
    ----------
    random_state : int
        Seed of the folds.

    Attributes
    ----------
    alpha_, l1_ratio_ : float
        The chosen alpha and r.
    """

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def _solve(self, X: np.ndarray, z: np.ndarray, prior: np.ndarray | None) -> np.ndarray:  # noqa: ARG002
        # scikit-learn tries the same alphas under every ratio: the first zeroes all effects under each.
        alphas = least_zeroing_penalty(X, z) * FRACTIONS / min(L1_RATIOS)
        folds = KFold(FOLDS, shuffle=True, random_state=self.random_state)
        fitted = ElasticNetCV(
            l1_ratio=L1_RATIOS,  # pyright: ignore[reportArgumentType] - inferred from the default
            alphas=alphas,  # pyright: ignore[reportArgumentType] - inferred from the default
            cv=folds,
            fit_intercept=False,
            max_iter=100_000,
            tol=1e-6,
        ).fit(X, z)
        self.alpha_ = float(fitted.alpha_)
        self.l1_ratio_ = float(fitted.l1_ratio_)
        return fitted.coef_

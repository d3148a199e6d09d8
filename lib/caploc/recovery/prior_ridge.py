"""Ridge regression that shrinks toward a guess of the effects."""

from typing import Any

import numpy as np
from sklearn.linear_model import RidgeCV

from caploc.recovery.regression import MaskRegression

RELATIVE_PENALTIES = np.geomspace(1e-3, 1e3, 31)

# How many times less the prior's scale is penalized than a deviation that explains as much: next to free.
SCALE_FREEDOM = 1e4


class PriorRidgeRecovery(MaskRegression):
    """Effects ``b = s prior + d``: the data fit the scale s freely, and deviations d under a penalty.

    Minimizes ``||z - X (s prior + d)||^2 + penalty ||d||^2``: ridge regression (Hoerl & Kennard 1970) with
    the mean of its Gaussian prior moved from 0 to s prior. The penalty has the least squared leave-one-out
    error. A prior that points the wrong way, s < 0, or predicts the left-out scores no better than none, is
    dismissed, and ordinary ridge remains, as without a prior. Every effect is non-zero: read their order,
    not their support.

    Attributes
    ----------
    prior_scale_ : float
        s, in standard deviations of the scores per unit of the prior; 0 where there is none to follow.
    """

    def _solve(self, X: np.ndarray, z: np.ndarray, prior: np.ndarray | None) -> np.ndarray:
        self.prior_scale_ = 0.0
        effects, error = fit_ridge(X, z)
        if prior is None:
            return effects
        guess = X @ prior
        unit = np.sqrt(SCALE_FREEDOM * mean_square(X) / (guess @ guess))
        extended, extended_error = fit_ridge(np.column_stack([X, unit * guess]), z, mean_square(X))
        scale = float(extended[-1] * unit)
        if scale <= 0 or extended_error >= error:
            return effects
        self.prior_scale_ = scale
        return scale * prior + extended[:-1]


def mean_square(X: np.ndarray) -> float:
    """Return the mean squared length of X's columns, the unit of a ridge penalty."""
    return float((X**2).sum() / X.shape[1])


def fit_ridge(X: np.ndarray, z: np.ndarray, unit: float | None = None) -> tuple[np.ndarray, float]:
    """Return ridge effects under the penalty of least mean squared leave-one-out error, and that error."""
    penalties = (mean_square(X) if unit is None else unit) * RELATIVE_PENALTIES
    fitted: Any = RidgeCV(alphas=penalties, fit_intercept=False).fit(X, z)
    return fitted.coef_, -float(fitted.best_score_)

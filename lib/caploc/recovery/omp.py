"""Orthogonal matching pursuit: one head after the other."""

import numpy as np
from sklearn.linear_model import OrthogonalMatchingPursuit, OrthogonalMatchingPursuitCV
from sklearn.model_selection import KFold

from caploc.recovery.lasso_path import FOLDS
from caploc.recovery.regression import MaskRegression


class OMPRecovery(MaskRegression):
    """Least squares on heads taken one by one (Pati, Rezaiifar & Krishnaprasad 1993).

    Each step takes the head whose column correlates most with the residual, ``argmax |x_j' r|``, and refits
    all heads taken so far. A head is never given back; `BestSubsetRecovery` does that.

    Parameters
    ----------
    sparsity : int, optional
        The number of heads; None chooses it by 5-fold cross-validation.
    random_state : int
        Seed of the folds.

    Attributes
    ----------
    n_nonzero_ : int
        The number of heads taken.
    """

    def __init__(self, sparsity: int | None = 5, random_state: int = 0) -> None:
        self.sparsity = sparsity
        self.random_state = random_state

    def _solve(self, X: np.ndarray, z: np.ndarray, prior: np.ndarray | None) -> np.ndarray:  # noqa: ARG002
        if self.sparsity is None:
            folds = KFold(FOLDS, shuffle=True, random_state=self.random_state)
            fitted = OrthogonalMatchingPursuitCV(cv=folds, fit_intercept=False).fit(X, z)
        else:
            fitted = OrthogonalMatchingPursuit(n_nonzero_coefs=self.sparsity, fit_intercept=False).fit(X, z)
        self.n_nonzero_ = int(np.count_nonzero(fitted.coef_))
        return fitted.coef_

"""The Lasso with its penalty chosen from the data."""

from typing import Literal

import numpy as np
from sklearn.linear_model import LassoCV, lasso_path
from sklearn.model_selection import KFold

from caploc.recovery.lasso import least_zeroing_penalty
from caploc.recovery.regression import MaskRegression

FOLDS = 5
FRACTIONS = np.geomspace(1, 0.01, 50)


class LassoPathRecovery(MaskRegression):
    """The Lasso of `LassoRecovery`, its penalty chosen along a path from alpha_max down to 1% of it.

    Finding nothing is a legitimate outcome: at alpha_max every effect is zero.

    Parameters
    ----------
    choose : {'cv', 'bic'}
        ``cv``: the least squared error in 5-fold cross-validation; predicts best, and lets in many small
        false effects. ``bic``: the least `bic`; fewer and safer heads.
    random_state : int
        Seed of the folds; ``bic`` has none.

    Attributes
    ----------
    alpha_ : float
        The chosen penalty, on standardized scores.
    alpha_fraction_ : float
        The same as a fraction of alpha_max.
    """

    def __init__(self, choose: Literal["cv", "bic"] = "cv", random_state: int = 0) -> None:
        self.choose = choose
        self.random_state = random_state

    def _solve(self, X: np.ndarray, z: np.ndarray, prior: np.ndarray | None) -> np.ndarray:  # noqa: ARG002
        alphas = least_zeroing_penalty(X, z) * FRACTIONS
        if self.choose == "bic":
            effects, chosen = best_by_bic(X, z, alphas)[1:]
        elif self.choose == "cv":
            folds = KFold(FOLDS, shuffle=True, random_state=self.random_state)
            fitted = LassoCV(
                alphas=alphas,  # pyright: ignore[reportArgumentType] - inferred from the default
                cv=folds,
                fit_intercept=False,
                max_iter=100_000,
                tol=1e-6,
            ).fit(X, z)
            effects, chosen = fitted.coef_, int(np.argmin(np.abs(alphas - fitted.alpha_)))
        else:
            raise ValueError(f"choose must be 'cv' or 'bic', not {self.choose!r}")
        self.alpha_ = float(alphas[chosen])
        self.alpha_fraction_ = float(FRACTIONS[chosen])
        return effects


def bic(rss: np.ndarray, n_effects: np.ndarray, n_masks: int, n_heads: int) -> np.ndarray:
    """Return the extended Bayesian information criterion (Chen & Chen 2008, Biometrika 95:759).

    ``n log(RSS / n) + k (log n + 2 g log p)`` with ``g = max(0, 1 - log n / (2 log p))``, the least g under
    which it finds the true heads as n grows. The plain criterion, g = 0, expects heads to be few beside
    masks, and else takes in chance effects.
    """
    gamma = max(0.0, 1 - np.log(n_masks) / (2 * np.log(n_heads)))
    return n_masks * np.log(rss / n_masks) + n_effects * (np.log(n_masks) + 2 * gamma * np.log(n_heads))


def best_by_bic(X: np.ndarray, z: np.ndarray, alphas: np.ndarray) -> tuple[float, np.ndarray, int]:
    """Return the least `bic` along a Lasso path, its effects, and its place in `alphas`.

    The number of non-zero effects is the Lasso's degrees of freedom (Zou, Hastie & Tibshirani 2007). Fits
    of more effects than half the masks are passed over: their residuals say nothing of the noise.
    """
    _, path, _ = lasso_path(
        X,
        z,
        alphas=alphas,  # pyright: ignore[reportArgumentType] - inferred from the default
        max_iter=100_000,
        tol=1e-6,
    )
    rss = ((z[:, None] - X @ path) ** 2).sum(0)
    n_effects = np.count_nonzero(path, axis=0)
    criterion = np.where(2 * n_effects <= len(z), bic(rss, n_effects, *X.shape), np.inf)
    best = int(criterion.argmin())
    return float(criterion[best]), path[:, best], best

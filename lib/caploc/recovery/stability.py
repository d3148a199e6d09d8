"""Stability selection: heads that the Lasso finds in most halves of the masks."""

import numpy as np
from sklearn.linear_model import Lasso

from caploc.recovery.lasso import least_zeroing_penalty
from caploc.recovery.regression import MaskRegression


class StabilityRecovery(MaskRegression):
    """Least squares on the heads that a Lasso keeps taking (Meinshausen & Buehlmann 2010, JRSS B 72:417).

    A Lasso is fitted to random halves of the masks, in complementary pairs (Shah & Samworth 2013, JRSS B
    75:55); a head is selected if its effect is non-zero in at least a share `threshold` of the halves.
    Each fit that takes q of p heads on average allows about ``q^2 / ((2 threshold - 1) p)`` false ones.

    Parameters
    ----------
    alpha_fraction : float
        The Lasso's penalty as a fraction of alpha_max, the least under which all effects are zero.
    threshold : float
        The share of halves, above 0.5.
    n_pairs : int
        The number of complementary pairs.
    random_state : int
        Seed of the halves.

    Attributes
    ----------
    selection_probability_ : ndarray, [n_heads]
        The share of halves in which each head has an effect.
    expected_false_ : float
        The bound above, at this fit's mean q. Far above 1, as where no head has an effect and alpha_max
        is but noise, the selection means nothing.
    """

    def __init__(
        self,
        alpha_fraction: float = 0.25,
        *,
        threshold: float = 0.75,
        n_pairs: int = 50,
        random_state: int = 0,
    ) -> None:
        self.alpha_fraction = alpha_fraction
        self.threshold = threshold
        self.n_pairs = n_pairs
        self.random_state = random_state

    def _solve(self, X: np.ndarray, z: np.ndarray, prior: np.ndarray | None) -> np.ndarray:  # noqa: ARG002
        rng = np.random.default_rng(self.random_state)
        alpha = self.alpha_fraction * least_zeroing_penalty(X, z)
        lasso = Lasso(alpha=alpha, fit_intercept=False, max_iter=100_000, tol=1e-6)
        half = len(z) // 2
        orders = [rng.permutation(len(z)) for _ in range(self.n_pairs)]
        halves = [rows for order in orders for rows in (order[:half], order[half : 2 * half])]
        taken = np.array([lasso.fit(X[rows], z[rows]).coef_ != 0 for rows in halves])
        self.selection_probability_ = taken.mean(0)
        self.expected_false_ = float(taken.sum(1).mean() ** 2 / ((2 * self.threshold - 1) * X.shape[1]))
        stable = self.selection_probability_ >= self.threshold
        effects = np.zeros(X.shape[1])
        effects[stable] = np.linalg.lstsq(X[:, stable], z, rcond=None)[0]
        return effects

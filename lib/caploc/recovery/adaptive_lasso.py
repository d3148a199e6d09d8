"""The Lasso with a lighter penalty on heads that a first guess holds to matter."""

import numpy as np

from caploc.recovery.lasso import least_zeroing_penalty
from caploc.recovery.lasso_path import FRACTIONS, best_by_bic
from caploc.recovery.prior_ridge import fit_ridge
from caploc.recovery.regression import MaskRegression

# A head that the guess passes over stays within reach of a strong effect on the scores.
LEAST_TRUST = 0.05


class AdaptiveLassoRecovery(MaskRegression):
    """Effects by a weighted L1 penalty (Zou 2006, JASA 101:1418).

    Minimizes ``||z - X b||^2 / (2 n) + alpha sum_j |b_j| / t_j^power``, where the trust t_j is the size of a
    first guess of head j's effect, between 0.05 and 1 = the largest. The guess is a ridge fit to the same
    scores, power 1, or the prior, signs aside, power 1/2 or 1, whichever fit has the least `bic`: a prior
    that the scores belie is dismissed. `bic` chooses alpha, too; cross-validation would be flattered by
    weights that have seen every score.

    Attributes
    ----------
    prior_power_ : float
        The power by which the prior counts; 0 = not at all, the guess is the ridge fit.
    alpha_fraction_ : float
        The chosen penalty as a fraction of the least that makes every effect zero.
    """

    def _solve(self, X: np.ndarray, z: np.ndarray, prior: np.ndarray | None) -> np.ndarray:
        trusts = {0.0: _trust(fit_ridge(X, z)[0])}
        if prior is not None:
            trusts |= {power: _trust(prior) ** power for power in (0.5, 1.0)}
        fits = {power: _fit_weighted(X, z, trust) for power, trust in trusts.items()}
        self.prior_power_ = min(fits, key=lambda power: fits[power][0])
        _, effects, self.alpha_fraction_ = fits[self.prior_power_]
        return effects


def _trust(guess: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(guess) / np.abs(guess).max(), LEAST_TRUST)


def _fit_weighted(X: np.ndarray, z: np.ndarray, trust: np.ndarray) -> tuple[float, np.ndarray, float]:
    """Return the least criterion, its effects, and its penalty as a fraction of alpha_max."""
    alphas = least_zeroing_penalty(X * trust, z) * FRACTIONS
    criterion, effects, chosen = best_by_bic(X * trust, z, alphas)
    return criterion, effects * trust, float(FRACTIONS[chosen])

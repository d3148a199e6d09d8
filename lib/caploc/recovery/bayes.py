"""The effect of every head on every prompt, by a Gaussian model that starts from gradients."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import minimize
from sklearn.base import BaseEstimator

_FLOORS = (0.03, 0.1, 0.3, 1.0)
_POWERS = (0.75, 1.0, 1.25, 1.5)
_SHAPE_MASKS = 256  # enough to tell the shape, few enough to try them all
_LEAST_CURVATURE = 0.1
_STEP = 1e-2


@dataclass(frozen=True)
class Spread:
    """What the model takes for granted, estimated from the masks by empirical Bayes.

    Parameters
    ----------
    trust : float
        The factor s by which gradients count; near 1 where heads act linearly.
    floor, power : float
        Shape of the prior: a head of gradient g may differ from it by ``rms * (floor + |g| / rms) ** power``.
    shared, own : float
        Standard deviation of what all prompts share of that difference, and of what is each prompt's own.
    mask_noise, noise : float
        Standard deviation of what a mask does to all prompts beyond the sum of its heads, and of the rest.
    """

    trust: float
    floor: float
    power: float
    shared: float
    own: float
    mask_noise: float
    noise: float


class BayesianRecovery(BaseEstimator):
    """Effects of knocked-out heads on every prompt, shrunk toward a guess of them.

    The change of prompt i's margin under mask j is modelled as ``sum_h X[j, h] E[i, h] + a[j] + e[i, j]``,
    with effects ``E[i, h] = s P[i, h] + d[h] + r[i, h]``: P is the guess (minus the gradient of the margin by
    the gate), d and r what the guess misses, normal with standard deviations in proportion to
    ``rms(P) * (floor + rms_i(P[i, h]) / rms(P)) ** power``; a and e are noise. The standard deviations,
    floor, power and s maximize the marginal likelihood. As all prompts see the same masks, the covariance is
    a Kronecker product, and one eigendecomposition of an [n_masks, n_masks] matrix yields everything.

    Parameters
    ----------
    spread : Spread, optional
        Taken instead of estimated.

    Attributes
    ----------
    effects_ : ndarray, [n_prompts, n_heads]
        Expected change of each prompt's margin when a head is knocked out; negative = it needs the head.
    coef_ : ndarray, [n_heads]
        Their mean over the prompts.
    spread_ : Spread
        See `spread`.
    """

    def __init__(self, spread: Spread | None = None) -> None:
        self.spread = spread

    def fit(self, masks: np.ndarray, scores: np.ndarray, prior: np.ndarray | None = None) -> Self:
        """Fit to masks [n_masks, n_heads] and changes of margins [n_masks, n_prompts].

        Parameters
        ----------
        masks : ndarray
            1 = knocked out.
        scores : ndarray
            Each prompt's margin under each mask, less its margin on the intact model.
        prior : ndarray, [n_prompts, n_heads], optional
            The guess P of the effects; 0 by default.
        """
        X, Y = np.asarray(masks, dtype=float), np.asarray(scores, dtype=float)
        if X.ndim != 2 or Y.ndim != 2 or len(X) != len(Y):
            raise ValueError(
                f"masks [n_masks, n_heads] and scores [n_masks, n_prompts], not {X.shape}, {Y.shape}"
            )
        if not np.isfinite(Y).all():
            raise ValueError("scores must be finite")
        guess = np.zeros((Y.shape[1], X.shape[1])) if prior is None else np.asarray(prior, dtype=float)
        self._posterior = _Posterior(
            X, Y, guess, _estimate(X, Y, guess) if self.spread is None else self.spread
        )
        self.spread_ = self._posterior.spread
        self.effects_ = self._posterior.mean()
        self.coef_ = self.effects_.mean(axis=0)
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, masks: np.ndarray) -> np.ndarray:
        """Return the expected change of each prompt's margin under some masks, [n_masks, n_prompts]."""
        return np.asarray(masks, dtype=float) @ self.effects_.T

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the effects, [n_prompts, n_heads], from their posterior.

        An estimated spread is drawn too, from the normal approximation about its maximum (Laplace's).
        """
        return self._posterior.draw(rng)


class _Estimated(NamedTuple):
    """The logarithms that were estimated (but the first, s itself), and how sure they are."""

    theta: np.ndarray  # trust, log shared, log own, log mask_noise, log noise
    covariance: np.ndarray
    floor: float
    power: float

    def spread(self, theta: np.ndarray) -> Spread:
        return Spread(float(theta[0]), self.floor, self.power, *np.exp(theta[1:]).tolist())


class _Likelihood:
    """The data along the eigenvectors of the masks' prior covariance, for a shape of the prior."""

    def __init__(self, X: np.ndarray, Y: np.ndarray, guess: np.ndarray, floor: float, power: float) -> None:
        self.floor, self.power = floor, power
        self.prior_variance = _prior_variance(guess, Y, floor, power)  # [n_heads], to be scaled
        values, self.vectors = np.linalg.eigh((X * self.prior_variance) @ X.T)
        self._values = np.maximum(values, 0)
        self._found = _split(self.vectors.T @ Y)
        self._guessed = _split(self.vectors.T @ (X @ guess.T))
        self._n_prompts = Y.shape[1]
        self._scale = np.sqrt((Y**2).mean()) or 1.0

    def variances(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the variance of the prompts' (scaled) mean and of their deviations, by eigenvector."""
        shared, own, mask_noise, noise = np.exp(2 * theta[1:])
        of_mean = self._values * (self._n_prompts * shared + own) + self._n_prompts * mask_noise + noise
        return of_mean, self._values * own + noise

    def loss(self, theta: np.ndarray) -> float:
        of_mean, of_deviation = self.variances(theta)
        mean, deviation = (
            found - theta[0] * guessed for found, guessed in zip(self._found, self._guessed, strict=True)
        )
        fit = (mean**2 / of_mean + np.log(of_mean)).sum() + ((deviation**2).sum(1) / of_deviation).sum()
        fit += (self._n_prompts - 1) * np.log(of_deviation).sum()
        # weak priors: they matter where masks say nothing, and keep variances off zero
        prior = ((theta[0] - 1) / 0.5) ** 2 + (theta[1:3] ** 2).sum() / 1.5**2
        prior += ((theta[3:] - np.log(self._scale)) ** 2).sum() / 3**2
        return 0.5 * float(fit + prior)

    def maximize(self) -> tuple[float, _Estimated]:
        """Return the greatest log marginal likelihood, and where it is."""
        start = np.log([np.e, 0.5, 0.5, 0.3 * self._scale, 0.7 * self._scale])
        found: Any = minimize(self.loss, start, method="L-BFGS-B")
        values, vectors = np.linalg.eigh(_curvature(self.loss, found.x))
        covariance = (vectors / np.maximum(values, _LEAST_CURVATURE)) @ vectors.T
        return -float(found.fun), _Estimated(found.x, covariance, self.floor, self.power)


def _estimate(X: np.ndarray, Y: np.ndarray, guess: np.ndarray) -> _Estimated:
    """Return the spread of the greatest marginal likelihood, its shape judged by the first masks."""
    few = slice(_SHAPE_MASKS)
    shapes = list(product(_FLOORS, _POWERS)) if guess.any() else [(1.0, 1.0)]
    tried = [_Likelihood(X[few], Y[few], guess, *shape).maximize() for shape in shapes]
    _, best = max(tried, key=lambda pair: pair[0])
    if len(X) <= _SHAPE_MASKS:
        return best
    return _Likelihood(X, Y, guess, best.floor, best.power).maximize()[1]


class _Posterior:
    """The effects given the data; prompts are split into their mean and the deviations from it."""

    def __init__(self, X: np.ndarray, Y: np.ndarray, guess: np.ndarray, known: Spread | _Estimated) -> None:
        self._X, self._Y, self._guess, self._guessed = X, Y, guess, X @ guess.T
        self._likelihood = _Likelihood(X, Y, guess, known.floor, known.power)
        if isinstance(known, Spread):
            logs = np.log([known.shared, known.own, known.mask_noise, known.noise])
            known = _Estimated(np.r_[known.trust, logs], np.zeros((5, 5)), known.floor, known.power)
        self._known = known
        self.spread = known.spread(known.theta)

    def mean(self) -> np.ndarray:
        theta = self._known.theta
        return theta[0] * self._guess + self._missed(theta, self._Y - theta[0] * self._guessed).T

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw by Matheron's rule: a draw from the prior, moved by what its own data would have missed."""
        theta = rng.multivariate_normal(self._known.theta, self._known.covariance, method="eigh")
        shared, own, mask_noise, noise = np.exp(theta[1:])
        n_masks, n_prompts = self._Y.shape
        sd = np.sqrt(self._likelihood.prior_variance)[:, None]
        missed = shared * sd * rng.normal(size=(len(sd), 1)) + own * sd * rng.normal(
            size=(len(sd), n_prompts)
        )
        error = mask_noise * rng.normal(size=(n_masks, 1)) + noise * rng.normal(size=(n_masks, n_prompts))
        left = self._Y - theta[0] * self._guessed - self._X @ missed - error
        return theta[0] * self._guess + (missed + self._missed(theta, left)).T

    def _missed(self, theta: np.ndarray, residual: np.ndarray) -> np.ndarray:
        """Return what the guess is expected to miss, [n_heads, n_prompts], by its residuals."""
        n_prompts = residual.shape[1]
        vectors, (of_mean, of_deviation) = self._likelihood.vectors, self._likelihood.variances(theta)
        mean, deviation = _split(vectors.T @ residual)
        shared, own = np.exp(2 * theta[1:3])
        weight = (n_prompts * shared + own) / np.sqrt(n_prompts)
        by_mask = vectors @ (weight * (mean / of_mean)[:, None] + own * deviation / of_deviation[:, None])
        return self._likelihood.prior_variance[:, None] * (self._X.T @ by_mask)


def _curvature(loss: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    """Return the matrix of second derivatives, by central differences."""
    steps = _STEP * np.eye(len(at))

    def second(a: np.ndarray, b: np.ndarray) -> float:
        corners = loss(at + a + b) - loss(at + a - b) - loss(at - a + b) + loss(at - a - b)
        return corners / (4 * _STEP**2)

    return np.array([[second(a, b) for b in steps] for a in steps])


def _prior_variance(guess: np.ndarray, Y: np.ndarray, floor: float, power: float) -> np.ndarray:
    size = np.sqrt((guess**2).mean(axis=0))
    rms = np.sqrt((guess**2).mean()) or np.sqrt((Y**2).mean()) or 1.0
    return (rms * (floor + size / rms) ** power) ** 2


def _split(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's mean, times the root of its length, and its deviations from the mean."""
    mean = rows.mean(axis=1)
    return mean * np.sqrt(rows.shape[1]), rows - mean[:, None]

"""A method of recovery, fitted to one capability: its response, and how else the data might have fallen."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
from scipy.special import expit
from sklearn.base import clone

from caploc.errors import CaplocError
from caploc.params import Recovery
from caploc.recovery.bayes import BayesianRecovery, Spread
from caploc.recovery.estimators import make_estimator
from caploc.recovery.observations import Observations
from caploc.recovery.regression import MaskRegression
from caploc.recovery.response import Link, Response


class Fit(Protocol):
    """A fitted method."""

    response: Response
    scores: np.ndarray
    """The mean score of each mask, [n_masks], that the response predicts."""

    @property
    def effects(self) -> np.ndarray:
        """Effect of each head, [n_heads], in the unit of the score; negative = the capability needs it."""
        ...

    def refit(self, masks: np.ndarray) -> Self:
        """Fit anew to some masks (indices) only."""
        ...

    def replicate(self, rng: np.random.Generator) -> tuple[np.ndarray, Response]:
        """Return effects and response as they might have been with other masks and prompts of their kind."""
        ...


Method = Callable[[np.ndarray, Observations], Fit]


def method(settings: Recovery, *, sparsity: int, seed: int) -> Method:
    """Return the method that params.yaml asks for; only those of masks' scores know all of the settings."""
    if settings.estimator == "bayes":
        return BayesFit
    estimator = make_estimator(
        settings.estimator,
        alpha=settings.alpha,
        alpha_relative=settings.alpha_relative,
        sparsity=sparsity,
        seed=seed,
    )
    return partial(MaskFit, estimator=estimator, score=settings.score)


def fit_all(masks: np.ndarray, observations: Mapping[str, Observations], fit_one: Method) -> dict[str, Fit]:
    """Fit a method to every capability's scores under masks [n_masks, n_heads], 1 = knocked out.

    Raises
    ------
    CaplocError
        If a capability's scores allow no fit; the message names the capability.
    """
    fits: dict[str, Fit] = {}
    for name, observed in observations.items():
        try:
            fits[name] = fit_one(masks, observed)
            _require_variation(fits[name].scores)
        except CaplocError as error:
            raise CaplocError(f"{name}: {error}") from error
    return fits


class BayesFit:
    """Effects on every prompt's margin (a control's: log-probability a token), by Gaussian posterior.

    Parameters
    ----------
    masks : ndarray, [n_masks, n_heads]
        1 = knocked out.
    observations : Observations
        The capability's scores under them, and gradients if there are any.
    spread : Spread, optional
        As :class:`caploc.recovery.bayes.BayesianRecovery` takes it.
    """

    def __init__(self, masks: np.ndarray, observations: Observations, spread: Spread | None = None) -> None:
        self._masks, self._observations = masks, observations
        intact, change = observations.changes()
        prior = None if observations.gradient is None else -observations.gradient
        self._model = BayesianRecovery(spread).fit(masks, change, prior)
        link = Link.RELATIVE if observations.is_control else Link.LOGISTIC
        self.scores = link.score((intact + change).T)
        self.response = Response(intact, self._model.effects_, link, float(self.scores.std()))

    @property
    def effects(self) -> np.ndarray:
        """Change of the expected share of correct prompts (a control's: of its probability a token)."""
        return -self.response.single_drops()

    def refit(self, masks: np.ndarray) -> Self:
        """Fit anew to some masks (indices) only, the spread as it was."""
        prompts = np.arange(len(self.response.intact))
        return type(self)(self._masks[masks], self._observations.take(masks, prompts), self._model.spread_)

    def replicate(self, rng: np.random.Generator) -> tuple[np.ndarray, Response]:
        """Draw effects from the posterior; the response has prompts drawn with replacement too."""
        drawn = self._model.sample(rng)
        intact, link, scale = self.response.intact, self.response.link, self.response.scale
        prompts = rng.integers(len(intact), size=len(intact))
        effects = -Response(intact, drawn, link, scale).single_drops()
        return effects, Response(intact[prompts], drawn[prompts], link, scale)


class MaskFit:
    """Effects on the mean score of a mask, by any estimator of masks' scores.

    Parameters
    ----------
    masks : ndarray, [n_masks, n_heads]
        1 = knocked out.
    observations : Observations
        The capability's scores under them.
    estimator : MaskRegression
        Unfitted; a clone of it is fitted.
    score : str
        What is regressed; see :func:`mask_scores`.
    """

    def __init__(
        self, masks: np.ndarray, observations: Observations, estimator: MaskRegression, score: str
    ) -> None:
        self._masks, self._observations = masks, observations
        self._estimator, self._score = estimator, score
        scores = mask_scores(observations, score)
        fresh: Any = clone(estimator)
        fitted = fresh.fit(masks, scores, prior=_guess(observations))
        scale = float(scores.std())
        self.effects = fitted.coef_
        self.scores = (scores - scores.mean()) / scale
        self.response = Response(np.zeros(1), fitted.standardized_[None], Link.LINEAR, scale)

    def refit(self, masks: np.ndarray) -> Self:
        """Fit anew to some masks (indices) only; if they allow no fit, no head has an effect."""
        return self._resampled(masks, np.arange(len(self._observations.tokens)))

    def replicate(self, rng: np.random.Generator) -> tuple[np.ndarray, Response]:
        """Fit to masks and prompts drawn with replacement; if they allow no fit, no head has an effect."""
        n_masks, n_prompts = self._observations.logprob.shape
        masks, prompts = rng.integers(n_masks, size=n_masks), rng.integers(n_prompts, size=n_prompts)
        fit = self._resampled(masks, prompts)
        return fit.effects, fit.response

    def _resampled(self, masks: np.ndarray, prompts: np.ndarray) -> Self:
        scored = ~np.isnan(self._observations.logprob[masks][:, prompts]).all(axis=1)
        taken = self._observations.take(masks[scored], prompts)
        try:
            return type(self)(self._masks[masks[scored]], taken, self._estimator, self._score)
        except CaplocError:
            none = copy(self)
            none.effects = np.zeros_like(self.effects)
            none.response = replace(self.response, effects=np.zeros_like(self.response.effects))
            return none


def _require_variation(scores: np.ndarray) -> None:
    if not np.ptp(scores) > 0:
        raise CaplocError(
            f"every one of the {len(scores)} masks has the same score, {scores[0]:g}: there is nothing to "
            "recover; raise design.density"
        )


def mask_scores(observations: Observations, score: str) -> np.ndarray:
    """Return each mask's score, [n_masks]: the mean over its valid prompts.

    Parameters
    ----------
    observations : Observations
        A capability's scores.
    score : {'logprob', 'accuracy', 'logit_accuracy', 'margin'}
        ``logprob``: change of the answers' log-probability from the intact model's, which takes the prompts'
        difficulty out; ``accuracy``: share of correct answers; ``logit_accuracy``: its log odds, half a
        prompt added to either side; ``margin``: expected share correct, ``1 / (1 + exp(-margin))``. A
        control has its log-probability only.
    """
    if score == "logprob" or observations.is_control:
        return np.nanmean(observations.logprob - observations.intact_logprob, axis=1)
    if score == "margin":
        return np.nanmean(expit(observations.margin), axis=1)
    if score == "accuracy":
        return np.nanmean(observations.correct, axis=1)
    right = np.nansum(observations.correct, axis=1)
    wrong = np.nansum(1 - observations.correct, axis=1)
    return np.log((right + 0.5) / (wrong + 0.5))


def _guess(observations: Observations) -> np.ndarray | None:
    """Return what gradients say of each head's effect on the mean score, [n_heads]."""
    if observations.gradient is None:
        return None
    share = expit(observations.changes()[0])
    return -(share * (1 - share)) @ observations.gradient

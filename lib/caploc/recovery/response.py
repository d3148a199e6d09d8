"""What a capability's score is expected to be under any set of heads."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.special import expit


class Link(StrEnum):
    """How a sum of effects becomes a score."""

    LOGISTIC = "logistic"
    """Effects on margins; the score is the expected share of correct prompts."""
    RELATIVE = "relative"
    """Effects on log-probability a token; the score is the probability a token, relative to the intact."""
    LINEAR = "linear"
    """Effects on the score itself, in standard deviations of the masks' scores."""

    def drop(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return the mean drop of the score, by sums with the prompts along the first axis."""
        if self is Link.LOGISTIC:  # shares near 1 would lose their difference to rounding
            return expit(-after).mean(axis=0) - expit(-before).mean(axis=0)
        return self.score(before) - self.score(after)

    def score(self, sums: np.ndarray) -> np.ndarray:
        """Return the mean score of the prompts, which lie along the first axis."""
        if self is Link.LOGISTIC:
            return expit(sums).mean(axis=0)
        if self is Link.RELATIVE:
            return np.exp(np.minimum(sums, 0)).mean(axis=0)
        return sums.mean(axis=0)


@dataclass(frozen=True)
class Response:
    """Effects of single heads, and the link that makes a prediction for a set of them.

    Parameters
    ----------
    intact : ndarray, [n]
        What each prompt (or the one mean prompt) has on the intact model, before the link.
    effects : ndarray, [n, n_heads]
        What knocking a head out adds to it.
    link : Link
        From there to the score.
    scale : float
        Standard deviation of the score over the masks.
    """

    intact: np.ndarray
    effects: np.ndarray
    link: Link
    scale: float

    def drop(self, heads: list[int]) -> float:
        """Return the expected drop of the score with some heads (flat indices) knocked out."""
        return float(self.link.drop(self.intact, self._without(heads)))

    def drops_with(self, heads: list[int], candidates: np.ndarray) -> np.ndarray:
        """Return the expected drops with some heads and each candidate knocked out, [n_candidates]."""
        shifted = self._without(heads)[:, None] + self.effects[:, candidates]
        return self.link.drop(self.intact, shifted)

    def _without(self, heads: list[int]) -> np.ndarray:
        return self.intact + self.effects[:, heads].sum(axis=1)

    def scores_under(self, masks: np.ndarray, heads: list[int]) -> np.ndarray:
        """Return the expected score under each mask, [n_masks], if only some heads had an effect."""
        return self.link.score(self.intact[:, None] + self.effects[:, heads] @ masks[:, heads].T)

    def single_drops(self) -> np.ndarray:
        """Return the expected drop with each head alone knocked out, [n_heads]."""
        return self.drops_with([], np.arange(self.effects.shape[1]))

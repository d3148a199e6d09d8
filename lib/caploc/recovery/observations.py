"""What was measured of a capability, as arrays of masks by prompts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd

from caploc.errors import CaplocError


@dataclass(frozen=True)
class Observations:
    """Scores of one capability's prompts under every mask, and on the intact model.

    Parameters
    ----------
    logprob, correct, margin : ndarray, [n_masks, n_prompts]
        As in :class:`caploc.scoring.Scores`; NaN where a score is not valid, and correct and margin
        everywhere for a control.
    intact_logprob, intact_margin : ndarray, [n_prompts]
        The same with no head knocked out.
    tokens : ndarray, [n_prompts]
        Length of each answer.
    gradient : ndarray, [n_prompts, n_heads], optional
        Derivative of each margin by each head's gate (a control's: of the log-probability a token).
    """

    logprob: np.ndarray
    correct: np.ndarray
    margin: np.ndarray
    intact_logprob: np.ndarray
    intact_margin: np.ndarray
    tokens: np.ndarray
    gradient: np.ndarray | None = None

    @classmethod
    def of(cls, measurements: pd.DataFrame, baseline: pd.DataFrame, gradients: pd.DataFrame) -> Self:
        """Arrange one capability's tables.

        Parameters
        ----------
        measurements : DataFrame
            A row a mask and prompt, as :func:`caploc.measurement.scores_table` has them.
        baseline : DataFrame
            A row a prompt, as :func:`caploc.baseline.baseline_table` has them.
        gradients : DataFrame
            A row a prompt, with the list ``gradient``; none if no gradients were taken.

        Raises
        ------
        CaplocError
            If a mask has no valid prompt.
        """
        columns = baseline["prompt_id"]
        valid = measurements["valid"].to_numpy(dtype=bool)
        shape = (-1, len(columns))
        lost = np.flatnonzero(~valid.reshape(shape).any(axis=1))
        if len(lost):
            raise CaplocError(
                f"no prompt has finite scores under mask {lost[0]}; is dtype too narrow for this model?"
            )
        logprob, correct, margin = (
            np.where(valid, measurements[name].to_numpy(dtype=float, na_value=np.nan), np.nan).reshape(shape)
            for name in ("logprob", "correct", "margin")
        )
        intact, ahead, tokens = (
            baseline[name].to_numpy(dtype=float) for name in ("logprob", "margin", "tokens")
        )
        gradient = np.stack(gradients["gradient"].tolist()) if len(gradients) else None
        return cls(logprob, correct, margin, intact, ahead, tokens, gradient)

    @property
    def is_control(self) -> bool:
        """Whether the capability knows no right or wrong."""
        return bool(np.isnan(self.correct).all())

    def take(self, masks: np.ndarray, prompts: np.ndarray) -> Self:
        """Return some masks and prompts only, each as often as it is named."""
        return type(self)(
            self.logprob[masks][:, prompts],
            self.correct[masks][:, prompts],
            self.margin[masks][:, prompts],
            self.intact_logprob[prompts],
            self.intact_margin[prompts],
            self.tokens[prompts],
            None if self.gradient is None else self.gradient[prompts],
        )

    def changes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each prompt's margin on the intact model, and its change under each mask.

        A control's margin is its log-probability a token, in relation to the intact model's, which is
        therefore 0. A score that is not valid counts as having changed like the mask's others.
        """
        if self.is_control:
            intact = np.zeros(len(self.tokens))
            change = (self.logprob - self.intact_logprob) / self.tokens
        else:
            intact, change = self.intact_margin, self.margin - self.intact_margin
        mean = np.nanmean(change, axis=1, keepdims=True)
        return intact, np.where(np.isnan(change), mean, change)


def observe(
    measurements: Mapping[str, pd.DataFrame], baseline: pd.DataFrame, gradients: pd.DataFrame
) -> dict[str, Observations]:
    """Arrange the tables of all capabilities, in the order of `measurements`.

    Raises
    ------
    CaplocError
        If a mask has no valid prompt; the message names the capability.
    """
    observations = {}
    for name, table in measurements.items():
        intact = baseline[(baseline["capability"] == name) & (baseline["split"] == "measure")]
        try:
            observations[name] = Observations.of(table, intact, gradients[gradients["capability"] == name])
        except CaplocError as error:
            raise CaplocError(f"{name}: {error}") from error
    return observations

"""What a design can tell before anything is measured, and whether its masks would destroy the model."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import expit

from caploc.designs import never_knocked_out


@dataclass(frozen=True)
class DesignDiagnostics:
    """What a design can tell of its heads.

    Attributes
    ----------
    least, median, most : float
        In how many masks a head is knocked out.
    never : int
        Heads that no mask knocks out: whatever they do, it cannot be found.
    coherence : float
        The largest absolute correlation of two heads' columns; at 1, no scores tell the two apart.
    heads_a_mask : float
        Mean over the masks.
    """

    least: int
    median: float
    most: int
    never: int
    coherence: float
    heads_a_mask: float


def diagnose(masks: np.ndarray) -> DesignDiagnostics:
    """Return the diagnostics of a design, [n_masks, n_heads]."""
    times = masks.sum(axis=0)
    columns = masks[:, (times > 0) & (times < len(masks))].astype(float)
    columns -= columns.mean(axis=0)
    columns /= np.linalg.norm(columns, axis=0)
    correlation = np.abs(columns.T @ columns)
    np.fill_diagonal(correlation, 0)
    return DesignDiagnostics(
        least=int(times.min()),
        median=float(np.median(times)),
        most=int(times.max()),
        never=never_knocked_out(masks),
        coherence=float(correlation.max(initial=0)),
        heads_a_mask=float(masks.sum(axis=1).mean()),
    )


def predicted_accuracy(masks: np.ndarray, margins: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Return the share of prompts that each mask is predicted to leave correct, [n_masks].

    To first order, a prompt's margin falls by the sum of its losses over the heads knocked out; the share
    is the mean of the margins' logistic function.

    Parameters
    ----------
    masks : ndarray of bool, [n_masks, n_heads]
        True = knocked out.
    margins : ndarray, [n_prompts]
        By how much the intact model is ahead with its answer, in nats; negative = wrong.
    losses : ndarray, [n_prompts, n_heads]
        What each head's knockout is predicted to take from each margin, in nats:
        :func:`caploc.gradients.margin_gradients`.
    """
    return _share_correct(margins, masks.astype(float) @ losses.T)


def advise_density(masks: np.ndarray, margins: np.ndarray, losses: np.ndarray) -> float | None:
    """Return the density to choose where most masks would destroy the capability; None where they do not.

    A mask destroys if it is predicted to leave less than half of the intact model's share of correct
    prompts: such scores are all near the floor, and tell no head from another.

    Parameters
    ----------
    masks, margins, losses : ndarray
        As for :func:`predicted_accuracy`.

    Returns
    -------
    float or None
        The density of the largest masks, in whole heads, that leave at least half of it in the median;
        one head's where none does.
    """
    lost = masks.astype(float) @ losses.T
    half = _share_correct(margins, np.zeros((1, len(margins))))[0] / 2
    size = round(masks.sum(axis=1).mean())
    for smaller in range(size, 0, -1):
        # a mask of fewer heads takes as much less, on average
        if np.median(_share_correct(margins, lost * (smaller / size))) >= half:
            return None if smaller == size else smaller / masks.shape[1]
    return 1 / masks.shape[1]


def _share_correct(margins: np.ndarray, lost: np.ndarray) -> np.ndarray:
    return expit(margins - lost).mean(axis=1)


def warnings(masks: np.ndarray, baseline: pd.DataFrame, gradients: pd.DataFrame) -> list[str]:
    """Return what is wrong with a design, in words, with the remedy.

    Parameters
    ----------
    masks : ndarray of bool, [n_masks, n_heads]
        True = knocked out.
    baseline : DataFrame
        As :func:`caploc.baseline.baseline_table` has it.
    gradients : DataFrame
        As :func:`caploc.gradients.gradients_table` has it; without rows nothing is predicted.
    """
    found = []
    if never := never_knocked_out(masks):
        found.append(
            f"{never} of {masks.shape[1]} heads are in no mask, which tells nothing; raise design.masks"
        )
    for name, part in gradients.groupby("capability", sort=False):
        intact = baseline[(baseline["capability"] == name) & (baseline["split"] == "measure")]
        if intact["margin"].notna().all():
            losses = np.stack(part["gradient"].tolist())
            if density := advise_density(masks, intact["margin"].to_numpy(), losses):
                found.append(
                    f"most masks are expected to destroy {name}, and tell its heads apart no more; "
                    f"lower design.density to {math.ceil(density * 1e5) / 1e5:g}"
                )
    return found

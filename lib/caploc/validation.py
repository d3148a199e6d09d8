"""The proof: chosen heads knocked out on prompts that recovery has never seen."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from caploc.capabilities.prompts import Capability, Metric
from caploc.errors import CaplocError
from caploc.heads import HeadGrid
from caploc.measurement import Evaluation, Measurements
from caploc.scoring import Scores


@dataclass(frozen=True)
class HeadSet:
    """Heads knocked out together.

    Parameters
    ----------
    name : str
        ``chosen``, ``target`` (ranked by target effect alone) or ``random-0``, ``random-1``, ...
    localized : str
        The capability that the heads belong to; empty for random sets.
    heads : tuple of int
        Flat indices, in rank order.
    complete : bool
        False for the first few heads of a longer list, scored on their own capability only.
    """

    name: str
    localized: str
    heads: tuple[int, ...]
    complete: bool = True


def head_sets(localization: dict[str, Any], grid: HeadGrid, *, random_sets: int, seed: int) -> list[HeadSet]:
    """Return all sets to validate: chosen ones with their leading subsets, target-only ones, random ones."""
    sets = []
    for capability, heads in localization["heads"].items():
        chosen, target = (tuple(grid.index(head) for head in heads[name]) for name in ("chosen", "target"))
        sets += [HeadSet("chosen", capability, chosen), HeadSet("target", capability, target)]
        sets += [HeadSet("chosen", capability, chosen[:k], complete=False) for k in range(1, len(chosen))]
    for number in range(random_sets):
        rng = np.random.default_rng([seed, number])
        heads = rng.choice(len(grid), localization["sparsity"], replace=False)
        sets.append(HeadSet(f"random-{number}", "", tuple(int(head) for head in heads)))
    return sets


def validate(
    sets: list[HeadSet],
    capabilities: Mapping[str, Capability],
    baseline: pd.DataFrame,
    measurements: Measurements,
    *,
    bootstrap: int,
    seed: int,
) -> pd.DataFrame:
    """Score every set of heads on the capabilities' ``validate`` prompts.

    Parameters
    ----------
    sets : list of HeadSet
        From :func:`head_sets`.
    capabilities : mapping of str to Capability
        Those of the experiment.
    baseline : DataFrame
        The baseline stage's table.
    measurements : Measurements
        Where scores come from.
    bootstrap : int
        Resamples of the prompts behind each interval.
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    DataFrame
        ``head_set, localized, k, capability, metric, n, baseline, score, drop, ci_low, ci_high``: score is
        the share of correct prompts (a control's: nats a token), and the interval is the drop's 95 %
        percentile interval, from a paired bootstrap over prompts.
    """
    pairs = list(_pairs(sets, capabilities))
    evaluation = {(s, c): Evaluation(s.heads, capabilities[c].splits["validate"]) for s, c in pairs}
    measurements.fill(evaluation.values(), "validate")
    intact = dict(iter(baseline[baseline["split"] == "validate"].groupby("capability")))
    rows = []
    for head_set, name in pairs:
        scores = measurements.scores(evaluation[head_set, name])
        figures = _compare(capabilities[name], intact[name], scores, bootstrap, seed)
        rows.append(
            {
                "head_set": head_set.name,
                "localized": head_set.localized,
                "k": len(head_set.heads),
                "capability": name,
                "metric": str(capabilities[name].metric),
                **figures,
            }
        )
    return pd.DataFrame(rows)


def _pairs(sets: list[HeadSet], capabilities: Mapping[str, Capability]) -> Iterator[tuple[HeadSet, str]]:
    for head_set in sets:
        for name in capabilities:
            if head_set.complete or name == head_set.localized:
                yield head_set, name


def paired_drop(
    metric: Metric, before: Scores, after: Scores, tokens: np.ndarray, *, bootstrap: int, seed: int
) -> dict[str, Any]:
    """Compare the scores of the same prompts before and after a knockout.

    Parameters
    ----------
    metric : Metric
        Decides what the score is: the share of correct prompts, or for a control nats a token.
    before, after : Scores
        A prompt that is not valid in both does not count.
    tokens : ndarray, [n]
        Length of each prompt's answer.
    bootstrap : int
        Resamples of the prompts.
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    dict
        ``n, baseline, score, drop, ci_low, ci_high``; the interval is the drop's 95 % percentile interval.

    Raises
    ------
    CaplocError
        If no prompt is valid.
    """
    valid = before.valid & after.valid
    n = int(valid.sum())
    if n == 0:
        raise CaplocError("no prompt has finite scores; try another dtype")
    if metric is Metric.LOGPROB:
        old, new, weight = before.logprob[valid], after.logprob[valid], tokens[valid].astype(float)
    else:
        old, new, weight = before.correct[valid], after.correct[valid], np.ones(n)
    draws = np.random.default_rng(seed).integers(n, size=(bootstrap, n))
    drops = (old - new)[draws].sum(axis=1) / weight[draws].sum(axis=1)
    low, high = np.quantile(drops, [0.025, 0.975])
    total = weight.sum()
    return {
        "n": n,
        "baseline": float(old.sum() / total),
        "score": float(new.sum() / total),
        "drop": float((old - new).sum() / total),
        "ci_low": float(low),
        "ci_high": float(high),
    }


def _compare(
    capability: Capability, baseline: pd.DataFrame, scores: Scores, bootstrap: int, seed: int
) -> dict[str, Any]:
    intact = Scores(
        baseline["logprob"].to_numpy(),
        baseline["correct"].to_numpy(dtype=float, na_value=np.nan),
        baseline["margin"].to_numpy(),
        baseline["valid"].to_numpy(dtype=bool),
    )
    tokens = baseline["tokens"].to_numpy()
    try:
        return paired_drop(capability.metric, intact, scores, tokens, bootstrap=bootstrap, seed=seed)
    except CaplocError as error:
        raise CaplocError(f"{capability.name}, validate: {error}") from error

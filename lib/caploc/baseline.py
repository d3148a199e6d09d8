"""The intact model's scores on every prompt, and whether there is anything to localize."""

from collections.abc import Mapping

import pandas as pd

from caploc.capabilities.prompts import Capability
from caploc.errors import CaplocError
from caploc.measurement import Evaluation, Measurements, as_verdicts


def baseline_table(capabilities: Mapping[str, Capability], measurements: Measurements) -> pd.DataFrame:
    """Score both splits of every capability on the intact model.

    Returns
    -------
    DataFrame
        A row a prompt: ``capability, split, prompt_id, prompt, answer``, ``tokens``, the length of the
        answer, and the :class:`caploc.scoring.Scores`, ``logprob, correct, margin, valid``.
    """
    sets = {(name, split): prompts for name, c in capabilities.items() for split, prompts in c.splits.items()}
    measurements.fill((Evaluation((), prompts) for prompts in sets.values()), "baseline")
    parts = []
    for (name, split), prompts in sets.items():
        scores = measurements.scores(Evaluation((), prompts))
        parts.append(
            pd.DataFrame(
                {
                    "capability": name,
                    "split": split,
                    "prompt_id": [prompt.id for prompt in prompts.prompts],
                    "prompt": [prompt.text for prompt in prompts.prompts],
                    "answer": [prompt.answer for prompt in prompts.prompts],
                    "tokens": measurements.scorer.encode(prompts).answer_tokens,
                    "logprob": scores.logprob,
                    "correct": as_verdicts(scores.correct),
                    "margin": scores.margin,
                    "valid": scores.valid,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def baseline_scores(baseline: pd.DataFrame) -> pd.DataFrame:
    """Return ``accuracy`` (share correct) and ``logprob`` (mean), by capability and split."""
    valid = baseline[baseline["valid"]]
    groups = valid.assign(correct=valid["correct"].astype("Float64")).groupby(
        ["capability", "split"], sort=False
    )
    return groups.agg(accuracy=("correct", "mean"), logprob=("logprob", "mean"))


def require_above_floor(baseline: pd.DataFrame, capabilities: Mapping[str, Capability], floor: float) -> None:
    """Check that the intact model has every capability.

    Raises
    ------
    CaplocError
        Naming the capabilities whose share of correct prompts, in either split, is no more than chance or
        the floor, and those with prompts that gave no finite score.
    """
    lost = baseline.loc[~baseline["valid"], "capability"].unique()
    if len(lost):
        raise CaplocError(
            f"the model gives no finite score on prompts of {', '.join(lost)}; "
            "try dtype: float32 in params.yaml"
        )
    least = baseline_scores(baseline)["accuracy"].groupby("capability", sort=False).min()
    faults = []
    for name, capability in capabilities.items():
        limit = max(capability.chance, floor)
        if not capability.is_control and least[name] <= limit:
            faults.append(f"{name} ({least[name]:.2f} of the prompts correct, floor {limit:.2f})")
    if faults:
        raise CaplocError(
            f"the model does not have {', '.join(faults)}: there is nothing to localize; "
            "remove it from capabilities in params.yaml, or choose another model"
        )

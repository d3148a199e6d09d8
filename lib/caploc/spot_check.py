"""One model, one capability, one set of heads: what knocking them out costs."""

from collections.abc import Sequence
from typing import Any

from caploc.capabilities.prompts import Capability, Metric
from caploc.scoring import Scorer, Scores
from caploc.validation import paired_drop


def spot_check(
    scorer: Scorer, capability: Capability, heads: Sequence[str], *, split: str, bootstrap: int, seed: int
) -> dict[str, Any]:
    """Score a capability's prompts on the intact model and with some heads knocked out.

    Returns
    -------
    dict
        ``capability, metric, split, heads, n, baseline, score, drop, ci_low, ci_high, logprob_baseline,
        logprob``. The scores are the share of correct prompts (a control's: nats a token), the interval is
        the drop's 95 % percentile interval from a paired bootstrap over prompts, and the log-probabilities
        are the answers', in nats a prompt.
    """
    prompts = capability.splits[split]
    by_position = dict(scorer.score_masks(prompts, [(), heads]))
    intact, knocked_out = by_position[0], by_position[1]
    both = intact.valid & knocked_out.valid
    if capability.metric is Metric.LOGPROB:
        weight = scorer.encode(prompts).answer_tokens[both].astype(float)
        figures = paired_drop(
            intact.logprob[both], knocked_out.logprob[both], weight, bootstrap=bootstrap, seed=seed
        )
    else:
        figures = paired_drop(
            intact.correct[both], knocked_out.correct[both], None, bootstrap=bootstrap, seed=seed
        )
    return {
        "capability": capability.name,
        "metric": str(capability.metric),
        "split": split,
        "heads": list(heads),
        **figures,
        "logprob_baseline": _mean(intact, both),
        "logprob": _mean(knocked_out, both),
    }


def _mean(scores: Scores, which: Any) -> float:
    return float(scores.logprob[which].mean())

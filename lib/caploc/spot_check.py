"""One model, one capability, one set of heads: what knocking them out costs."""

from collections.abc import Sequence
from typing import Any

from caploc.capabilities.prompts import Capability
from caploc.scoring import Scorer
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
    tokens = scorer.encode(prompts).answer_tokens
    figures = paired_drop(capability.metric, intact, knocked_out, tokens, bootstrap=bootstrap, seed=seed)
    both = intact.valid & knocked_out.valid
    return {
        "capability": capability.name,
        "metric": str(capability.metric),
        "split": split,
        "heads": list(heads),
        **figures,
        "logprob_baseline": float(intact.logprob[both].mean()),
        "logprob": float(knocked_out.logprob[both].mean()),
    }

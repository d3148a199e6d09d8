"""Prompts x knockouts -> scores."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caploc.capabilities.prompts import Metric, PromptSet
from caploc.early_layers import EarlyLayers
from caploc.encoding import Batch, EncodedPrompts, encode
from caploc.errors import CaplocError
from caploc.forwards import Forwards
from caploc.heads import HeadLike
from caploc.knockouts import knockout, mask_gates
from caploc.models.attention import head_grid
from caploc.replacements import Replacement, require_one_for_all

SCORING_VERSION = 3
"""Raised whenever the same prompts, model and mask would get another score."""

_WORTH_RECORDING = 4  # masks: keeping the intact model's early layers costs about as much as one
_CPU_TOKENS = 1024  # more a forward gain nothing on a CPU, and fewer masks a forward share more early layers
_LOGITS_AT_ONCE = 256  # rows of logits in full precision; a vocabulary has up to 262,144 columns


@dataclass(frozen=True)
class Scores:
    """Scores of a prompt set, one entry a prompt.

    Parameters
    ----------
    logprob : ndarray of float64, [n]
        Natural log-probability of the answer, summed over its tokens; NaN where not valid.
    correct : ndarray of float64, [n]
        1 or 0; NaN where not valid, or where the metric knows no right or wrong.
    margin : ndarray of float64, [n]
        How far the answer is ahead of its best rival, in nats; negative where it is behind. Exact answers:
        the least of its tokens' logits less the best other token's; choices: the log-probabilities'
        difference. NaN where `correct` is.
    valid : ndarray of bool, [n]
        False where the model's logits were not finite.
    """

    logprob: np.ndarray
    correct: np.ndarray
    margin: np.ndarray
    valid: np.ndarray


class Scorer:
    """Scores prompt sets on one model, intact or with heads knocked out.

    Parameters
    ----------
    model, tokenizer
        A transformers causal language model and its tokenizer.
    batch_tokens : int
        Tokens a forward may hold, padding included.
    share_masks, share_prefix : bool
        Whether several masks share a forward where `batch_tokens` allows it, and whether what all prompts
        of a set begin with is read once a mask; false to measure what that saves.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        batch_tokens: int = 4096,
        share_masks: bool = True,
        share_prefix: bool = True,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.forwards = Forwards(model, batch_tokens)
        self.grid = head_grid(model)
        self.share_masks = share_masks
        self.share_prefix = share_prefix
        self._early = EarlyLayers(self.forwards)
        self._encoded: dict[str, EncodedPrompts] = {}

    def encode(self, prompts: PromptSet) -> EncodedPrompts:
        """Tokenize a prompt set; done once for each set.

        Raises
        ------
        CaplocError
            If the tokens of a text and its answer do not follow each other, or a prompt exceeds the
            model's context.
        """
        if prompts.fingerprint not in self._encoded:
            self._encoded[prompts.fingerprint] = encode(
                prompts,
                self.tokenizer,
                context=self.forwards.context,
                share_prefix=self.share_prefix and self.forwards.goes_on,
            )
        return self._encoded[prompts.fingerprint]

    def score(
        self, prompts: PromptSet, heads: Iterable[HeadLike] = (), *, replacement: Replacement | None = None
    ) -> Scores:
        """Score every prompt with some heads knocked out."""
        return next(self.score_masks(prompts, [heads], replacement=replacement))[1]

    def score_masks(
        self,
        prompts: PromptSet,
        masks: Iterable[Iterable[HeadLike]],
        *,
        replacement: Replacement | None = None,
    ) -> Iterator[tuple[int, Scores]]:
        """Score every prompt under every mask.

        Scores come as soon as they are known, each with its mask's position: masks whose heads lie in
        late layers first, for they share what the layers before them compute. Leave the model as it is until
        the last score has come.

        Raises
        ------
        CaplocError
            If a head does not exist, a prompt cannot be encoded, or one prompt alone exceeds the memory.
        """
        require_one_for_all(replacement)
        if not prompts.prompts:
            raise CaplocError("the prompt set is empty: there is nothing to score")
        encoded = self.encode(prompts)
        indices = [self.grid.indices(mask) for mask in masks]
        waiting = sorted(
            range(len(indices)), key=lambda position: -min(indices[position], default=len(self.grid))
        )
        self._early.forget()  # the weights may have changed since
        while waiting:
            left = [indices[position] for position in waiting]
            scores = self.forwards.within_memory(partial(self._score_first, encoded, left, replacement))
            yield from zip(waiting, scores, strict=False)
            waiting = waiting[len(scores) :]

    def masks_at_once(self, encoded: EncodedPrompts) -> int:
        """Return how many masks share a forward on a prompt set."""
        at_once = self.forwards.batch_tokens // encoded.tokens if self.share_masks else 1
        if self.model.device.type == "cpu":
            at_once = min(at_once, _CPU_TOKENS // encoded.own_tokens)
        return max(1, at_once)

    def _score_first(
        self, encoded: EncodedPrompts, masks: Sequence[Sequence[int]], replacement: Replacement | None
    ) -> list[Scores]:
        """Score under the first of the masks, as many as share a forward."""
        at_once = self.masks_at_once(encoded)
        batches = encoded.batches(self.forwards.batch_tokens, self.model.device, masks=at_once)
        if len(masks) >= _WORTH_RECORDING and not self._early.recorded(batches):
            self._early.record(batches, encoded.prefix)
        return self._score(encoded, batches, masks[:at_once], replacement)

    @torch.inference_mode()
    def _score(
        self,
        encoded: EncodedPrompts,
        batches: list[Batch],
        masks: Sequence[Sequence[int]],
        replacement: Replacement | None,
    ) -> list[Scores]:
        n_masks, n_rows = len(masks), len(encoded.rows)
        logprob = np.zeros(n_masks * n_rows)
        matched = np.ones(n_masks * n_rows, dtype=bool)
        lead = np.full(n_masks * n_rows, np.inf)
        gates = mask_gates(self.grid, masks).to(self.model.device)  # [masks, n_heads]

        def gated(rows: int) -> Any:
            heads = masks[0] if n_masks == 1 else gates.repeat_interleave(rows, dim=0)
            return knockout(self.model, heads, replacement=replacement)

        with gated(1):
            prefix = self.forwards.read(encoded.prefix, n_masks)
        first = min((self.grid.heads[i][0] for mask in masks for i in mask), default=len(self._early.layers))
        for number, batch in enumerate(batches):
            n_sequences = len(batch.input_ids)
            skipped = first if self._early.recorded(batches) else 0
            with gated(n_sequences), self._early.skipped(number, skipped, n_masks):
                logits = self.forwards.logits(batch.repeated(n_masks), prefix)  # [masks * N, vocabulary]
            row = (torch.arange(n_masks).repeat_interleave(len(batch.row)) * n_rows).numpy()
            row += batch.row.repeat(n_masks).cpu().numpy()
            token_logprob, is_greedy, token_lead = _read_off(logits, batch.token.repeat(n_masks))
            np.add.at(logprob, row, token_logprob)
            np.logical_and.at(matched, row, is_greedy)
            np.fmin.at(lead, row, token_lead)
        by_mask = (part.reshape(n_masks, -1) for part in (logprob, matched, lead))
        return [_verdicts(encoded, *parts) for parts in zip(*by_mask, strict=True)]


def _read_off(logits: Tensor, tokens: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each token's log-probability, whether greedy decoding would take it, and its lead; [N] each.

    The lead is its logit less the best other token's.
    """
    logprob, is_greedy, lead = [], [], []
    for part, token in zip(logits.split(_LOGITS_AT_ONCE), tokens.split(_LOGITS_AT_ONCE), strict=True):
        own = part.gather(1, token[:, None]).float()[:, 0]
        first, second = part.topk(2).values.float().unbind(1)
        logprob.append(part.float().log_softmax(-1).gather(1, token[:, None])[:, 0])
        is_greedy.append(part.argmax(-1) == token)  # as decoding breaks ties
        lead.append(own - torch.where(own == first, second, first))
    return (
        torch.cat(logprob).cpu().double().numpy(),
        torch.cat(is_greedy).cpu().numpy(),
        torch.cat(lead).cpu().double().numpy(),
    )


def _verdicts(
    encoded: EncodedPrompts, row_logprob: np.ndarray, row_matched: np.ndarray, row_lead: np.ndarray
) -> Scores:
    n = int(encoded.is_answer.sum())
    logprob = row_logprob[encoded.is_answer]
    valid = np.ones(n, dtype=bool)
    np.logical_and.at(valid, encoded.prompt_of_row, np.isfinite(row_logprob))
    if encoded.metric is Metric.EXACT:
        margin = row_lead[encoded.is_answer]
        correct = row_matched[encoded.is_answer].astype(float)
    elif encoded.metric is Metric.CHOICE:
        best_other = np.full(n, -np.inf)
        others = ~encoded.is_answer
        np.maximum.at(best_other, encoded.prompt_of_row[others], row_logprob[others])
        margin = logprob - best_other
        correct = (margin > 0).astype(float)
    else:
        margin = correct = np.full(n, np.nan)
    logprob, correct, margin = (np.where(valid, part, np.nan) for part in (logprob, correct, margin))
    return Scores(logprob, correct, margin, valid)

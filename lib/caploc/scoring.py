"""Prompts x knockouts -> scores: batching, shared prefixes, log-probabilities.

Text and answer are encoded together, as lm-evaluation-harness does; the answer is what follows the text's
own tokens, and where a token would span both, the prompt is refused.
"""

import copy
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caploc.capabilities.prompts import Metric, PromptSet
from caploc.errors import CaplocError
from caploc.heads import HeadLike
from caploc.knockouts import knockout

SCORING_VERSION = 1
"""Raised whenever the same prompts, model and mask would get another score."""

_WORTHWHILE_PREFIX = 8  # tokens: below this, a forward of its own costs more than it saves


@dataclass(frozen=True)
class Scores:
    """Scores of a prompt set, one entry a prompt.

    Parameters
    ----------
    logprob : ndarray of float64, [n]
        Natural log-probability of the answer, summed over its tokens; NaN where not valid.
    correct : ndarray of float64, [n]
        1 or 0; NaN where not valid, or where the metric knows no right or wrong.
    valid : ndarray of bool, [n]
        False where the model's logits were not finite.
    """

    logprob: np.ndarray
    correct: np.ndarray
    valid: np.ndarray


@dataclass(frozen=True)
class _Batch:
    """Inputs of one forward, and where in its logits each answer token is predicted."""

    input_ids: Tensor  # [B, T], right-padded, the shared prefix left out
    attention_mask: Tensor  # [B, prefix + T]
    positions: Tensor  # [U], the positions whose logits any answer needs
    sequence: Tensor  # [N], for each answer token its sequence in the batch ...
    position: Tensor  # [N], ... the index of its position in `positions` ...
    token: Tensor  # [N], ... the token ...
    row: Tensor  # [N], ... and which row it belongs to


@dataclass(frozen=True)
class EncodedPrompts:
    """A prompt set in tokens, batched once for all masks.

    Rows are the (prompt, answer) pairs: for every prompt its answer, then its wrong choices.
    """

    metric: Metric
    prompt_of_row: np.ndarray  # [R]
    is_answer: np.ndarray  # [R]
    answer_tokens: np.ndarray  # [n], tokens of each prompt's answer
    prefix: Tensor  # [1, P], empty if there is none worth sharing
    batches: list[_Batch]


class Scorer:
    """Scores prompt sets on one model, intact or with heads knocked out.

    Parameters
    ----------
    model, tokenizer
        A transformers causal language model and its tokenizer.
    batch_tokens : int
        Tokens a forward may hold, padding included.
    """

    def __init__(self, model: Any, tokenizer: Any, *, batch_tokens: int = 4096) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.batch_tokens = batch_tokens
        self._encoded: dict[str, EncodedPrompts] = {}
        names = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"

    def encode(self, prompts: PromptSet) -> EncodedPrompts:
        """Tokenize and batch a prompt set; done once for each set.

        Raises
        ------
        CaplocError
            If the tokens of a text and its answer do not follow each other, or a prompt exceeds the
            model's context.
        """
        if prompts.fingerprint not in self._encoded:
            self._encoded[prompts.fingerprint] = self._encode(prompts)
        return self._encoded[prompts.fingerprint]

    @torch.inference_mode()
    def score(self, prompts: PromptSet, heads: Iterable[HeadLike] = ()) -> Scores:
        """Score every prompt with some heads knocked out."""
        encoded = self.encode(prompts)
        n_rows = len(encoded.prompt_of_row)
        logprob, matched = np.zeros(n_rows), np.ones(n_rows, dtype=bool)
        with knockout(self.model, heads):
            prefix_cache = self._run_prefix(encoded.prefix)
            for batch in encoded.batches:
                logits = self._run(batch, prefix_cache)  # [N, vocabulary]
                token_logprob = logits.log_softmax(-1).gather(1, batch.token[:, None])[:, 0]
                row = batch.row.cpu().numpy()
                np.add.at(logprob, row, token_logprob.double().cpu().numpy())
                np.logical_and.at(matched, row, (logits.argmax(-1) == batch.token).cpu().numpy())
        return _verdicts(encoded, logprob, matched)

    def _encode(self, prompts: PromptSet) -> EncodedPrompts:
        pairs = [(i, p.text, a) for i, p in enumerate(prompts.prompts) for a in (p.answer, *p.others)]
        rows = [self._split(text, answer) for _, text, answer in pairs]
        prompt_of_row = np.array([i for i, _, _ in pairs])
        is_answer = np.diff(prompt_of_row, prepend=-1) > 0
        prefix = _shared_prefix([context for context, _ in rows])
        return EncodedPrompts(
            metric=prompts.metric,
            prompt_of_row=prompt_of_row,
            is_answer=is_answer,
            answer_tokens=np.array(
                [len(answer) for (_, answer), first in zip(rows, is_answer, strict=True) if first]
            ),
            prefix=torch.tensor([prefix], dtype=torch.long, device=self.model.device),
            batches=self._batches(rows, len(prefix)),
        )

    def _split(self, text: str, answer: str) -> tuple[list[int], list[int]]:
        context: list[int] = self.tokenizer(text)["input_ids"]
        whole: list[int] = self.tokenizer(text + answer)["input_ids"]
        if not context or len(whole) <= len(context) or whole[: len(context)] != context:
            raise CaplocError(
                f"prompt {text[-60:]!r}: the tokenizer does not keep the answer {answer!r} apart from the "
                "text; begin the answer with the space between them, and use no tokenizer that appends an end"
            )
        limit = getattr(self.model.config, "max_position_embeddings", None) or len(whole)
        if len(whole) > limit:
            raise CaplocError(
                f"prompt {text[:60]!r}... has {len(whole)} tokens; the model's context is {limit}"
            )
        return context, whole[len(context) :]

    def _batches(self, rows: list[tuple[list[int], list[int]]], prefix: int) -> list[_Batch]:
        # the last token of an answer is only predicted, never read: choices of one token share an input
        inputs: dict[tuple[int, ...], list[int]] = {}
        for number, (context, answer) in enumerate(rows):
            inputs.setdefault((*context[prefix:], *answer[:-1]), []).append(number)
        batches, pending = [], []
        for sequence in sorted(inputs, key=len, reverse=True):
            if pending and len(pending[0]) * (len(pending) + 1) > self.batch_tokens:
                batches.append(self._batch(pending, inputs, rows, prefix))
                pending = []
            pending.append(sequence)
        return [*batches, self._batch(pending, inputs, rows, prefix)]

    def _batch(
        self,
        sequences: list[tuple[int, ...]],
        inputs: dict[tuple[int, ...], list[int]],
        rows: list[tuple[list[int], list[int]]],
        prefix: int,
    ) -> _Batch:
        width = len(sequences[0])
        input_ids = torch.zeros(len(sequences), width, dtype=torch.long)
        attention_mask = torch.zeros(len(sequences), prefix + width, dtype=torch.long)
        wanted: list[tuple[int, int, int, int]] = []  # sequence, position, token, row
        for s, sequence in enumerate(sequences):
            input_ids[s, : len(sequence)] = torch.tensor(sequence)
            attention_mask[s, : prefix + len(sequence)] = 1
            for row in inputs[sequence]:
                context, answer = rows[row]
                first = len(context) - prefix - 1
                wanted += [(s, first + offset, token, row) for offset, token in enumerate(answer)]
        sequence_of, position_of, token, row_of = torch.tensor(wanted).unbind(1)
        positions, position = torch.unique(position_of, return_inverse=True)
        parts = (input_ids, attention_mask, positions, sequence_of, position, token, row_of)
        return _Batch(*(part.to(self.model.device) for part in parts))

    def _run_prefix(self, prefix: Tensor) -> Any:
        if prefix.shape[1] == 0:
            return None
        return self.model(input_ids=prefix, use_cache=True, logits_to_keep=1)[self._cache_name]

    def _run(self, batch: _Batch, prefix_cache: Any) -> Tensor:
        past = {}
        if prefix_cache is not None:
            cache = copy.deepcopy(prefix_cache)
            cache.batch_repeat_interleave(len(batch.input_ids))
            past = {self._cache_name: cache}
        logits = self.model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            logits_to_keep=batch.positions,
            use_cache=bool(past),
            **past,
        ).logits  # [B, U, vocabulary]
        return logits[batch.sequence, batch.position].float()


def _shared_prefix(contexts: list[list[int]]) -> list[int]:
    # at least one token of every context must be read after the prefix: it predicts the answer
    shortest = min(map(len, contexts)) - 1
    columns = zip(*(context[:shortest] for context in contexts), strict=True)
    prefix = [column[0] for column in takewhile(lambda tokens: len(set(tokens)) == 1, columns)]
    return prefix if len(contexts) > 1 and len(prefix) >= _WORTHWHILE_PREFIX else []


def _verdicts(encoded: EncodedPrompts, row_logprob: np.ndarray, row_matched: np.ndarray) -> Scores:
    n = len(encoded.answer_tokens)
    logprob = row_logprob[encoded.is_answer]
    valid = np.ones(n, dtype=bool)
    np.logical_and.at(valid, encoded.prompt_of_row, np.isfinite(row_logprob))
    if encoded.metric is Metric.EXACT:
        correct = row_matched[encoded.is_answer].astype(float)
    elif encoded.metric is Metric.CHOICE:
        best_other = np.full(n, -np.inf)
        others = ~encoded.is_answer
        np.maximum.at(best_other, encoded.prompt_of_row[others], row_logprob[others])
        correct = (logprob > best_other).astype(float)
    else:
        correct = np.full(n, np.nan)
    return Scores(np.where(valid, logprob, np.nan), np.where(valid, correct, np.nan), valid)

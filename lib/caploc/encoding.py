"""Prompts in tokens, batched for forwards.

Text and answer are encoded together, as lm-evaluation-harness does; the answer is what follows the text's
own tokens, and where a token would span both, the prompt is refused.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from caploc.capabilities.prompts import Metric, PromptSet
from caploc.errors import CaplocError

_FORWARD_TOKENS = 64  # padding that costs about as much as one more forward
_WORTHWHILE_PREFIX = 8  # tokens: below this, a forward of its own costs more than it saves

Tokens = tuple[int, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """Inputs of one forward, and which of its logits are wanted.

    Parameters
    ----------
    input_ids : Tensor, [B, T]
        Right-padded, the shared prefix left out.
    attention_mask : Tensor, [B, prefix + T]
        1 for tokens, 0 for padding.
    sequence, position : Tensor, [N]
        Where in the batch each wanted token is predicted.
    token, row : Tensor, [N]
        Each wanted token, and the row of the prompt set that it belongs to.
    """

    input_ids: Tensor
    attention_mask: Tensor
    sequence: Tensor
    position: Tensor
    token: Tensor
    row: Tensor

    def repeated(self, times: int) -> Self:
        """Return the batch `times` over, for as many masks; rows of the prompt set stay what they are."""
        if times == 1:
            return self
        n_sequences, n_wanted = len(self.input_ids), len(self.token)
        offset = torch.arange(times, device=self.sequence.device).repeat_interleave(n_wanted) * n_sequences
        return type(self)(
            self.input_ids.repeat(times, 1),
            self.attention_mask.repeat(times, 1),
            self.sequence.repeat(times) + offset,
            *(part.repeat(times) for part in (self.position, self.token, self.row)),
        )


@dataclass(frozen=True)
class EncodedPrompts:
    """A prompt set in tokens.

    Rows are the (prompt, answer) pairs: each prompt's answer, then its wrong choices.

    Parameters
    ----------
    metric : Metric
        How the set is scored.
    rows : list of (context, answer)
        Tokens of every row.
    prompt_of_row, is_answer : ndarray, [R]
        The prompt of each row, and whether the row holds its answer.
    prefix : tuple of int
        Tokens with which every context begins, empty if none are worth sharing.
    """

    metric: Metric
    rows: list[tuple[Tokens, Tokens]]
    prompt_of_row: np.ndarray
    is_answer: np.ndarray
    prefix: Tokens
    _batches: dict[Hashable, list[Batch]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def answer_tokens(self) -> np.ndarray:
        """Number of tokens of each prompt's answer, [n]."""
        return np.array(
            [len(answer) for (_, answer), first in zip(self.rows, self.is_answer, strict=True) if first]
        )

    @property
    def tokens(self) -> int:
        """Tokens of all rows, their shared prefix included in each: what a cache holds of them."""
        return sum(len(context) + len(answer) for context, answer in self.rows)

    @property
    def own_tokens(self) -> int:
        """Tokens of all rows after the shared prefix: what a mask's forwards read."""
        return self.tokens - len(self.rows) * len(self.prefix)

    def batches(self, batch_tokens: int, device: torch.device, *, masks: int = 1) -> list[Batch]:
        """Return batches of at most `batch_tokens` tokens (or one sequence), like lengths together.

        The more masks each batch will serve, the fewer lengths share one.
        """
        key = (batch_tokens, device, masks)
        if key not in self._batches:
            # the last token of an answer is only predicted, never read: choices of one token share an input
            wanted: dict[tuple[int, Tokens], list[int]] = {}
            for row, (prompt, (context, answer)) in enumerate(
                zip(self.prompt_of_row, self.rows, strict=True)
            ):
                read = (*context[len(self.prefix) :], *answer[:-1])
                wanted.setdefault((int(prompt), read), []).append(row)
            groups = by_length(
                wanted.items(),
                batch_tokens,
                padding=_FORWARD_TOKENS // masks,
                length=lambda item: len(item[0][1]),
            )
            self._batches[key] = [
                self._batch([(read, rows) for (_, read), rows in group], device) for group in groups
            ]
        return self._batches[key]

    def _batch(self, sequences: list[tuple[Tokens, list[int]]], device: torch.device) -> Batch:
        input_ids, attention_mask = pad_right([read for read, _ in sequences], len(self.prefix))
        wanted: list[tuple[int, int, int, int]] = []  # sequence, position, token, row
        for s, (_, rows) in enumerate(sequences):
            for row in rows:
                context, answer = self.rows[row]
                first = len(context) - len(self.prefix) - 1
                wanted += [(s, first + offset, token, row) for offset, token in enumerate(answer)]
        parts = (input_ids, attention_mask, *torch.tensor(wanted).unbind(1))
        return Batch(*(part.to(device) for part in parts))


def encode(prompts: PromptSet, tokenizer: Any, *, context: int | None, share_prefix: bool) -> EncodedPrompts:
    """Encode a prompt set.

    Parameters
    ----------
    prompts : PromptSet
        What to encode.
    tokenizer
        A transformers tokenizer.
    context : int, optional
        The most tokens that the model reads.
    share_prefix : bool
        Whether the model can go on from a cached prefix.

    Raises
    ------
    CaplocError
        If a choice has no wrong answer, the tokens of a text and its answer do not follow each other, or a
        prompt exceeds the context.
    """
    if prompts.metric is Metric.CHOICE:
        for prompt in prompts.prompts:
            if not prompt.others:
                raise CaplocError(
                    f"prompt {prompt.text[-60:]!r} has no wrong choice; give it others, or score it as exact"
                )
    pairs = [(i, p.text, a) for i, p in enumerate(prompts.prompts) for a in (p.answer, *p.others)]
    rows = [_split(text, answer, tokenizer, context) for _, text, answer in pairs]
    prompt_of_row = np.array([i for i, _, _ in pairs])
    return EncodedPrompts(
        metric=prompts.metric,
        rows=rows,
        prompt_of_row=prompt_of_row,
        is_answer=np.diff(prompt_of_row, prepend=-1) > 0,
        prefix=shared_prefix([text for text, _ in rows]) if share_prefix else (),
    )


def by_length(
    sequences: Iterable[T], batch_tokens: int, *, padding: int, length: Callable[[T], int] = len
) -> list[list[T]]:
    """Group sequences, longest first, so that a padded group holds at most `batch_tokens` or one sequence.

    A length whose sequences would need more than `padding` tokens to fill up begins a group of its own.
    """
    groups: list[list[T]] = []
    for size, alike in groupby(sorted(sequences, key=length, reverse=True), key=length):
        together = list(alike)
        if not groups or (length(groups[-1][0]) - size) * len(together) > padding:
            groups.append([])
        for sequence in together:
            if groups[-1] and length(groups[-1][0]) * (len(groups[-1]) + 1) > batch_tokens:
                groups.append([])
            groups[-1].append(sequence)
    return groups


def pad_right(sequences: Sequence[Tokens], prefix: int) -> tuple[Tensor, Tensor]:
    """Return input ids, [B, T], and the attention mask, [B, prefix + T], of sequences after a prefix."""
    width = max(map(len, sequences))
    input_ids = torch.tensor([sequence + (0,) * (width - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([prefix + len(sequence) for sequence in sequences])
    return input_ids, (torch.arange(prefix + width) < lengths[:, None]).long()


def shared_prefix(contexts: Sequence[Tokens]) -> Tokens:
    """Return the tokens with which all contexts begin, if they are worth a forward of their own."""
    # at least one token of every context must be read after the prefix: it predicts the answer
    shortest = min(map(len, contexts)) - 1
    columns = zip(*(context[:shortest] for context in contexts), strict=True)
    prefix = tuple(column[0] for column in takewhile(lambda tokens: len(set(tokens)) == 1, columns))
    return prefix if len(contexts) > 1 and len(prefix) >= _WORTHWHILE_PREFIX else ()


def _split(text: str, answer: str, tokenizer: Any, limit: int | None) -> tuple[Tokens, Tokens]:
    context: Tokens = tuple(tokenizer(text)["input_ids"])
    whole: Tokens = tuple(tokenizer(text + answer)["input_ids"])
    if not context or len(whole) <= len(context) or whole[: len(context)] != context:
        raise CaplocError(
            f"prompt {text[-60:]!r}: the tokenizer does not keep the answer {answer!r} apart from the "
            "text; begin the answer with the space between them, and use no tokenizer that appends an end"
        )
    if limit is not None and len(whole) > limit:
        raise CaplocError(f"prompt {text[:60]!r}... has {len(whole)} tokens; the model's context is {limit}")
    return context, whole[len(context) :]

"""Greedy answers, with heads knocked out: a shared prefix read once, finished rows gone from the batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from caploc.encoding import Batch, Tokens, by_length, pad_right, shared_prefix
from caploc.errors import CaplocError
from caploc.forwards import Forwards, map_cache
from caploc.heads import HeadLike
from caploc.knockouts import knockout
from caploc.replacements import Replacement, require_one_for_all
from caploc.scoring import Scorer


def generate(
    scorer: Scorer,
    texts: Sequence[str],
    heads: Iterable[HeadLike] = (),
    *,
    max_new_tokens: int,
    stop: Sequence[str] = (),
    replacement: Replacement | None = None,
) -> list[str]:
    """Continue every text by greedy decoding, with some heads knocked out.

    Parameters
    ----------
    scorer : Scorer
        Of the model that answers.
    texts : sequence of str
        The prompts.
    heads : iterable of int, str or (int, int)
        The heads to knock out.
    max_new_tokens : int
        The most tokens of an answer.
    stop : sequence of str
        An answer ends before the first of these strings, or at the model's end token.
    replacement : Replacement, optional
        What knocked-out heads write instead of 0.

    Returns
    -------
    list of str
        The answers, in the order of the texts, without special tokens.

    Raises
    ------
    ValueError
        If `max_new_tokens` is below 1, or a stop string is empty.
    CaplocError
        If a text has no tokens, leaves no room for an answer in the model's context, or does not fit
        into memory.
    """
    if max_new_tokens < 1 or "" in stop:
        raise ValueError("max_new_tokens must be at least 1, and a stop string must not be empty")
    require_one_for_all(replacement)
    forwards, tokenizer = scorer.forwards, scorer.tokenizer
    prompts = [_tokens(text, tokenizer, forwards.context, max_new_tokens) for text in texts]
    prefix = shared_prefix(prompts) if prompts and forwards.goes_on else ()
    rests = list(dict.fromkeys(prompt[len(prefix) :] for prompt in prompts))
    ending = _Ending(tokenizer, _end_tokens(scorer), tuple(stop), max_new_tokens)
    answers: dict[Tokens, Tokens] = {}
    with torch.inference_mode(), knockout(scorer.model, heads, replacement=replacement):
        cache = forwards.read(prefix)
        while rests:
            answers |= forwards.within_memory(partial(_answer_first, forwards, rests, prefix, cache, ending))
            rests = [rest for rest in rests if rest not in answers]
    decoded = {
        rest: _cut(tokenizer.decode(answer, skip_special_tokens=True), stop)
        for rest, answer in answers.items()
    }
    return [decoded[prompt[len(prefix) :]] for prompt in prompts]


@dataclass(frozen=True)
class _Ending:
    """When an answer is over."""

    tokenizer: Any
    end_tokens: tuple[int, ...]
    stop: tuple[str, ...]
    max_new_tokens: int

    def over(self, answers: Tensor) -> Tensor:
        """Return which answers, [B, n] tokens, are over, [B]."""
        if answers.shape[1] == self.max_new_tokens:
            return torch.ones(len(answers), dtype=torch.bool, device=answers.device)
        over = torch.isin(answers[:, -1], torch.tensor(self.end_tokens, device=answers.device))
        if self.stop:
            # a token is a byte at least; the first ones of a decoded part may lose their space
            reach = max(len(text.encode()) for text in self.stop) + 4
            tails = self.tokenizer.batch_decode(answers[:, -reach:], skip_special_tokens=True)
            said = [any(text in tail for text in self.stop) for tail in tails]
            over |= torch.tensor(said, device=answers.device)
        return over


def _answer_first(
    forwards: Forwards, rests: list[Tokens], prefix: Tokens, prefix_cache: Any, ending: _Ending
) -> dict[Tokens, Tokens]:
    """Answer the longest prompts, as many as fit into a batch."""
    longest = max(map(len, rests))
    room = forwards.batch_tokens * longest // (longest + ending.max_new_tokens)
    group = by_length(rests, room, padding=room if forwards.keeps_all else 0)[0]
    return dict(zip(group, _continue(forwards, group, prefix, prefix_cache, ending), strict=True))


def _continue(
    forwards: Forwards, rests: list[Tokens], prefix: Tokens, prefix_cache: Any, ending: _Ending
) -> list[Tokens]:
    """Answer some prompts that differ only after a prefix; without end tokens."""
    device = forwards.model.device
    n = len(rests)
    input_ids, mask = (part.to(device) for part in pad_right(rests, len(prefix)))
    last = torch.tensor([len(rest) - 1 for rest in rests], device=device)
    rows = torch.arange(n, device=device)
    batch = Batch(input_ids, mask, rows, last, token=last, row=rows)
    logits, cache = forwards.logits_and_cache(batch, prefix_cache)
    mask, cache = _to_the_right(mask, cache)
    answers = logits.argmax(-1)[:, None]  # [B, tokens so far]
    finished: dict[int, Tokens] = {}
    while True:
        over = ending.over(answers)
        for row, answer in zip(rows[over].tolist(), answers[over].tolist(), strict=True):
            finished[row] = tuple(answer[:-1] if answer[-1] in ending.end_tokens else answer)
        if over.all():
            return [finished[row] for row in range(n)]
        if over.any():
            going = (~over).nonzero()[:, 0]
            rows, answers, mask = rows[going], answers[going], mask[going]
            cache.reorder_cache(going)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        following = forwards.step(answers[:, -1], mask, cache).argmax(-1)
        answers = torch.cat([answers, following[:, None]], dim=1)


def _to_the_right(mask: Tensor, cache: Any) -> tuple[Tensor, Any]:
    """Move padding from the right of every row to its left, where tokens to come do not meet it."""
    padding = mask.shape[1] - mask.sum(1, keepdim=True)  # [B, 1]
    if not padding.any():
        return mask, cache
    source = (torch.arange(mask.shape[1], device=mask.device) - padding).clamp(min=0)  # [B, T]

    def shift(states: Tensor) -> Tensor:  # [B, heads, T, width]
        return states.gather(2, source.to(states.device)[:, None, :, None].expand_as(states))

    return mask.flip(1), map_cache(cache, shift)


def _tokens(text: str, tokenizer: Any, context: int | None, max_new_tokens: int) -> Tokens:
    tokens = tuple(tokenizer(text)["input_ids"])
    if not tokens:
        raise CaplocError("an empty prompt cannot be continued: give it a token, such as the model's first")
    if context is not None and len(tokens) + max_new_tokens > context:
        raise CaplocError(
            f"prompt {text[:60]!r}... has {len(tokens)} tokens; with {max_new_tokens} new ones it exceeds "
            f"the model's context of {context}"
        )
    return tokens


def _end_tokens(scorer: Scorer) -> tuple[int, ...]:
    generation = getattr(scorer.model, "generation_config", None)
    ends = getattr(generation, "eos_token_id", None)
    if ends is None:
        ends = scorer.tokenizer.eos_token_id
    return () if ends is None else tuple(ends) if isinstance(ends, list) else (ends,)


def _cut(answer: str, stop: Sequence[str]) -> str:
    for text in stop:
        answer = answer.split(text, maxsplit=1)[0]
    return answer

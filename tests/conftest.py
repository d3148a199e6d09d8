"""Tiny models and tokenizers built from configs, offline."""

import string
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from architectures import build
from caploc.capabilities.prompts import Metric, Prompt, PromptSet
from caploc.models.attention import attention_layers

torch.set_num_threads(1)  # tiny models gain nothing from more, and lose much beside another busy process


@pytest.fixture(params=["gpt2", "llama", "qwen3"])
def model(request: pytest.FixtureRequest) -> Any:
    return build(request.param)


@pytest.fixture
def llama() -> Any:
    return build("llama")


@pytest.fixture
def gpt2() -> Any:
    return build("gpt2")


def character_tokenizer() -> Any:
    """One token a printable character; no special tokens at all, not even padding."""
    vocabulary = {character: i for i, character in enumerate(string.printable)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=" "))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.fixture
def tokenizer() -> Any:
    return character_tokenizer()


@pytest.fixture
def random_prompts() -> Callable[..., PromptSet]:
    """Prompts of ragged lengths, answers of one to three characters."""

    def make(n: int, metric: Metric = Metric.EXACT, seed: int = 0, prefix: str = "") -> PromptSet:
        rng = np.random.default_rng(seed)

        def word(low: int, high: int) -> str:
            return "".join(rng.choice(list(string.ascii_lowercase), size=rng.integers(low, high)))

        others = 2 if metric is Metric.CHOICE else 0
        prompts = [
            Prompt(prefix + word(3, 15), word(1, 4), tuple(word(1, 4) for _ in range(others)))
            for _ in range(n)
        ]
        return PromptSet(metric, tuple(prompts))

    return make


def scale_columns(model: Any, heads: list[tuple[int, int]], factor: float) -> None:
    """Scale what some heads write, in the weights."""
    layers = attention_layers(model)
    by_number = {layer.number: layer for layer in layers}
    for layer, head in heads:
        projection, width = by_number[layer].projection, by_number[layer].head_width
        columns = slice(head * width, (head + 1) * width)
        if isinstance(projection, torch.nn.Linear):
            projection.weight.data[:, columns] *= factor
        else:
            projection.weight.data[columns] *= factor


def zero_columns(model: Any, heads: list[tuple[int, int]]) -> None:
    """Write a knockout into the weights: the oracle for hooks."""
    scale_columns(model, heads, 0)


def plant(model: Any, heads: list[tuple[int, int]]) -> None:
    """Make some heads the only ones that matter, and matter much."""
    layers = attention_layers(model)
    everything = [(layer.number, head) for layer in layers for head in range(layer.n_heads)]
    zero_columns(model, [head for head in everything if head not in heads])
    scale_columns(model, heads, 8)


def plain_scores(model, tokenizer, prompts):
    """Return what a newcomer would compute with transformers alone."""
    logprob, correct = [], []
    for prompt in prompts.prompts:
        answers = [
            plain_score(model, tokenizer, prompt.text, answer) for answer in (prompt.answer, *prompt.others)
        ]
        logprob.append(answers[0][0])
        if prompts.metric is Metric.CHOICE:
            correct.append(all(answers[0][0] > other for other, _ in answers[1:]))
        else:
            correct.append(answers[0][1])
    return np.array(logprob), np.array(correct, dtype=float)


def plain_score(model, tokenizer, text, answer):
    context, whole = tokenizer(text)["input_ids"], tokenizer(text + answer)["input_ids"]
    logprobs = model(torch.tensor([whole])).logits[0].log_softmax(-1)
    targets = whole[len(context) :]
    predictions = logprobs[len(context) - 1 : -1]
    total = sum(float(predictions[i, token]) for i, token in enumerate(targets))
    return total, predictions.argmax(-1).tolist() == targets


def plain_margins(model, tokenizer, prompts):
    """Return how far each answer is ahead of its best rival, with transformers alone."""
    margins = []
    for prompt in prompts.prompts:
        context, whole = (tokenizer(text)["input_ids"] for text in (prompt.text, prompt.text + prompt.answer))
        if prompts.metric is Metric.CHOICE:
            own, *others = (
                plain_score(model, tokenizer, prompt.text, answer)[0]
                for answer in (prompt.answer, *prompt.others)
            )
            margins.append(own - max(others))
        else:
            logits = model(torch.tensor([whole])).logits[0, len(context) - 1 : -1].double()
            leads = []
            for row, token in zip(logits, whole[len(context) :], strict=True):
                rivals = row.clone()
                rivals[token] = -torch.inf
                leads.append(float(row[token] - rivals.max()))
            margins.append(min(leads))
    return np.array(margins)

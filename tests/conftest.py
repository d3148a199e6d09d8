"""Tiny models and tokenizers built from configs, offline."""

import string
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from caploc.capabilities.prompts import Metric, Prompt, PromptSet
from caploc.models.attention import attention_layers

torch.set_num_threads(2)


def _llama() -> Any:
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=256,
    )
    return LlamaForCausalLM(config)


def _qwen3() -> Any:
    # head width 32, unlike hidden / heads = 16
    config = Qwen3Config(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
    )
    return Qwen3ForCausalLM(config)


def _gpt2() -> Any:
    return GPT2LMHeadModel(GPT2Config(vocab_size=128, n_embd=64, n_layer=3, n_head=4, n_positions=256))


BUILDERS = {"llama": _llama, "qwen3": _qwen3, "gpt2": _gpt2}


def build(kind: str, seed: int = 0) -> Any:
    """Build a tiny model whose weights are large enough that every head matters."""
    torch.manual_seed(seed)
    model = BUILDERS[kind]().eval().requires_grad_(requires_grad=False)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.normal_(std=0.2)
        elif parameter.ndim == 1:
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.fixture(params=sorted(BUILDERS))
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
    for layer, head in heads:
        projection, width = layers[layer].projection, layers[layer].head_width
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

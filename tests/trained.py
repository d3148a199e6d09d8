"""A tiny model that really has some capabilities, because it was trained on their prompts just now."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from caploc.capabilities.registry import build_all
from conftest import character_tokenizer

LEARNT = ["agreement", "sequences"]
COUNTS = {"measure": 10, "validate": 10}


def train(folder: Path, *, layers: int, heads: int) -> None:
    """Train a model of a given shape until it knows the prompts of two seeds by heart; save it."""
    torch.manual_seed(0)
    tokenizer = character_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=8 * heads,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=256,
    )
    model = LlamaForCausalLM(config)
    input_ids, labels = _examples(tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = torch.inf
    while loss > 0.2:
        optimizer.zero_grad()
        result = model(input_ids=input_ids, labels=labels)
        result.loss.backward()
        optimizer.step()
        loss = result.loss.item()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _examples(tokenizer):
    sampled = [c for seed in (0, 1) for c in build_all(LEARNT, seed=seed, **COUNTS).values()]
    prompts = [p for c in sampled for s in c.splits.values() for p in s.prompts]
    encoded = [(tokenizer(p.text)["input_ids"], tokenizer(p.text + p.answer)["input_ids"]) for p in prompts]
    width = max(len(whole) for _, whole in encoded)
    input_ids = torch.zeros(len(encoded), width, dtype=torch.long)
    labels = torch.full((len(encoded), width), -100)
    for row, (context, whole) in enumerate(encoded):
        input_ids[row, : len(whole)] = torch.tensor(whole)
        labels[row, len(context) : len(whole)] = torch.tensor(whole[len(context) :])
    return input_ids, labels

"""How fast masks are scored, against a bare forward, the published procedure and other tools.

    python benchmarks/throughput.py

prints a table and writes benchmarks/results/throughput.json. Every ratio is taken within a round, in which
all ways run one after the other on the same weights and prompts; its median, least and greatest are over the
rounds. TransformerLens and nnsight take part where they are installed (`pip install 'caploc[peers]'`).
"""

import copy
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import AutoModelForCausalLM

from caploc import knockout, load_model
from caploc.capabilities.prompts import PromptSet
from caploc.capabilities.registry import build
from caploc.encoding import pad_right
from caploc.heads import HeadGrid
from caploc.models.attention import attention_layers, grid_of
from caploc.models.sources import fetch, resolve
from caploc.scoring import Scorer

# without a shared prefix, and with four examples before each question
CAPABILITIES = ("indirect_object", "addition")
RESULTS = Path(__file__).parent / "results" / "throughput.json"
HEADS_PER_MASK = 5
FEW = 3  # masks that the slower ways of ours score, too few for early layers to be kept


def main(
    model: Annotated[str, typer.Option(help="Preset, hub id or folder.")] = "smollm2-135m-instruct",
    dtype: Annotated[str, typer.Option()] = "float32",
    device: Annotated[str, typer.Option()] = "auto",
    prompts: Annotated[int, typer.Option(help="Prompts a capability.")] = 32,
    masks: Annotated[int, typer.Option(help="Masks that ours scores together.")] = 32,
    rounds: Annotated[int, typer.Option(help="Times that everything is measured.")] = 7,
    out: Annotated[Path, typer.Option()] = RESULTS,
) -> None:
    """Measure, print a table and write the results."""
    loaded = load_model(model, dtype=dtype, device=device)
    sets = {name: build(name, seed=0, measure=prompts, validate=8).splits["measure"] for name in CAPABILITIES}
    rng = np.random.default_rng(0)
    drawn = [rng.choice(len(loaded.grid), HEADS_PER_MASK, replace=False).tolist() for _ in range(masks)]
    ways = _ways(loaded, resolve(model), dtype, sets, drawn)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run in ways.values():
        run()  # warm up
    for number in range(rounds):
        # the order turns, so that no way always follows the same one
        for name in [*list(ways)[number % len(ways) :], *list(ways)[: number % len(ways)]]:
            times[name].append(_seconds(ways[name]))
    results = _results(times, masks) | {
        "setting": {
            "model": model,
            "dtype": dtype,
            "device": _device_name(loaded.model),
            "threads": torch.get_num_threads(),
            "prompts": prompts,
            "masks": masks,
            "heads_per_mask": HEADS_PER_MASK,
            "rounds": rounds,
            "versions": {name: version(name) for name in ("torch", "transformers", *_peers())},
        }
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    _print(results)


def _ways(
    loaded: Any, source: Any, dtype: str, sets: dict[str, PromptSet], masks: list[list[int]]
) -> dict[str, Callable[[], object]]:
    model, tokenizer, grid = loaded
    scorer = Scorer(model, tokenizer)
    one_by_one = Scorer(model, tokenizer, share_masks=False)
    no_prefix = Scorer(model, tokenizer, share_masks=False, share_prefix=False)
    few = masks[:FEW]
    ids, attention_mask = _batch(tokenizer, sets["indirect_object"], model.device)

    @torch.inference_mode()
    def bare() -> Tensor:
        return model(input_ids=ids, attention_mask=attention_mask).logits

    @torch.inference_mode()
    def one_mask() -> Tensor:
        with knockout(model, masks[0]):
            return model(input_ids=ids, attention_mask=attention_mask).logits

    ways: dict[str, Callable[[], object]] = {"bare": bare, "one_mask": one_mask}
    for name, prompts in sets.items():
        ways[f"reference {name}"] = lambda prompts=prompts: _reference(
            source, dtype, tokenizer, prompts, masks[0]
        )
        ways[f"masks together {name}"] = lambda prompts=prompts: list(scorer.score_masks(prompts, masks))
        ways[f"mask by mask {name}"] = lambda prompts=prompts: list(one_by_one.score_masks(prompts, few))
        ways[f"prefix read anew {name}"] = lambda prompts=prompts: list(no_prefix.score_masks(prompts, few))
    if "transformer-lens" in _peers():
        ways["peer transformer_lens"] = _transformer_lens(
            model, tokenizer, grid, masks[0], ids, attention_mask
        )
    if "nnsight" in _peers():
        ways["peer nnsight"] = _nnsight(model, grid, masks[0], ids, attention_mask)
    expected = one_mask()
    for name in ("peer transformer_lens", "peer nnsight"):
        if name in ways:
            found: Any = ways[name]()
            real = attention_mask.bool()
            torch.testing.assert_close(found[real].float(), expected[real].float(), atol=1e-3, rtol=1e-3)
    return ways


def _reference(source: Any, dtype: str, tokenizer: Any, prompts: PromptSet, heads: list[int]) -> float:
    """The published procedure: the model loaded anew for each mask, prompts one at a time, full logits."""
    model: Any = AutoModelForCausalLM.from_pretrained(fetch(source), dtype=getattr(torch, dtype)).eval()
    layers = attention_layers(model)
    grid = grid_of(layers)
    knocked_out: dict[int, list[int]] = {}
    for number, head in (grid.heads[index] for index in heads):
        knocked_out.setdefault(number, []).append(head)
    for layer in layers:
        spans = [layer.columns(head) for head in knocked_out.get(layer.number, [])]

        def zero(_: Any, args: Any, spans: list[slice] = spans) -> Any:
            outputs = args[0].clone()
            for columns in spans:
                outputs[..., columns] = 0
            return (outputs,)

        if spans:
            layer.projection.register_forward_pre_hook(zero)
    total = 0.0
    with torch.no_grad():
        for prompt in prompts.prompts:
            context, whole = (
                tokenizer(text)["input_ids"] for text in (prompt.text, prompt.text + prompt.answer)
            )
            logprobs = model(input_ids=torch.tensor([whole])).logits[0].float().log_softmax(-1)
            total += sum(float(logprobs[i - 1, whole[i]]) for i in range(len(context), len(whole)))
    return total


def _transformer_lens(
    model: Any, tokenizer: Any, grid: HeadGrid, heads: list[int], ids: Tensor, attention_mask: Tensor
) -> Callable[[], Tensor]:
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is here already
    from transformer_lens.model_bridge import TransformerBridge

    # wrapping rebuilds the model in place
    bridge = TransformerBridge.boot_transformers(
        "local", hf_model=copy.deepcopy(model), tokenizer=copy.deepcopy(tokenizer), device=str(model.device)
    )

    def zero(head: int) -> Callable[..., Tensor]:
        def hook(z: Tensor, hook: Any) -> Tensor:  # [B, T, heads, width]  # noqa: ARG001
            z[:, :, head, :] = 0
            return z

        return hook

    hooks = [(f"blocks.{layer}.attn.hook_z", zero(head)) for layer, head in (grid.heads[i] for i in heads)]

    @torch.no_grad()
    def run() -> Tensor:
        return bridge.run_with_hooks(
            ids, attention_mask=attention_mask, return_type="logits", fwd_hooks=hooks
        )

    return run


def _nnsight(
    model: Any, grid: HeadGrid, heads: list[int], ids: Tensor, attention_mask: Tensor
) -> Callable[[], Tensor]:
    from nnsight import NNsight

    wrapped: Any = NNsight(model)
    layer_of = {layer.number: layer for layer in attention_layers(model)}
    where = [
        (number, layer_of[number].columns(head)) for number, head in sorted(grid.heads[i] for i in heads)
    ]

    def run() -> Tensor:
        with torch.no_grad(), wrapped.trace(input_ids=ids, attention_mask=attention_mask):
            for number, columns in where:
                wrapped.model.layers[number].self_attn.o_proj.input[:, :, columns] = 0
            logits = wrapped.lm_head.output.save()
        return logits  # noqa: RET504 - the trace rewrites the block

    return run


def _batch(tokenizer: Any, prompts: PromptSet, device: torch.device) -> tuple[Tensor, Tensor]:
    rows = [tuple(tokenizer(prompt.text + prompt.answer)["input_ids"]) for prompt in prompts.prompts]
    ids, mask = pad_right(rows, 0)
    return ids.to(device), mask.to(device)


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _results(times: dict[str, list[float]], masks: int) -> dict[str, Any]:
    scored = {"masks together": masks, "mask by mask": FEW, "prefix read anew": FEW}
    seconds = {  # a mask
        name: [
            taken / next((n for way, n in scored.items() if name.startswith(way)), 1) for taken in all_taken
        ]
        for name, all_taken in times.items()
    }

    def ratio(above: str, below: str) -> dict[str, float]:
        ratios = [a / b for a, b in zip(seconds[above], seconds[below], strict=True)]
        spread = {"min": min(ratios), "median": statistics.median(ratios), "max": max(ratios)}
        return {key: round(value, 4) for key, value in spread.items()}

    def by_capability(above: str, below: str) -> dict[str, dict[str, float]]:
        return {name: ratio(f"{above} {name}", f"{below} {name}") for name in CAPABILITIES}

    return {
        "one_mask_over_bare": ratio("one_mask", "bare"),
        "reference_over_ours": by_capability("reference", "masks together"),
        "mask_by_mask_over_masks_together": by_capability("mask by mask", "masks together"),
        "prefix_read_anew_over_shared": by_capability("prefix read anew", "mask by mask"),
        "peer_over_ours": {
            name.split()[1]: ratio(name, "one_mask") for name in seconds if name.startswith("peer")
        },
        "median_seconds_a_mask": {
            name: round(statistics.median(taken), 4) for name, taken in seconds.items()
        },
    }


def _peers() -> list[str]:
    modules = {"transformer-lens": "transformer_lens", "nnsight": "nnsight"}
    return [name for name, module in modules.items() if find_spec(module) is not None]


def _device_name(model: Any) -> str:
    if model.device.type == "cuda":
        return torch.cuda.get_device_name(model.device)
    return f"{model.device.type} ({platform.machine()})"


def _print(results: dict[str, Any]) -> None:
    table = Table("ratio of times", "median", "least", "greatest")
    for name, value in results.items():
        if name in ("setting", "median_seconds_a_mask"):
            continue
        for key, spread in ({"": value} if "median" in value else value).items():
            figures = (f"{spread[at]:.2f}" for at in ("median", "min", "max"))
            table.add_row(f"{name.replace('_', ' ')} {key}".strip(), *figures)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)

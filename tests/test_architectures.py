"""Every architecture: knockouts, scores, generation, gradients and exports are what plain transformers says."""

import copy
from functools import cache

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from architectures import ARCHITECTURES, HYBRIDS, build
from caploc import knockout
from caploc.capabilities.prompts import Metric, Prompt, PromptSet
from caploc.exporting import export
from caploc.generation import generate
from caploc.gradients import gate_gradients, margin_gradients
from caploc.heads import HeadGrid
from caploc.knockouts import head_gates
from caploc.models.attention import attention_layers, decoder_layers, head_grid
from caploc.models.trial import try_heads
from caploc.replacements import MeanReplacement, ResampleReplacement
from caploc.scoring import Scorer
from conftest import plain_margins, plain_scores, zero_columns

INPUTS = torch.arange(3, 51).reshape(2, 24)  # longer than the sliding windows
FEW_SHOT = "hot -> cold; up -> down; "
TEXTS = ["one", "three four", "a rather longer prompt than the others", "five six seven eight"]

kept = cache(build)


@pytest.fixture(params=ARCHITECTURES)
def name(request):
    return request.param


@pytest.fixture
def model(name):
    """One model an architecture for all tests; a test that changes weights takes a copy."""
    return kept(name)


@pytest.fixture
def heads(model):
    """Three heads, in the first and the last attention layer."""
    layers = attention_layers(model)
    return [(layers[0].number, 1), (layers[-1].number, 3), (layers[-1].number, 0)]


@pytest.fixture
def oracle(model, heads):
    copied = copy.deepcopy(model)
    zero_columns(copied, heads)
    return copied


def close(found, expected, atol=1e-5):
    torch.testing.assert_close(found, expected, atol=atol, rtol=1e-5)


def test_the_grid_lists_attention_layers_under_their_true_numbers(name, model):
    settings = ARCHITECTURES[name][1]
    n_heads = next(
        settings[key] for key in ("num_attention_heads", "n_head", "n_heads", "num_heads") if key in settings
    )
    numbers = HYBRIDS.get(name, range(4 if name == "gpt_neo" else 3))
    assert head_grid(model) == HeadGrid((n_heads,) * len(numbers), tuple(numbers))


def test_head_width_is_that_of_the_values(name, model):
    settings = ARCHITECTURES[name][1]
    expected = (
        settings.get("v_head_dim") or settings.get("head_dim") or 64 // head_grid(model).heads_per_layer[0]
    )
    assert {layer.head_width for layer in attention_layers(model)} == {expected}


def test_a_loaded_model_is_tried(model):
    try_heads(model, attention_layers(model))


def test_logits_equal_those_of_zeroed_columns(model, heads, oracle):
    with knockout(model, heads):
        found = model(INPUTS).logits
    close(found, oracle(INPUTS).logits)
    assert (found - model(INPUTS).logits).abs().max() > 1e-3 * found.std()


def test_a_head_is_a_slice_of_the_projections_input_not_of_its_output(model, heads):
    layer = attention_layers(model)[0]

    def zero_output_slice(_module, _args, output):
        output = output.clone()
        output[..., layer.head_width : 2 * layer.head_width] = 0
        return output

    with knockout(model, heads[:1]):
        ours = model(INPUTS).logits
    handle = layer.projection.register_forward_hook(zero_output_slice)
    mistaken = model(INPUTS).logits
    handle.remove()
    assert (ours - mistaken).abs().max() > 1e-4


def test_query_heads_are_told_apart(model):
    layer = attention_layers(model)[-1]
    seen = {}
    with knockout(model, [(layer.number, 2)]):
        spy = layer.projection.register_forward_pre_hook(lambda _m, args: seen.update(gated=args[0].clone()))
        model(INPUTS)
        spy.remove()
    spy = layer.projection.register_forward_pre_hook(lambda _m, args: seen.update(intact=args[0].clone()))
    model(INPUTS)
    spy.remove()
    difference = (seen["intact"] != seen["gated"]).reshape(-1, layer.n_heads, layer.head_width)
    assert difference.any(0).any(1).tolist() == [head == 2 for head in range(layer.n_heads)]
    assert not seen["gated"].reshape(-1, layer.n_heads, layer.head_width)[:, 2].any()


def test_a_whole_layer_knocked_out_leaves_exactly_the_projections_bias(model):
    layer = attention_layers(model)[0]
    outputs = {}
    handle = layer.projection.register_forward_hook(lambda _m, _a, output: outputs.update(found=output))
    with knockout(model, [(layer.number, head) for head in range(layer.n_heads)]):
        model(INPUTS)
    handle.remove()
    bias = getattr(layer.projection, "bias", None)
    expected = torch.zeros_like(outputs["found"]) if bias is None else bias.expand_as(outputs["found"])
    assert torch.equal(outputs["found"], expected)


def test_every_row_may_have_gates_of_its_own(model, heads):
    grid = head_grid(model)
    gates = torch.cat([head_gates(grid, heads[:1]), head_gates(grid, heads[1:])])
    with knockout(model, gates):
        together = model(INPUTS).logits
    for row, mask in enumerate([heads[:1], heads[1:]]):
        with knockout(model, mask):
            close(together[row], model(INPUTS[row : row + 1]).logits[0], atol=5e-5)


def test_nothing_outlives_an_exception_and_foreign_hooks_stay(model, heads):
    intact = model(INPUTS).logits
    fired = []
    foreign = attention_layers(model)[0].projection.register_forward_pre_hook(lambda *_: fired.append(1))
    with pytest.raises(KeyboardInterrupt), knockout(model, heads):
        raise KeyboardInterrupt
    assert torch.equal(model(INPUTS).logits, intact)
    assert fired == [1]
    foreign.remove()
    assert all("forward" not in vars(module) for module in model.modules())


def test_attention_implementations_agree(name, model, heads):
    other = build(name)
    if not other._supports_sdpa or name == "gemma2":
        pytest.skip("sdpa lacks what it needs, such as soft caps")
    other.set_attn_implementation("sdpa")
    with knockout(model, heads):
        expected = model(INPUTS).logits
    with knockout(other, heads):
        close(other(INPUTS).logits, expected, atol=5e-5)


def test_cached_generation_equals_uncached_and_knocks_out_at_every_step(model, heads, oracle):
    steps = []
    settings = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    spy = attention_layers(model)[0].projection.register_forward_hook(lambda *_: steps.append(1))
    with knockout(model, heads):
        cached = model.generate(INPUTS, attention_mask=torch.ones_like(INPUTS), use_cache=True, **settings)
        assert len(steps) == 6
        uncached = model.generate(INPUTS, attention_mask=torch.ones_like(INPUTS), use_cache=False, **settings)
    spy.remove()
    assert torch.equal(cached, uncached)
    assert torch.equal(cached, oracle.generate(INPUTS, attention_mask=torch.ones_like(INPUTS), **settings))


@pytest.mark.parametrize("prefix", ["", FEW_SHOT])
def test_scores_equal_plain_transformers_one_prompt_at_a_time(
    model, tokenizer, random_prompts, heads, oracle, prefix
):
    prompts = random_prompts(7, Metric.CHOICE, prefix=prefix)
    expected, correct = plain_scores(oracle, tokenizer, prompts)
    for batch_tokens in (1, 100, 4096):
        scores = Scorer(model, tokenizer, batch_tokens=batch_tokens).score(prompts, heads)
        np.testing.assert_allclose(scores.logprob, expected, atol=2e-5)
        np.testing.assert_array_equal(scores.correct, correct)


def test_masks_that_share_a_forward_score_as_they_do_alone(model, tokenizer, random_prompts, heads):
    prompts = random_prompts(5, prefix=FEW_SHOT)
    masks = [heads, [], heads[:1], heads[1:]]
    alone = Scorer(model, tokenizer, share_masks=False)
    together = Scorer(model, tokenizer, share_masks=True)
    together.score(prompts)  # probes the cache, once
    calls = []
    spy = model.register_forward_pre_hook(lambda *_: calls.append(1))
    shared = dict(together.score_masks(prompts, masks))
    spy.remove()
    at_once = together.masks_at_once(together.encode(prompts))
    batches = len(together.encode(prompts).batches(4096, model.device, masks=at_once))
    assert at_once >= 4
    assert len(calls) == 2 * (batches + together.forwards.goes_on)  # the intact model once, all masks once
    for position, scores in shared.items():
        mask = masks[position]
        expected = alone.score(prompts, mask)
        np.testing.assert_allclose(scores.logprob, expected.logprob, atol=2e-5)
        np.testing.assert_array_equal(scores.correct, expected.correct)


def test_masks_that_begin_late_recall_the_early_layers(model, tokenizer, random_prompts):
    prompts = random_prompts(5, prefix=FEW_SHOT)
    last = attention_layers(model)[-1]
    masks = [[(last.number, head)] for head in range(4)]
    scorer = Scorer(model, tokenizer)
    modules = list(model.modules())
    expected = [scorer.score(prompts, mask) for mask in masks]  # a mask alone recalls nothing
    calls = []
    spy = decoder_layers(model)[0].register_forward_pre_hook(lambda *_: calls.append(1))
    found = dict(scorer.score_masks(prompts, masks))
    spy.remove()
    batches = len(
        scorer.encode(prompts).batches(4096, model.device, masks=scorer.masks_at_once(scorer.encode(prompts)))
    )
    assert len(calls) == batches + 2 * scorer.forwards.goes_on  # prefixes, and the recording
    for position, scores in found.items():
        np.testing.assert_allclose(scores.logprob, expected[position].logprob, atol=2e-5)
    assert list(model.modules()) == modules


@pytest.mark.parametrize("prefix", ["", FEW_SHOT])
def test_answers_equal_plain_generation_one_prompt_at_a_time(model, tokenizer, heads, oracle, prefix):
    texts = [prefix + text for text in TEXTS]
    found = generate(Scorer(model, tokenizer), texts, heads, max_new_tokens=8)
    for text, answer in zip(texts, found, strict=True):
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        settings = {
            "max_new_tokens": 8,
            "do_sample": False,
            "pad_token_id": 0,
            "attention_mask": torch.ones_like(ids),
        }
        expected = oracle.generate(ids, **settings)[0, ids.shape[1] :]
        assert answer == tokenizer.decode(expected)


def test_gate_gradients_equal_finite_differences(model, tokenizer, random_prompts):
    prompts = random_prompts(4, prefix=FEW_SHOT)
    model = copy.deepcopy(model).double()  # a step small enough for kinks and routers needs the digits
    model.set_experts_implementation("eager")  # the grouped kernel knows no double precision
    scorer = Scorer(model, tokenizer, batch_tokens=160)
    assert len(scorer.encode(prompts).batches(40, model.device)) > 1
    found = gate_gradients(scorer, prompts)
    step = 1e-3
    for head in (1, len(found) - 1):
        up, down = (mean_logprob(model, tokenizer, prompts, head, 1 + sign * step) for sign in (1, -1))
        np.testing.assert_allclose(found[head], (up - down) / (2 * step), rtol=2e-2, atol=2e-3)
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("metric", [Metric.EXACT, Metric.CHOICE, Metric.LOGPROB])
def test_margin_gradients_equal_finite_differences(model, tokenizer, random_prompts, metric):
    prompts = random_prompts(3, metric, prefix=FEW_SHOT)
    model = copy.deepcopy(model).double()
    model.set_experts_implementation("eager")
    scorer = Scorer(model, tokenizer, batch_tokens=160)
    found = margin_gradients(scorer, prompts, gate=0.75)
    step, head = 1e-3, found.shape[1] - 1
    up, down = (margins(model, tokenizer, prompts, head, 0.75 + sign * step) for sign in (1, -1))
    np.testing.assert_allclose(found[:, head], (up - down) / (2 * step), rtol=2e-2, atol=2e-3)
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in model.parameters())


def margins(model, tokenizer, prompts, head, gate):
    gates = torch.full((1, len(head_grid(model))), 0.75)
    gates[0, head] = gate
    with knockout(model, gates):
        if prompts.metric is Metric.LOGPROB:
            logprob = plain_scores(model, tokenizer, PromptSet(Metric.EXACT, prompts.prompts))[0]
            return logprob / [len(tokenizer(prompt.answer)["input_ids"]) for prompt in prompts.prompts]
        return plain_margins(model, tokenizer, prompts)


def mean_logprob(model, tokenizer, prompts, head, gate):
    with knockout(model, [head], scale=gate):
        return plain_scores(model, tokenizer, PromptSet(Metric.EXACT, prompts.prompts))[0].mean()


def test_an_exported_checkpoint_scores_as_under_hooks(model, tokenizer, heads, tmp_path):
    export(copy.deepcopy(model), tokenizer, heads, tmp_path / "out", source="tiny")
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out", attn_implementation="eager").eval()
    with knockout(model, heads):
        close(exported(INPUTS).logits, model(INPUTS).logits)


def test_a_row_without_finite_logits_is_marked(model, tokenizer, heads):
    poison = tokenizer("~")["input_ids"][0]

    def poisoned(_module, args, output):
        return output.masked_fill((args[0] == poison)[..., None], float("nan"))

    prompts = PromptSet(Metric.EXACT, (Prompt("good", "x"), Prompt("b~d", "x"), Prompt("fine", "y")))
    hook = model.get_input_embeddings().register_forward_hook(poisoned)
    scores = Scorer(model, tokenizer).score(prompts, heads)
    hook.remove()
    assert scores.valid.tolist() == [True, False, True]
    assert np.isnan(scores.correct[1])


def test_the_mean_replaces_what_a_head_writes(model, heads):
    reference = {
        "input_ids": torch.arange(40).reshape(2, 20),
        "attention_mask": torch.ones(2, 20, dtype=torch.long),
    }
    reference["attention_mask"][0, 15:] = 0
    layer = next(layer for layer in attention_layers(model) if layer.number == heads[0][0])
    seen = []
    spy = layer.projection.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    model(**reference)
    replacement = MeanReplacement(model, [reference])
    with knockout(model, heads, replacement=replacement):
        inner = layer.projection.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
        model(INPUTS)
        inner.remove()
    spy.remove()
    columns = slice(layer.head_width, 2 * layer.head_width)
    expected = seen[0][reference["attention_mask"].bool()].mean(0)[columns]
    close(seen[-1][..., columns], expected.expand(2, 24, -1))


def test_resampling_from_the_prompt_itself_changes_nothing(model, heads):
    intact = model(INPUTS).logits
    with knockout(model, heads, replacement=ResampleReplacement(model, {"input_ids": INPUTS})):
        close(model(INPUTS).logits, intact)


def test_gate_gradients_leave_parameters_alone_and_work_in_inference_mode(tokenizer, random_prompts):
    prompts = random_prompts(4, prefix=FEW_SHOT)
    trainable = build("llama").requires_grad_(requires_grad=True)
    expected = gate_gradients(Scorer(trainable, tokenizer), prompts)
    assert all(parameter.grad is None for parameter in trainable.parameters())
    with torch.inference_mode():
        found = gate_gradients(Scorer(trainable, tokenizer), prompts)
    np.testing.assert_allclose(found, expected, atol=1e-5)

"""Scores against plain transformers: one prompt at a time, no padding, no cache, full logits."""

import copy

import numpy as np
import pytest
import torch

from caploc.capabilities.prompts import Metric, Prompt, PromptSet
from caploc.errors import CaplocError
from caploc.models.attention import attention_layers
from caploc.scoring import Scorer
from conftest import plain_margins, plain_scores, zero_columns

FEW_SHOT = "hot -> cold; up -> down; "


@pytest.mark.parametrize("metric", [Metric.EXACT, Metric.CHOICE])
@pytest.mark.parametrize("prefix", ["", FEW_SHOT])
@pytest.mark.parametrize("heads", [[], [(0, 1), (1, 2), (2, 0)]])
def test_scores_equal_plain_transformers(model, tokenizer, random_prompts, metric, prefix, heads):
    prompts = random_prompts(20, metric, prefix=prefix)
    scorer = Scorer(model, tokenizer, batch_tokens=64)
    assert len(scorer.encode(prompts).prefix) == len(prefix)
    assert len(scorer.encode(prompts).batches(64, model.device)) > 1
    oracle = copy.deepcopy(model)
    zero_columns(oracle, heads)
    logprob, correct = plain_scores(oracle, tokenizer, prompts)
    found = scorer.score(prompts, heads)
    np.testing.assert_allclose(found.logprob, logprob, atol=1e-4)
    np.testing.assert_array_equal(found.correct, correct)
    np.testing.assert_allclose(found.margin, plain_margins(oracle, tokenizer, prompts), atol=1e-4)
    np.testing.assert_array_equal(found.margin > 0, correct)
    assert found.valid.all()


def test_a_greedy_answer_is_correct(model, tokenizer):
    texts = ["one", "three four", "five six seven eight"]
    prompts = []
    for text in texts:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        for _ in range(3):
            logits = model(ids).logits[:, -1, :100]
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
        prompts.append(Prompt(text, tokenizer.decode(ids[0, -3:]).replace(" ", "") or "x"))
    sets = PromptSet(Metric.EXACT, tuple(prompts))
    _, expected = plain_scores(model, tokenizer, sets)
    np.testing.assert_array_equal(Scorer(model, tokenizer).score(sets).correct, expected)


def test_scores_do_not_depend_on_batch_size(model, tokenizer, random_prompts):
    prompts = random_prompts(17, prefix=FEW_SHOT)
    sizes = {}
    for batch_tokens in (1, 40, 4096):
        scorer = Scorer(model, tokenizer, batch_tokens=batch_tokens)
        sizes[batch_tokens] = scorer.score(prompts, [0, 3])
    for scores in sizes.values():
        np.testing.assert_allclose(scores.logprob, sizes[1].logprob, atol=1e-5)
        np.testing.assert_array_equal(scores.correct, sizes[1].correct)


def test_a_forward_holds_what_the_settings_say(llama, tokenizer, random_prompts):
    seen = []
    llama.model.register_forward_pre_hook(
        lambda _m, _a, kw: seen.append(kw["input_ids"].shape), with_kwargs=True
    )
    Scorer(llama, tokenizer, batch_tokens=60).score(random_prompts(30))
    assert len(seen) > 1
    assert all(rows == 1 or rows * width <= 60 for rows, width in seen)


def test_memory_that_runs_out_halves_the_batch_and_nothing_is_lost(llama, tokenizer, random_prompts):
    prompts = random_prompts(20, prefix=FEW_SHOT)
    masks = [[0], [5, 6], []]
    expected = [Scorer(llama, tokenizer).score(prompts, mask) for mask in masks]
    seen = []

    def short_of_memory(_module, _args, kwargs):
        seen.append(kwargs["input_ids"].numel())
        if seen[-1] > 100:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    llama.model.register_forward_pre_hook(short_of_memory, with_kwargs=True)
    scorer = Scorer(llama, tokenizer, batch_tokens=1000, share_masks=True)
    for position, scores in scorer.score_masks(prompts, masks):
        np.testing.assert_allclose(scores.logprob, expected[position].logprob, atol=2e-5)
    assert max(seen) > 100 >= seen[-1]
    assert scorer.forwards.batch_tokens < 1000


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
            CaplocError,
            "one prompt alone does not fit into memory",
        ),
        (RuntimeError("expected scalar type Float but found Half"), RuntimeError, "expected scalar type"),
    ],
    ids=["never enough memory", "another error"],
)
def test_an_error_that_smaller_batches_do_not_mend_is_raised(
    llama, tokenizer, random_prompts, error, raised, message
):
    def fail(*_):
        raise error

    scorer = Scorer(llama, tokenizer)
    scorer.encode(random_prompts(3))
    llama.model.register_forward_pre_hook(fail)
    with pytest.raises(raised, match=message):
        scorer.score(random_prompts(3))


def test_verdicts_in_bfloat16_do_not_depend_on_batch_size(llama, tokenizer, random_prompts):
    prompts = random_prompts(24, Metric.CHOICE, prefix=FEW_SHOT)
    model = llama.bfloat16()
    verdicts = [
        Scorer(model, tokenizer, batch_tokens=n).score(prompts, [0, 3]).correct for n in (1, 64, 300, 4096)
    ]
    for found in verdicts[1:]:
        np.testing.assert_array_equal(found, verdicts[0])


def test_many_masks_share_forwards_only_up_to_the_token_budget(llama, tokenizer, random_prompts):
    prompts = random_prompts(4, prefix=FEW_SHOT)
    scorer = Scorer(llama, tokenizer, batch_tokens=400, share_masks=True)
    scorer.encode(prompts)
    seen = []
    llama.model.register_forward_pre_hook(
        lambda _m, _a, kw: seen.append(kw["input_ids"].numel()), with_kwargs=True
    )
    masks = [[i] for i in range(20)]
    found = dict(scorer.score_masks(prompts, masks))
    assert sorted(found) == list(range(20))
    together = max(seen)
    assert together <= 400
    seen.clear()
    scorer.score(prompts, [0])
    assert together >= 2 * max(seen)


def test_weights_changed_between_calls_are_seen(llama, tokenizer, random_prompts):
    prompts = random_prompts(5)
    masks = [["L2H0"], ["L2H1"], ["L2H2"], ["L2H3"]]
    scorer = Scorer(llama, tokenizer)
    dict(scorer.score_masks(prompts, masks))
    zero_columns(llama, [(0, 1), (0, 2)])
    found = dict(scorer.score_masks(prompts, masks))
    expected = dict(Scorer(llama, tokenizer).score_masks(prompts, masks))
    np.testing.assert_array_equal(found[3].logprob, expected[3].logprob)


def test_an_exception_among_recalled_layers_restores_the_model(llama, tokenizer, random_prompts):
    masks = [["L2H0"], ["L2H1"], ["L2H2"], ["L2H3"]]
    scorer = Scorer(llama, tokenizer)
    expected = scorer.score(random_prompts(5), masks[0])
    modules = list(llama.modules())
    calls = []

    def interrupted(*_):
        calls.append(1)
        if len(calls) == 2:  # the first call records
            raise KeyboardInterrupt

    hook = llama.model.layers[2].register_forward_pre_hook(interrupted)
    with pytest.raises(KeyboardInterrupt):
        dict(scorer.score_masks(random_prompts(5), masks))
    hook.remove()
    assert list(llama.modules()) == modules
    np.testing.assert_array_equal(scorer.score(random_prompts(5), masks[0]).logprob, expected.logprob)


def test_early_layers_too_large_to_keep_are_computed_for_every_mask(
    llama, tokenizer, random_prompts, monkeypatch
):
    from caploc import early_layers

    masks = [["L2H0"], ["L2H1"], ["L2H2"], ["L2H3"]]
    expected = dict(Scorer(llama, tokenizer).score_masks(random_prompts(5), masks))
    monkeypatch.setattr(early_layers, "_KEPT_BYTES", 100)
    found = dict(Scorer(llama, tokenizer).score_masks(random_prompts(5), masks))
    for position, scores in found.items():
        np.testing.assert_allclose(scores.logprob, expected[position].logprob, atol=1e-5)


def test_choices_of_one_token_share_an_input(llama, tokenizer):
    prompts = PromptSet(Metric.CHOICE, tuple(Prompt(f"text {i}", "a", ("b", "c")) for i in range(4)))
    scorer = Scorer(llama, tokenizer)
    assert [len(batch.input_ids) for batch in scorer.encode(prompts).batches(4096, llama.device)] == [4]
    logprob, correct = plain_scores(llama, tokenizer, prompts)
    np.testing.assert_allclose(scorer.score(prompts).logprob, logprob, atol=1e-4)
    np.testing.assert_array_equal(scorer.score(prompts).correct, correct)


def test_a_prompt_without_finite_logits_is_not_valid_rather_than_wrong(llama, tokenizer):
    poisoned = tokenizer("~")["input_ids"][0]
    llama.model.embed_tokens.weight.data[poisoned] = float("nan")
    prompts = PromptSet(Metric.EXACT, (Prompt("good", "x"), Prompt("ba~", "x"), Prompt("fine", "y")))
    scores = Scorer(llama, tokenizer).score(prompts)
    assert scores.valid.tolist() == [True, False, True]
    assert np.isnan(scores.correct[1])
    assert np.isnan(scores.logprob[1])
    assert np.isfinite(scores.logprob[[0, 2]]).all()


def test_a_choice_without_a_wrong_answer_is_named(llama, tokenizer):
    prompts = PromptSet(Metric.CHOICE, (Prompt("good", "x", ("y",)), Prompt("bad", "x")))
    with pytest.raises(CaplocError, match="'bad' has no wrong choice"):
        Scorer(llama, tokenizer).score(prompts)


def test_a_control_has_no_right_or_wrong(llama, tokenizer, random_prompts):
    scores = Scorer(llama, tokenizer).score(random_prompts(5, Metric.LOGPROB))
    assert np.isnan(scores.correct).all()
    assert np.isnan(scores.margin).all()
    assert (scores.logprob < 0).all()


def test_prompts_need_no_chat_template_no_padding_token_and_no_single_eos(llama, tokenizer, random_prompts):
    llama.config.eos_token_id = llama.generation_config.eos_token_id = [1, 2]
    assert tokenizer.chat_template is None
    assert tokenizer.pad_token is None
    assert Scorer(llama, tokenizer).score(random_prompts(9)).valid.all()


def test_a_prompt_beyond_the_context_is_refused(llama, tokenizer):
    with pytest.raises(CaplocError, match="has 301 tokens; the model's context is 256"):
        Scorer(llama, tokenizer).encode(PromptSet(Metric.EXACT, (Prompt("x" * 300, "y"),)))


def test_an_answer_needs_a_token(llama, tokenizer):
    with pytest.raises(CaplocError, match="does not keep the answer"):
        Scorer(llama, tokenizer).encode(PromptSet(Metric.EXACT, (Prompt("x", ""),)))


def test_left_out_heads_restore_the_model(llama, tokenizer, random_prompts):
    prompts = random_prompts(4)
    scorer = Scorer(llama, tokenizer)
    before = scorer.score(prompts).logprob
    assert not np.allclose(scorer.score(prompts, range(24)).logprob, before)
    np.testing.assert_array_equal(scorer.score(prompts).logprob, before)
    assert not any(layer.projection._forward_pre_hooks for layer in attention_layers(llama))


def test_a_tokenizer_that_appends_an_end_token_is_refused(llama, tokenizer):
    from tokenizers.processors import TemplateProcessing

    end = ("|", tokenizer.convert_tokens_to_ids("|"))
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A |", special_tokens=[end])
    with pytest.raises(CaplocError, match="does not keep the answer"):
        Scorer(llama, tokenizer).encode(PromptSet(Metric.EXACT, (Prompt("hello", "wxy"),)))


def test_an_answer_that_merges_with_the_text_is_refused(llama):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"x": 0, "a": 1, "b": 2, "d": 3, "ab": 4}
    merging = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocabulary, [("a", "b")])))
    assert merging("xabd")["input_ids"] == [0, 4, 3]
    with pytest.raises(CaplocError, match="does not keep the answer 'bd' apart"):
        Scorer(llama, merging).encode(PromptSet(Metric.EXACT, (Prompt("xa", "bd"),)))


def test_several_donors_are_refused_for_rows_are_reordered(llama, tokenizer, random_prompts):
    from caploc.generation import generate
    from caploc.replacements import ResampleReplacement

    scorer = Scorer(llama, tokenizer)
    two = ResampleReplacement(llama, {"input_ids": torch.arange(20).reshape(2, 10)})
    with pytest.raises(ValueError, match="give one donor"):
        scorer.score(random_prompts(2), [0], replacement=two)
    with pytest.raises(ValueError, match="give one donor"):
        generate(scorer, ["ab", "abc"], [0], max_new_tokens=2, replacement=two)


def test_an_empty_prompt_set_is_refused(llama, tokenizer):
    with pytest.raises(CaplocError, match="prompt set is empty"):
        Scorer(llama, tokenizer).score(PromptSet(Metric.EXACT, ()))


def test_the_context_is_known_however_the_config_calls_it(tokenizer):
    from architectures import build

    with pytest.raises(CaplocError, match="the model's context is 256"):
        Scorer(build("mpt"), tokenizer).encode(PromptSet(Metric.EXACT, (Prompt("x" * 256, "y"),)))

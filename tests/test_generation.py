"""Greedy answers end where they should, whatever shares their batch."""

import pytest
import torch

from architectures import build
from caploc import knockout
from caploc.errors import CaplocError
from caploc.generation import generate
from caploc.scoring import Scorer

FEW_SHOT = "hot -> cold; up -> down; "
TEXTS = ["one", "three four", "a rather longer prompt than the others", "five six seven eight", "one"]


def plain(model, tokenizer, text, **settings):
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0, **settings
    )
    return out[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("batch_tokens", [1, 90, 4096])
def test_answers_do_not_depend_on_the_batch(llama, tokenizer, batch_tokens):
    scorer = Scorer(llama, tokenizer, batch_tokens=batch_tokens)
    answers = generate(scorer, [FEW_SHOT + text for text in TEXTS], ["L1H3"], max_new_tokens=9)
    with knockout(llama, ["L1H3"]):
        expected = [
            tokenizer.decode(plain(llama, tokenizer, FEW_SHOT + text, max_new_tokens=9)) for text in TEXTS
        ]
    assert answers == expected
    assert answers[0] == answers[-1]


@pytest.mark.parametrize("as_list", [False, True])
def test_the_end_token_ends_an_answer_and_is_no_part_of_it(llama, tokenizer, as_list):
    whole = plain(llama, tokenizer, TEXTS[0], max_new_tokens=12)
    end = whole[4]
    llama.generation_config.eos_token_id = [end, 127] if as_list else end
    llama.config.eos_token_id = llama.generation_config.eos_token_id
    (answer,) = generate(Scorer(llama, tokenizer), TEXTS[:1], max_new_tokens=12)
    assert answer == tokenizer.decode(whole[: whole.index(end)])


def test_a_stop_string_ends_an_answer_and_its_row_leaves_the_batch(llama, tokenizer):
    scorer = Scorer(llama, tokenizer)
    whole = generate(scorer, TEXTS, max_new_tokens=12)
    stop = whole[0][3:5]
    rows = []
    llama.model.register_forward_pre_hook(
        lambda _m, _a, kw: rows.append(len(kw["input_ids"])), with_kwargs=True
    )
    found = generate(scorer, TEXTS, max_new_tokens=12, stop=[stop, "never said"])
    assert found == [answer.split(stop)[0] for answer in whole]
    assert rows[0] > rows[-1] or len(rows) < 12


def test_hybrids_and_sliding_windows_share_a_batch_only_at_equal_lengths(tokenizer):
    for name in ("jamba", "mistral"):
        model = build(name)
        rows = []
        scorer = Scorer(model, tokenizer)
        assert not scorer.forwards.keeps_all
        texts = ["abcd", "efgh", "ijklm"]
        expected = [tokenizer.decode(plain(model, tokenizer, text, max_new_tokens=4)) for text in texts]
        model.model.register_forward_pre_hook(
            lambda _m, _a, kw, rows=rows: rows.append(kw["input_ids"].shape), with_kwargs=True
        )
        assert generate(scorer, texts, max_new_tokens=4) == expected
        assert {(2, 4), (1, 5)} <= set(map(tuple, rows))


def test_memory_that_runs_out_halves_the_batch(llama, tokenizer):
    scorer = Scorer(llama, tokenizer)
    expected = generate(scorer, TEXTS, max_new_tokens=5)

    def short_of_memory(_module, _args, kwargs):
        if len(kwargs["input_ids"]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    llama.model.register_forward_pre_hook(short_of_memory, with_kwargs=True)
    assert generate(scorer, TEXTS, max_new_tokens=5) == expected


def test_prompts_without_room_or_tokens_are_refused(llama, tokenizer):
    scorer = Scorer(llama, tokenizer)
    with pytest.raises(CaplocError, match="exceeds the model's context of 256"):
        generate(scorer, ["x" * 250], max_new_tokens=7)
    with pytest.raises(CaplocError, match="empty prompt"):
        generate(scorer, [""], max_new_tokens=7)
    assert generate(scorer, [], max_new_tokens=7) == []


@pytest.mark.parametrize("settings", [{"max_new_tokens": 0}, {"max_new_tokens": 3, "stop": ["x", ""]}])
def test_an_answer_that_could_not_end_or_begin_is_refused(llama, tokenizer, settings):
    with pytest.raises(ValueError, match="at least 1, and a stop string"):
        generate(Scorer(llama, tokenizer), TEXTS, **settings)

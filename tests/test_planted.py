"""The whole method on models whose heads are planted: measured, recovered, localized, validated."""

import numpy as np
import pandas as pd
import pytest
import torch

from caploc.baseline import baseline_table
from caploc.capabilities.prompts import Capability, Metric, Prompt, PromptSet
from caploc.designs import sample_masks
from caploc.findings import conclude
from caploc.gradients import gradients_table
from caploc.measurement import Evaluation, Measurements, scores_table
from caploc.models.attention import head_grid
from caploc.params import Localization, load_params
from caploc.recovery.fits import fit_all, method
from caploc.recovery.observations import observe
from caploc.scoring import Scorer
from caploc.store import MeasurementStore
from caploc.validation import HeadSet, head_sets, validate
from conftest import build, character_tokenizer, plant

PLANTED = [(1, 1), (2, 0)]


def own_predictions(model, tokenizer, n, seed):
    """Prompts whose answer is the model's own greedy one: its baseline is 1."""
    rng = np.random.default_rng(seed)
    prompts = []
    for _ in range(n):
        text = "".join(rng.choice(list("abcdefgh"), size=rng.integers(3, 9)))
        answer = model(torch.tensor([tokenizer(text)["input_ids"]])).logits[0, -1, :94].argmax()
        prompts.append(Prompt(text, tokenizer.decode(answer)))
    return PromptSet(
        Metric.CHOICE, tuple(Prompt(p.text, p.answer, tuple(set("AB") - {p.answer})) for p in prompts)
    )


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    model, tokenizer = build("llama"), character_tokenizer()
    plant(model, PLANTED)
    splits = {
        split: own_predictions(model, tokenizer, 12, seed)
        for seed, split in enumerate(("measure", "validate"))
    }
    capability = Capability("planted", "", Metric.CHOICE, 0.0, splits)
    store = MeasurementStore(tmp_path_factory.mktemp("store"), {"sha256": "0", "dtype": "float32"})
    return model, capability, Measurements(store, lambda: Scorer(model, tokenizer), progress=False)


@pytest.mark.parametrize("estimator", ["bayes", "lasso"])
def test_planted_heads_are_found_and_proved(planted, estimator):
    model, capability, measurements = planted
    grid = head_grid(model)
    masks = sample_masks("balanced", len(grid), 60, 0.1, 0)
    prompts = capability.splits["measure"]
    evaluations = [Evaluation(tuple(np.flatnonzero(mask).tolist()), prompts) for mask in masks]
    measurements.fill(evaluations, "measure")
    table = scores_table({i: measurements.scores(e) for i, e in enumerate(evaluations)}, prompts)
    baseline = baseline_table({"planted": capability}, measurements)
    gradients = gradients_table(measurements.scorer, {"planted": capability}, [1.0, 0.75])
    observations = observe({"planted": table}, baseline, gradients)
    recovery = load_params().recovery.model_copy(update={"estimator": estimator})
    found = conclude(
        masks,
        fit_all(masks, observations, method(recovery, sparsity=2, seed=0)),
        ["planted"],
        grid,
        localization=Localization(objective="joint", weight=3.0),
        sparsity=2,
        replicates=20,
        seed=0,
    )
    strongest = found.effects.loc[found.effects["effect"].nsmallest(2).index, ["layer", "head"]]
    assert sorted(map(tuple, strongest.to_numpy().tolist())) == PLANTED
    assert sorted(found.heads["heads"]["planted"]["chosen"]) == ["L1H1", "L2H0"]
    assert found.heads["heads"]["planted"]["found"]
    sets = [
        HeadSet("chosen", "planted", tuple(grid.index(h) for h in PLANTED)),
        HeadSet("random-0", "", (0, 1)),
    ]
    result = validate(sets, {"planted": capability}, baseline, measurements, bootstrap=200, seed=0)
    chosen, random = result.to_dict("records")
    assert chosen["drop"] > 0.3
    assert random["drop"] == random["ci_low"] == random["ci_high"] == 0
    assert chosen["baseline"] == random["baseline"]
    assert chosen["ci_low"] <= chosen["drop"] <= chosen["ci_high"]


def localization(chosen, target, k=3):
    return {"sparsity": k, "heads": {"one": {"chosen": chosen, "target": target}}}


def test_sets_to_validate():
    grid = head_grid(build("llama"))
    sets = head_sets(localization(["L1H0", "L0H2", "L2H1"], ["L0H0"]), grid, random_sets=2, seed=0)
    assert [(s.name, s.heads, s.complete) for s in sets[:4]] == [
        ("chosen", (8, 2, 17), True),
        ("target", (0,), True),
        ("chosen", (8,), False),
        ("chosen", (8, 2), False),
    ]
    assert [(s.name, len(set(s.heads))) for s in sets[4:]] == [("random-0", 3), ("random-1", 3)]
    more = head_sets(localization(["L1H0"], []), grid, random_sets=3, seed=0)
    assert [s.heads for s in more[-3:-1]] == [s.heads for s in sets[4:]]


def test_drops_are_paired_and_a_control_counts_nats_a_token(tmp_path, llama, tokenizer, random_prompts):
    exact = random_prompts(10)
    prose = random_prompts(10, Metric.LOGPROB)
    capabilities = {
        "exact": Capability("exact", "", Metric.EXACT, 0.0, {"measure": exact, "validate": exact}),
        "prose": Capability("prose", "", Metric.LOGPROB, 0.0, {"measure": prose, "validate": prose}),
    }
    scorer = Scorer(llama, tokenizer)
    measurements = Measurements(
        MeasurementStore(tmp_path, {"sha256": "0", "dtype": "float32"}), lambda: scorer, progress=False
    )
    baseline = baseline_table(capabilities, measurements)
    sets = [HeadSet("chosen", "exact", (0, 9)), HeadSet("chosen", "exact", (0,), complete=False)]
    result = validate(sets, capabilities, baseline, measurements, bootstrap=500, seed=0)
    assert result[["k", "capability"]].to_numpy().tolist() == [[2, "exact"], [2, "prose"], [1, "exact"]]
    row = result.iloc[1]
    before, after = scorer.score(prose), scorer.score(prose, (0, 9))
    tokens = sum(len(prompt.answer) for prompt in prose.prompts)
    assert row["baseline"] == pytest.approx(before.logprob.sum() / tokens)
    assert row["drop"] == pytest.approx((before.logprob.sum() - after.logprob.sum()) / tokens)
    assert row["ci_low"] < row["drop"] < row["ci_high"]
    pd.testing.assert_frame_equal(
        validate(sets, capabilities, baseline, measurements, bootstrap=500, seed=0), result
    )

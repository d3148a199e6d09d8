"""The store and the filling of it: resume, two writers, provenance, nothing measured twice."""

import json

import numpy as np
import pandas as pd
import pytest

from caploc.baseline import baseline_table, require_above_floor
from caploc.capabilities.prompts import Capability, Metric, Prompt, PromptSet
from caploc.designs import sample_masks
from caploc.errors import CaplocError
from caploc.files import read_table, write_table
from caploc.measurement import Evaluation, Measurements, scores_table
from caploc.scoring import Scorer, Scores
from caploc.store import MeasurementStore

MODEL = {"sha256": "ab" * 32, "dtype": "float32"}


class CountingScorer(Scorer):
    """A scorer that counts, and may be killed."""

    def __init__(self, *args, dies_after=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = 0
        self.dies_after = dies_after

    def score_masks(self, prompts, masks, **settings):
        for found in super().score_masks(prompts, masks, **settings):
            if self.calls == self.dies_after:
                raise KeyboardInterrupt
            self.calls += 1
            yield found


@pytest.fixture
def evaluations(random_prompts):
    masks = sample_masks("balanced", 24, 10, 0.1, 0)
    prompts = random_prompts(6)
    return [Evaluation(tuple(np.flatnonzero(mask).tolist()), prompts) for mask in masks]


def table(measurements, evaluations):
    scores = {i: measurements.scores(e) for i, e in enumerate(evaluations)}
    return scores_table(scores, evaluations[0].prompts)


def test_a_killed_run_resumes_and_ends_the_same(tmp_path, llama, tokenizer, evaluations):
    store = MeasurementStore(tmp_path / "killed", MODEL)
    dying = CountingScorer(llama, tokenizer, dies_after=5)
    with pytest.raises(KeyboardInterrupt):
        Measurements(store, lambda: dying, progress=False).fill(evaluations, "measure")
    resumed = CountingScorer(llama, tokenizer)
    rest = Measurements(store, lambda: resumed, progress=False)
    assert rest.fill(evaluations, "measure") == resumed.calls == 5
    whole = Measurements(
        MeasurementStore(tmp_path / "whole", MODEL), lambda: Scorer(llama, tokenizer), progress=False
    )
    whole.fill(evaluations, "measure")
    for name, measurements in [("resumed", rest), ("whole", whole)]:
        write_table(tmp_path / f"{name}.parquet", table(measurements, evaluations), store.context)
    assert (tmp_path / "resumed.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_what_is_measured_needs_no_model(tmp_path, llama, tokenizer, evaluations):
    store = MeasurementStore(tmp_path, MODEL)
    Measurements(store, lambda: Scorer(llama, tokenizer), progress=False).fill(evaluations, "measure")

    def refuse():
        raise AssertionError("nothing is missing")

    again = Measurements(store, refuse, progress=False)
    assert again.fill(evaluations, "measure") == 0


def test_only_new_masks_and_new_prompts_are_measured(tmp_path, llama, tokenizer, evaluations, random_prompts):
    scorer = CountingScorer(llama, tokenizer)
    measurements = Measurements(MeasurementStore(tmp_path, MODEL), lambda: scorer, progress=False)
    assert measurements.fill(evaluations[:4], "measure") == 4
    assert measurements.fill(evaluations, "measure") == 6
    other = random_prompts(6, seed=1)
    assert measurements.fill([*evaluations, Evaluation((3,), other)], "measure") == 1
    assert measurements.fill([evaluations[0], evaluations[0]], "measure") == 0


def test_the_key_is_all_that_scores_depend_on(tmp_path, random_prompts):
    prompts = random_prompts(2)
    scores = Scores(
        np.array([-1.0, -2.0]), np.array([1.0, 0.0]), np.array([0.5, -0.5]), np.array([True, True])
    )
    store = MeasurementStore(tmp_path, MODEL)
    store.put(prompts.fingerprint, [4, 2], scores)
    assert store.get(prompts.fingerprint, [2, 4]) is not None
    assert store.get(prompts.fingerprint, [2]) is None
    assert store.get(random_prompts(2, seed=1).fingerprint, [2, 4]) is None
    for change in ({"sha256": "cd" * 32}, {"dtype": "bfloat16"}):
        assert MeasurementStore(tmp_path, MODEL | change).get(prompts.fingerprint, [2, 4]) is None


def test_scores_come_back_as_they_went(tmp_path):
    rng = np.random.default_rng(0)
    scores = Scores(
        rng.normal(size=5),
        np.array([1, 0, np.nan, 1, 0.0]),
        rng.normal(size=5),
        np.array([True, True, False, True, True]),
    )
    scores.logprob[2] = scores.margin[2] = np.nan
    store = MeasurementStore(tmp_path, MODEL)
    store.put("f", [1], scores)
    found = store.get("f", [1])
    for name in ("logprob", "correct", "margin", "valid"):
        np.testing.assert_array_equal(getattr(found, name), getattr(scores, name))


def test_two_writers_do_no_harm_and_leave_no_parts(tmp_path):
    stores = [MeasurementStore(tmp_path, MODEL) for _ in range(2)]
    scores = Scores(np.array([-1.0]), np.array([1.0]), np.array([0.5]), np.array([True]))
    for store in stores:
        store.put("f", [1], scores)
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".json"]


def test_a_damaged_entry_is_named(tmp_path):
    store = MeasurementStore(tmp_path, MODEL)
    store.put("f", [1], Scores(np.array([-1.0]), np.array([1.0]), np.array([0.5]), np.array([True])))
    (entry,) = tmp_path.rglob("*.json")
    entry.write_text('{"logprob": [')
    with pytest.raises(CaplocError, match=f"{entry.name} is damaged"):
        store.get("f", [1])


def test_a_store_that_cannot_be_written_is_named(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a folder")
    store = MeasurementStore(blocked, MODEL)
    with pytest.raises(CaplocError, match="cannot be written"):
        store.put("f", [1], Scores(np.array([-1.0]), np.array([1.0]), np.array([0.5]), np.array([True])))


def test_tables_carry_their_provenance(tmp_path, llama, tokenizer, evaluations):
    import pyarrow.parquet as pq

    measurements = Measurements(
        MeasurementStore(tmp_path, MODEL), lambda: Scorer(llama, tokenizer), progress=False
    )
    measurements.fill(evaluations, "measure")
    found = table(measurements, evaluations)
    assert list(found.columns) == ["mask_id", "prompt_id", "logprob", "correct", "margin", "valid"]
    assert len(found) == 60
    write_table(tmp_path / "t.parquet", found, measurements.store.context)
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), found)
    assert json.loads(pq.read_schema(tmp_path / "t.parquet").metadata[b"caploc"])["model_sha256"] == "ab" * 32


def capability(name, metric, chance, prompts):
    return Capability(name, "", metric, chance, {"measure": prompts, "validate": prompts})


def baseline(tmp_path, llama, tokenizer, capabilities):
    measurements = Measurements(
        MeasurementStore(tmp_path, MODEL), lambda: Scorer(llama, tokenizer), progress=False
    )
    return baseline_table({c.name: c for c in capabilities}, measurements)


def test_a_capability_at_its_floor_is_named(tmp_path, llama, tokenizer, random_prompts):
    hopeless = capability("hopeless", Metric.EXACT, 0.0, random_prompts(8))
    control = capability("prose", Metric.LOGPROB, 0.0, random_prompts(8, Metric.LOGPROB))
    found = baseline(tmp_path, llama, tokenizer, [hopeless, control])
    with pytest.raises(
        CaplocError, match=r"does not have hopeless \(0.00 of the prompts correct, floor 0.10\)"
    ):
        require_above_floor(found, {"hopeless": hopeless, "prose": control}, 0.1)
    require_above_floor(found[found["capability"] == "prose"], {"prose": control}, 0.1)


def test_chance_is_a_floor_too(tmp_path, llama, tokenizer):
    texts = [f"text {i}" for i in range(6)]
    scorer = Scorer(llama, tokenizer)
    pairs = [Prompt(text, a, (b,)) for text in texts for a, b in (("a", "b"), ("b", "a"))]
    half = PromptSet(Metric.CHOICE, tuple(pairs))
    assert scorer.score(half).correct.mean() == 0.5
    guessing = capability("guessing", Metric.CHOICE, 0.5, half)
    found = baseline(tmp_path, llama, tokenizer, [guessing])
    with pytest.raises(CaplocError, match=r"guessing \(0.50 of the prompts correct, floor 0.50\)"):
        require_above_floor(found, {"guessing": guessing}, 0.1)


def test_a_baseline_without_finite_scores_is_named(tmp_path, llama, tokenizer, random_prompts):
    llama.lm_head.weight.data[:] = float("nan")
    broken = capability("broken", Metric.EXACT, 0.0, random_prompts(3))
    found = baseline(tmp_path, llama, tokenizer, [broken])
    assert list(found["tokens"]) == [len(prompt.answer) for prompt in broken.splits["measure"].prompts] * 2
    with pytest.raises(CaplocError, match="no finite score on prompts of broken"):
        require_above_floor(found, {"broken": broken}, 0.1)

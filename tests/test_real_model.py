"""The pipeline on the embedded default model, with a small budget."""

import json

import pytest

from repository import STAGES, Repository

pytestmark = pytest.mark.real_model

CAPABILITIES = ["indirect_object", "antonyms", "prose"]


def test_the_embedded_model_is_localized(tmp_path):
    repository = Repository(
        tmp_path,
        capabilities=CAPABILITIES,
        prompts={"measure": 8, "validate": 12},
        design={"masks": 20, "density": 0.05},
        recovery={"bootstrap": 3},
        validation={"random_sets": 1, "bootstrap": 100},
        runtime={"progress": False},
    )
    assert sorted(repository.ran("repro")) == sorted(STAGES)
    assert repository.measured() == (20 * len(CAPABILITIES), 0)
    model = json.loads(repository.read("artifacts/model.json"))
    assert model["heads_per_layer"] == [9] * 30
    assert model["head_dim"] == 64
    metrics = json.loads(repository.read("reports/metrics.json"))
    for name in CAPABILITIES[:2]:
        assert metrics[name]["baseline"] >= 0.6
        assert metrics[name]["heads"] <= 5
    assert metrics["mean"]["drop"] > metrics["mean"]["random_drop"]

"""The command line: what there is to choose from, and the last run."""

import json

import pytest
from typer.testing import CliRunner

from caploc.capabilities.registry import FAMILIES
from caploc.cli import app
from caploc.files import HEADS, METRICS, write_json
from caploc.models.sources import preset_names


def said(*words):
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_it_lists_models_and_capabilities():
    code, text = said("models")
    assert code == 0
    assert all(name in text for name in preset_names())
    assert "30 x 9" in text
    code, text = said("capabilities")
    assert code == 0
    assert all(name in text for name in FAMILIES)


def test_it_shows_the_last_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _ = said("show")
    assert code != 0
    row = {"baseline": 0.9, "knocked_out": 0.2, "drop": 0.7, "spillover": 0.1, "selectivity": 0.6, "heads": 1}
    write_json(METRICS, {"addition": row, "mean": {"drop": 0.7, "spillover": 0.1, "selectivity": 0.6}})
    addition = {"chosen": ["L3H1"], "target": ["L3H1"], "found": True, "enough_masks": True}
    write_json(HEADS, {"heads": {"addition": addition}, "universal": []})
    code, text = said("show")
    assert code == 0
    assert "0.90 -> 0.20" in text
    assert "L3H1" in text


def test_what_is_missing_is_named_with_its_remedy(tmp_path, monkeypatch):
    from caploc.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["caploc", "show"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert "run `dvc repro` first" in str(stop.value)


@pytest.fixture
def folder(tmp_path):
    from conftest import build, character_tokenizer

    build("llama").save_pretrained(tmp_path / "model")
    character_tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_it_scores_one_capability_under_a_knockout(folder):
    words = ["score", "--model", str(folder), "--capability", "sequences", "--prompts", "9"]
    result = CliRunner().invoke(app, [*words, "--knockout", "L1H2", "L0H7", "--json"])
    found = json.loads(result.stdout)
    assert found["heads"] == ["L0H7", "L1H2"]
    assert found["n"] == 9
    assert found["logprob"] != found["logprob_baseline"]
    assert found["ci_low"] <= found["drop"] <= found["ci_high"]
    code, text = said(*words, "--knockout", "L1H2", "--knockout", "L0H7")
    assert code == 0
    assert f"{found['logprob']:.3f}" in text


def test_it_exports_the_last_runs_heads(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_json(
        HEADS, {"heads": {"sequences": {"chosen": ["L2H5"], "target": []}, "addition": {"chosen": []}}}
    )
    words = ["export", "--model", str(folder), "--out", "out"]
    code, _ = said(*words, "--capability", "sequences")
    assert code == 0
    assert json.loads((tmp_path / "out/knockout.json").read_text())["knocked_out"] == ["L2H5"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["score", "--capability", "sequence", "--model", "x"],
            'unknown capability "sequence" \\(did you mean "sequences"',
        ),
        (["score", "--capability", "sequences"], "name a model with --model"),
        (["export", "--out", "new"], "say which heads"),
        (["export", "--out", "new", "--capability", "addition", "--knockout", "L0H0"], "say which heads"),
        (["export", "--out", "new", "--capability", "addition"], "dvc repro"),
        (["export", "--out", ".", "--knockout", "L0H0"], "is not an empty folder"),
        (["score", "--capability", "sequences", "--model", "MODEL", "--knockout", "L9H0"], "no head L9H0"),
        (
            ["score", "--capability", "sequences", "--model", "MODEL", "--prompts", "9999"],
            "prompts in its validate split",
        ),
    ],
)
def test_bad_words_are_named_with_their_remedy(folder, tmp_path, monkeypatch, words, complaint):
    from caploc.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["caploc", *(str(folder) if word == "MODEL" else word for word in words)])
    with pytest.raises(SystemExit, match=complaint):
        main()
    assert not (tmp_path / "new").exists()

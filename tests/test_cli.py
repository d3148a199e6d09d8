"""The command line: what there is to choose from, and the last run."""

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
    write_json(HEADS, {"heads": {"addition": {"chosen": ["L3H1"], "target": ["L3H1"]}}})
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

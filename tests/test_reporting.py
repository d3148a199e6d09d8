import json
import math
import re
from html import unescape

import pandas as pd
import pytest
from rich.console import Console

from caploc.errors import CaplocError
from caploc.reporting.figures import illustrations, png, save
from caploc.reporting.html import render_report
from caploc.reporting.plot_data import curve_rows, drop_rows, transfer_rows, write_plots
from caploc.reporting.tables import metrics, summary_table

HOSTILE = '<script>alert("$x_{")</script>&'
BASELINE = {"add": 0.9, "capital": 0.8, "empty": 0.7, "prose": -3.0}
MODEL = {
    "name": "<tiny>",
    "source": "wheel",
    "revision": "r1",
    "sha256": "ab" * 32,
    "dtype": "float32",
    "heads_per_layer": [3, 2],
    "layers": [0, 1],
    "head_dim": 4,
}


def row(head_set, localized, k, capability, drop):
    base = BASELINE.get(capability, 0.9)
    return {
        "head_set": head_set,
        "localized": localized,
        "k": k,
        "capability": capability,
        "metric": "logprob" if capability == "prose" else "exact",
        "n": 10,
        "baseline": base,
        "score": base - drop,
        "drop": drop,
        "ci_low": drop - 0.1,
        "ci_high": drop + 0.1,
    }


def drops(head_set, localized, k, *values):
    return [row(head_set, localized, k, name, drop) for name, drop in zip(BASELINE, values, strict=True)]


@pytest.fixture
def validation():
    return pd.DataFrame(
        [
            *drops("chosen", "add", 2, 0.6, 0.1, -0.2, 0.5),  # spillover (0.1 + 0) / 2
            *drops("target", "add", 2, 0.7, 0.5, 0.3, 0.9),  # spillover 0.4
            row("chosen", "add", 1, "add", 0.4),
            *drops("chosen", "capital", 1, -0.1, 0.5, -0.1, -0.04),  # spillover 0
            *drops("target", "capital", 1, 0.2, 0.5, 0.0, 0.0),  # spillover 0.1
            *drops("chosen", "empty", 0, 0.0, 0.0, 0.0, 0.0),
            *drops("target", "empty", 0, 0.0, 0.0, 0.0, 0.0),
            *drops("random-0", "", 2, 0.1, 0.0, -0.1, 9.0),
            *drops("random-1", "", 2, 0.3, 0.2, 0.1, 9.0),
        ]
    )


@pytest.fixture
def heads():
    lists = {"add": ["L0H1", "L1H0"], "capital": ["L0H0"], "empty": []}
    return {
        "sparsity": 2,
        "objective": "joint",
        "masks": 64,
        "heads": {name: finding(got) for name, got in lists.items()},
        "universal": ["L0H2"],
    }


def finding(chosen):
    """What recovery says of a capability; with fewer than two heads it is not sure."""
    sure = len(chosen) > 1
    return {
        "chosen": chosen,
        "target": chosen,
        "harmful": ["L1H1"] if sure else [],
        "selected": dict.fromkeys(chosen, 0.875),
        "p_value": 0.0004 if sure else 0.4,
        "found": sure,
        "regret": 0.03,
        "enough_masks": sure,
        "learning": [{"masks": 64, "agreement": 1.0, "worth": 0.5}],
    }


@pytest.fixture
def effects():
    """A ragged model, three heads and two: every head of every capability."""
    grid = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    chosen = {"add": {(0, 1), (1, 0)}, "capital": {(0, 0)}}
    return pd.DataFrame(
        [
            {
                "capability": name,
                "layer": layer,
                "head": head,
                "effect": -0.1 * head + 0.05 * layer,
                "stderr": 0.01,
                "standardized": -1.0 * head + 0.5 * layer,
                "chosen": (layer, head) in chosen.get(name, set()),
            }
            for name in BASELINE
            for layer, head in grid
        ]
    )


def renamed(frame, heads, name):
    """The same run with capability add called otherwise."""
    lists = {name if key == "add" else key: value for key, value in heads["heads"].items()}
    return frame.replace("add", name), {**heads, "heads": lists}


def report(effects, validation, heads):
    figures = illustrations(effects, validation, heads, list(heads["heads"]))
    return render_report(validation, heads, MODEL, figures, "sparsity: 2 # <b>\n")


def test_metrics_are_those_worked_out_by_hand(validation):
    assert metrics(validation) == {
        "add": {
            "baseline": 0.9,
            "knocked_out": 0.3,
            "drop": 0.6,
            "spillover": 0.05,  # the negative drop counts as none, prose not at all
            "selectivity": 0.55,
            "heads": 2,
            "prose_nats": 0.5,
        },
        "capital": {
            "baseline": 0.8,
            "knocked_out": 0.3,
            "drop": 0.5,
            "spillover": 0.0,
            "selectivity": 0.5,
            "heads": 1,
            "prose_nats": -0.04,
        },
        "empty": {
            "baseline": 0.7,
            "knocked_out": 0.7,
            "drop": 0.0,
            "spillover": 0.0,
            "selectivity": 0.0,
            "heads": 0,
            "prose_nats": 0.0,
        },
        "mean": {
            "drop": 0.366667,
            "spillover": 0.016667,
            "selectivity": 0.35,
            "target_selectivity": 0.233333,  # (0.3 + 0.4 + 0) / 3
            "random_drop": 0.1,
        },
    }


def test_a_capability_without_any_row_of_its_own_set_lost_nothing(validation, heads):
    trimmed = validation[validation["localized"] != "empty"]
    assert metrics(trimmed, list(heads["heads"])) == metrics(validation)
    assert "empty" not in metrics(trimmed)


def test_metrics_are_plain_and_leave_out_what_was_not_validated(validation):
    only = metrics(validation[validation["head_set"] == "chosen"])
    assert set(only["mean"]) == {"drop", "spillover", "selectivity"}
    assert {type(value) for row in only.values() for value in row.values()} == {float, int}


def test_one_capability_alone_has_no_spillover(validation):
    alone = validation[(validation["capability"] == "add") & (validation["localized"] == "add")]
    assert metrics(alone)["add"]["spillover"] == 0


def test_metrics_refuse_what_is_no_number_and_a_name_they_need(validation):
    with pytest.raises(CaplocError, match="no number"):
        metrics(validation.assign(drop=math.nan))
    with pytest.raises(CaplocError, match="mean"):
        metrics(validation.replace("add", "mean"))
    with pytest.raises(CaplocError, match="never scored"):
        metrics(validation, ["elsewhere"])


@pytest.mark.parametrize("name", ["add", "[bold]add[/nothing]"])
def test_summary_table_shows_scores_heads_and_comparison(validation, heads, name):
    frame, heads = renamed(validation, heads, name)
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123  # a console owns it
    console.print(summary_table(metrics(frame), heads))
    text = console.export_text()
    assert re.search(rf"{re.escape(name)} +0\.90 -> 0\.30 +0\.60 +0\.05 +0\.55 +L0H1 L1H0", text)
    assert re.search(r"empty +0\.70 -> 0\.70 .*none", text)
    assert re.search(r"mean +0\.37 +0\.02 +0\.35", text)
    assert "target effect alone: mean selectivity 0.23" in text
    assert "sparsity allows: mean drop 0.10" in text
    assert "prose: 0.50 nats" in text
    assert "Not borne out by masks held out: capital, empty" in text
    assert "More masks would help: capital, empty" in text
    assert "Heads that most capabilities need: L0H2" in text


def test_curves_stay_where_a_share_can_be(validation):
    wide = validation.assign(ci_low=-1.0, ci_high=2.0)
    assert [(row["ci_low"], row["ci_high"]) for row in curve_rows(wide, ["add"])[1:]] == [(0, 1), (0, 1)]


def test_plot_rows_are_those_worked_out_by_hand(validation):
    names = ["add", "capital", "empty"]
    assert curve_rows(validation, ["add"]) == [
        {"capability": "add", "k": 0, "score": 0.9, "ci_low": 0.9, "ci_high": 0.9},
        {"capability": "add", "k": 1, "score": 0.5, "ci_low": 0.4, "ci_high": 0.6},
        {"capability": "add", "k": 2, "score": 0.3, "ci_low": 0.2, "ci_high": 0.4},
    ]
    assert [row["k"] for row in curve_rows(validation, ["empty"])] == [0]
    assert drop_rows(validation, ["add"]) == [
        {"capability": "add", "kind": "drop", "value": 0.6, "ci_low": 0.5, "ci_high": 0.7},
        {"capability": "add", "kind": "spillover", "value": 0.05, "ci_low": None, "ci_high": None},
    ]
    transfer = {(r["localized"], r["capability"]): r["drop"] for r in transfer_rows(validation, names)}
    assert transfer["add", "empty"] == -0.2
    assert not any(capability == "prose" for _, capability in transfer)


def test_plot_files_hold_every_head_and_never_nan(effects, validation, tmp_path):
    paths = write_plots(effects, validation, tmp_path / "plots")
    assert [path.name for path in paths] == ["effects.json", "drops.json", "transfer.json", "curve.json"]
    for path in paths:
        rows = json.loads(path.read_text(), parse_constant=pytest.fail)
        assert all(set(row) == set(rows[0]) for row in rows)
    assert len(json.loads(paths[0].read_text())) == len(effects)
    with pytest.raises(ValueError, match="JSON"):
        write_plots(effects.assign(standardized=math.nan), validation, tmp_path)


def test_the_same_run_gives_the_same_bytes(effects, validation, heads, tmp_path):
    def once(folder):
        for path in write_plots(effects, validation, folder):
            yield path.read_bytes()
        for figure in illustrations(effects, validation, heads, list(heads["heads"])):
            path = save(figure.figure, folder / "figures" / f"{figure.name}.png")
            assert path.read_bytes() == png(figure.figure)  # saved twice is saved alike
            yield path.read_bytes()
        yield report(effects, validation, heads).encode()

    assert list(once(tmp_path / "a")) == list(once(tmp_path / "b"))


def test_png_holds_no_version_and_no_time(effects, validation, heads):
    data = png(illustrations(effects, validation, heads, ["add"])[0].figure)
    assert b"Software" not in data
    assert b"tIME" not in data


def test_figures_bear_a_run_in_which_nothing_was_found(effects, validation, heads):
    nothing = validation[validation["head_set"].str.startswith("random")]
    heads = {**heads, "heads": {name: finding([]) for name in heads["heads"]}}
    page = report(effects.assign(chosen=False, standardized=0.0), nothing, heads)
    assert page.count("No heads were chosen.") == 3


def test_report_judges_by_the_interval(validation, effects, heads):
    by_interval = validation.copy()
    own = (by_interval["localized"] == "capital") & (by_interval["capability"] == "capital")
    by_interval.loc[own, "ci_low"] = -0.01
    add = (by_interval["localized"] == "add") & (by_interval["capability"] == "add")
    by_interval.loc[add, "ci_low"] = 0.09  # the others lose 0.05: less than twice that
    page, other = report(effects, validation, heads), report(effects, by_interval, heads)
    assert "add: localized." in page
    assert "from 90\N{NO-BREAK SPACE}% correct to 30\N{NO-BREAK SPACE}% correct" in page
    assert "the other capabilities lose 5 points" in page
    assert "capital: localized." in page
    assert "add: not selective." in other
    assert "capital: not localized." in other


def test_report_says_how_sure_it_is(validation, effects, heads):
    page = report(effects, validation, heads)
    assert "What 64 masks say" in page
    assert "<td>L0H1 88% L1H0 88%</td><td>yes (p = 0.0004)</td>" in page
    assert "<td>no (p = 0.4)</td>" in page
    assert "universal heads): L0H2." in page
    nothing = report(effects, validation, {**heads, "universal": []})
    assert "No head is clearly needed by most capabilities." in nothing


def test_report_is_one_page_with_alt_texts_and_provenance(effects, validation, heads):
    page = report(effects, validation, heads)
    images = re.findall(r"<img ([^>]*)>", page)
    assert len(images) == 3
    for image in images:
        assert len(unescape(re.search(r'alt="([^"]+)"', image)[1])) > 40
    assert not re.search(r"https?://|<script|<link|@import", page)
    for text in ("ab" * 32, "float32", "r1", "dvc repro", "5 heads: 2 attention layers of 2 to 3 heads"):
        assert text in page


def test_report_escapes_everything(effects, validation, heads):
    frame, heads = renamed(validation, heads, HOSTILE)
    page = report(effects.replace("add", HOSTILE), frame, heads)
    assert "<script" not in page
    assert "<tiny>" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;alert(&quot;$x_{&quot;)&lt;/script&gt;&amp;: localized." in page

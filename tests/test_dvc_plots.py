import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import vl_convert
import yaml

from caploc.reporting import page
from caploc.reporting.plot_data import write_plots

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT / ".dvc" / "plots"
SHAPES = {"old": (6, 4), "new": (3, 8)}  # layers x heads
NAMES = ["zero", "add"]  # not in the order of the alphabet
VEGA_LITE = page.newest_v5(vl_convert.get_vegalite_versions())
PLOTS = [
    {"reports/plots/drops.json": {"template": "caploc_bars", "x": "value", "y": "capability"}},
    {"reports/plots/transfer.json": {"template": "caploc_transfer", "x": "capability", "y": "localized"}},
    {"reports/plots/curve.json": {"template": "caploc_curve", "x": "k", "y": "score"}},
    {"reports/plots/effects.json": {"template": "caploc_heatmap", "x": "layer", "y": "head"}},
]


def effects(layers, heads):
    return pd.DataFrame(
        [
            {
                "capability": name,
                "layer": layer,
                "head": head,
                "effect": -0.01 * layer * head,
                "standardized": 1.0 - layer - head,
                "chosen": name == "add" and layer == head == 1,
            }
            for name in [*NAMES, "prose"]
            for layer in range(layers)
            for head in range(heads)
        ]
    )


def validation(drop):
    rows = [("add", 2, "add", drop), ("add", 2, "zero", 0.1), ("add", 1, "add", drop / 2)]
    rows += [("add", 2, "prose", 0.1), ("zero", 1, "zero", 0.3), ("zero", 1, "add", -0.1)]
    return pd.DataFrame(
        [
            {
                "head_set": "chosen",
                "localized": localized,
                "k": k,
                "capability": name,
                "metric": "logprob" if name == "prose" else "exact",
                "n": 10,
                "baseline": 0.9,
                "score": 0.9 - lost,
                "drop": lost,
                "ci_low": lost - 0.1,
                "ci_high": lost + 0.1,
            }
            for localized, k, name, lost in rows
        ]
    )


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Return a runner of commands in a repository with a branch a model."""
    folder = tmp_path_factory.mktemp("repository")
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, **identity, "PATH": path, "DVC_NO_ANALYTICS": "1"}

    def run(*command):
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("git", "init", "-q", "-b", "old")
    run("dvc", "init", "-q")
    shutil.copytree(TEMPLATES, folder / ".dvc" / "plots")
    (folder / ".dvc" / "config").write_text("[plots]\n    html_template = plots/page.html\n")
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"plots": PLOTS}))
    for drop, (branch, shape) in enumerate(SHAPES.items(), 1):
        run("git", "checkout", "-q", "-B", branch)
        write_plots(effects(*shape), validation(0.3 * drop), folder / "reports" / "plots")
        run("git", "add", "-A")
        run("git", "commit", "-qm", branch)
    return run


@pytest.fixture(scope="module")
def specs(shell):
    data = json.loads(shell("dvc", "plots", "diff", "old", "new", "--json"))["data"]
    return {Path(plot.split("::")[-1]).stem: content[0]["content"] for plot, content in data.items()}


@pytest.mark.parametrize("plot", ["drops", "transfer", "curve", "effects"])
def test_plot_of_two_models_compiles_and_holds_the_rows_of_both(specs, plot):
    spec = specs[plot]
    rows = spec["data"]["values"]
    assert {row["rev"] for row in rows} == set(SHAPES)
    assert "DVC_METRIC" not in json.dumps(spec)
    assert vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE)[:4] == b"\x89PNG"
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)
    assert {f"revision: {rev}" in svg for rev in SHAPES} == {True}
    assert not re.search(r"undefined|NaN|null", svg)


def test_show_vega_gives_the_same_plot(shell, specs):
    target = "reports/plots/curve.json"
    spec = json.loads(shell("dvc", "plots", "diff", "old", "new", "--targets", target, "--show-vega"))
    assert spec["data"] == specs["curve"]["data"]


def test_heatmap_shows_each_model_in_its_own_shape_under_its_own_name(specs):
    svg = vl_convert.vegalite_to_svg(specs["effects"], vl_version=VEGA_LITE)
    panels = svg.split("child_child_layer_0_marks")[1:]
    assert len(panels) == 6  # three capabilities x two models
    seen = []
    for panel in panels:
        rev = re.search(r"Title text '(\w+)'", panel)[1]
        assert set(re.findall(r"revision: (\w+)", panel)) == {rev}
        (name,) = set(re.findall(r"capability: (\w+)", panel))
        axes = re.findall(r"([XY])-axis titled '\w+' for a discrete scale with (\d+) values", panel)
        assert axes == [("X", str(SHAPES[rev][0])), ("Y", str(SHAPES[rev][1]))]
        seen.append((name, rev))
        outlined = panel.split("child_child_layer_1_marks")[1].count("chosen: true")
        assert outlined == (name == "add")
    assert seen == [(name, rev) for name in [*NAMES, "prose"] for rev in SHAPES]


def test_heatmap_colours_are_centred_at_zero(specs):
    assert specs["effects"]["spec"]["spec"]["layer"][0]["encoding"]["color"]["scale"]["domainMid"] == 0
    rows = {row["rev"]: row for row in specs["effects"]["data"]["values"] if row["standardized"] == 0}
    svg = vl_convert.vegalite_to_svg(specs["effects"], vl_version=VEGA_LITE)
    neutral = re.findall(r'standardized: 0;[^"]*"[^>]*fill="rgb\((\d+), (\d+), (\d+)\)"', svg)
    assert set(rows) == set(SHAPES)
    assert neutral
    assert all(max(map(int, colour)) - min(map(int, colour)) < 12 for colour in neutral)


def test_transfer_shows_each_model_under_its_own_name(specs):
    svg = vl_convert.vegalite_to_svg(specs["transfer"], vl_version=VEGA_LITE)
    panels = svg.split("child_layer_0_marks")[1:]
    assert [re.search(r"Title text '(\w+)'", panel)[1] for panel in panels] == list(SHAPES)
    assert [set(re.findall(r"revision: (\w+)", panel)) for panel in panels] == [{"old"}, {"new"}]


def test_curve_is_drawn_through_the_measured_points(specs):
    assert "loess" not in json.dumps(specs["curve"])
    svg = vl_convert.vegalite_to_svg(specs["curve"], vl_version=VEGA_LITE)
    assert len(re.findall(r'aria-roledescription="point"', svg)) == len(specs["curve"]["data"]["values"])


def test_page_of_a_diff_shows_every_plot_without_a_network(shell, tmp_path):
    shell("dvc", "plots", "diff", "old", "new", "-o", str(tmp_path / "out"))
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert_self_contained(text)
    defined, *calls = [match.start() for match in re.finditer(r"window\.vegaEmbed ?=|\bvegaEmbed\('#", text)]
    assert text[defined:].startswith("window.")
    assert len(calls) == len(PLOTS)
    assert not re.search(r"\{(plot_divs|refresh_tag|scripts)\}", text)


@pytest.mark.parametrize("made", ["committed", "fresh"])
def test_page_template_is_small_and_has_the_placeholders(made):
    text = page.page() if made == "fresh" else (TEMPLATES / "page.html").read_text(encoding="utf-8")
    assert len(text.encode()) < 2**20
    assert text.count("{plot_divs}") == text.count("{refresh_tag}") == 1
    assert "BSD-3-Clause" in text
    assert_self_contained(text)


def test_page_is_written_where_dvc_looks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page.main()
    assert (tmp_path / ".dvc" / "plots" / "page.html").read_text(encoding="utf-8") == page.page()
    assert "html_template = plots/page.html" in (ROOT / ".dvc" / "config").read_text()


class Links(HTMLParser):
    """Collects what a page would fetch; text inside a script is no tag."""

    def __init__(self):
        super().__init__()
        self.tags, self.fetched = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.fetched += [value for name, value in attrs if name in {"src", "href"}]


def assert_self_contained(text):
    links = Links()
    links.feed(text)
    assert "script" in links.tags
    assert links.fetched == []
    assert text.count("<script") == text.count("</script")

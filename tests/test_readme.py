"""README's figures are those of the committed run."""

import json
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
METRICS = json.loads((ROOT / "reports/metrics.json").read_text())


def test_the_table_is_the_committed_metrics():
    rows = re.findall(r"^\| \*{0,2}(\w+)\*{0,2} \| (.*) \|.*\|$", README, flags=re.MULTILINE)
    found = {name: re.findall(r"-?\d\.\d\d", cells) for name, cells in rows if name in METRICS}
    assert set(found) == set(METRICS)
    for name, figures in found.items():
        keys = ["drop", "spillover", "selectivity"]
        if name != "mean":
            keys = ["baseline", "knocked_out", *keys]
        assert figures == [f"{METRICS[name][key]:.2f}" for key in keys], name


def test_the_comparison_is_the_committed_metrics():
    text = " ".join(README.split())
    assert f"a mean selectivity of {METRICS['mean']['target_selectivity']:.2f}" in text
    assert f"at random drop {METRICS['mean']['random_drop']:.2f}" in text


def test_every_parameter_is_explained():
    def keys(section, prefix=""):
        for name, value in section.items():
            yield from keys(value, f"{name}.") if isinstance(value, dict) else [prefix + name]

    for key in keys(yaml.safe_load((ROOT / "params.yaml").read_text())):
        assert f"`{key}`" in README, key

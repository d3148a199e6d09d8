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


def test_the_speed_is_that_of_the_committed_benchmark():
    results = json.loads((ROOT / "benchmarks/results/throughput.json").read_text())
    spreads = [
        results["one_mask_over_bare"],
        *results["reference_over_ours"].values(),
        results["mask_by_mask_over_masks_together"]["indirect_object"],
        results["prefix_read_anew_over_shared"]["addition"],
        *results["peer_over_ours"].values(),
    ]
    found = re.findall(r"\| (\d+\.\d\d \(\d+\.\d\d to \d+\.\d\d\)) \|", README)
    assert found == [f"{s['median']:.2f} ({s['min']:.2f} to {s['max']:.2f})" for s in spreads]


def test_every_parameter_is_explained():
    def keys(section, prefix=""):
        for name, value in section.items():
            yield from keys(value, f"{name}.") if isinstance(value, dict) else [prefix + name]

    for key in keys(yaml.safe_load((ROOT / "params.yaml").read_text())):
        assert f"`{key}`" in README, key

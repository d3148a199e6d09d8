"""The figures in docs/recovery.md are those of the committed benchmarks."""

import json
import re
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/recovery.md").read_text()


def results(name):
    return pd.DataFrame(json.loads((ROOT / f"benchmarks/results/{name}.json").read_text()))


def test_the_table_of_methods_is_the_committed_benchmark():
    records = results("recovery")
    runs = records.groupby(["method", "evaluations", "seed"])[["selectivity", "drop", "spillover"]].mean()
    means = runs.groupby(["method", "evaluations"]).mean()
    rows = re.findall(
        r"^\| `(\w+)`.* \| (\d+) \| (\d\.\d\d).* \| (\d\.\d\d) \| (\d\.\d\d) \|", TEXT, re.MULTILINE
    )
    assert {(name, int(spent)) for name, spent, *_ in rows} == set(means.index)
    for name, spent, *figures in rows:
        assert figures == [f"{value:.2f}" for value in means.loc[(name, int(spent))]], (name, spent)


def test_every_record_has_what_was_promised():
    records = results("recovery")
    assert {"method", "capability", "evaluations", "seed", "drop", "spillover", "selectivity"} <= set(records)
    assert {"default", "paper_lasso", "contrast_lasso", "exhaustive", "greedy", "thompson"} <= set(
        records["method"]
    )
    assert (records["selectivity"] - (records["drop"] - records["spillover"])).abs().max() < 2e-4


def test_the_coverage_is_the_committed_one():
    by_budget = results("coverage").groupby("evaluations")["covered"].mean()
    stated = dict(re.findall(r"^\| (\d+) \| (\d\.\d\d\d) \|", TEXT, re.MULTILINE))
    assert stated == {str(budget): f"{share:.3f}" for budget, share in by_budget.items()}


def test_the_planted_figures_are_the_committed_ones():
    records = results("planted")
    exact = records[records["planted"] & (records["sparsity"] == 5) & (records["noise"] == 0.3)]
    for heads, method, masks, share in re.findall(
        r"^\| (\d+) \| (.+?) \| (\d+) \| (\d+) of 50 \|", TEXT, re.MULTILINE
    ):
        row = exact[
            (exact["heads"] == int(heads)) & exact["method"].eq(method) & (exact["masks"] == int(masks))
        ]
        assert row["exact"].tolist() == [int(share)], (heads, method, masks)

"""How many masks it takes to recover planted heads exactly, by the paper's Lasso and by ours.

    python benchmarks/planted.py --seeds 50

writes benchmarks/results/planted.json, a record for every method, number of heads, sparsity, noise and number
of masks, and docs/planted.png. A record that is there already is not measured again. A planted problem has
effects of -U[0.5, 1.5] on a few random heads, a nuisance of N(0, 0.03^2) on all, and normal noise on each
mask's score. Records with `planted` false count how often heads are found where there is only
nuisance, and how often exactly the planted heads are where there are some.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import seaborn as sns
import typer
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from caploc.adaptive import adaptive_masks, best_subset, found
from caploc.designs import sample_masks
from caploc.recovery.lasso import LassoRecovery
from caploc.reporting.figures import save

RESULTS = Path(__file__).parent / "results" / "planted.json"
FIGURE = Path(__file__).parent.parent / "docs" / "planted.png"
HEADS = (270, 1024, 1920)  # the default model's 30 layers of 9, 32 of 32, 48 of 40
SPARSITY = (5, 10)
NOISE = (0.3, 0.6)
MASKS = (60, 90, 120, 160, 220, 300, 420, 600)
NUISANCE = 0.03
ENOUGH = 0.95  # share of seeds that a method is to recover exactly

LASSO, LASSO_DENSER = "paper's Lasso, density 0.02", "paper's Lasso, density 0.05"
BEST_SUBSET, ADAPTIVE = "best subset, density 0.05", "adaptive rounds, density 0.05"
DENSITY = {LASSO: 0.02, LASSO_DENSER: 0.05, BEST_SUBSET: 0.05, ADAPTIVE: 0.05}
METHODS = tuple(DENSITY)
BEST_SUBSETS = (BEST_SUBSET, ADAPTIVE)
NULL_MASKS = {5: (170, 300), 10: (330, 500)}  # by sparsity; enough for heads to be found at all

Measure = Callable[[np.ndarray], np.ndarray]


def main(
    seeds: Annotated[int, typer.Option(help="Problems a record; twice as many without planted heads.")] = 50,
    out: Annotated[Path, typer.Option()] = RESULTS,
    figure: Annotated[Path, typer.Option()] = FIGURE,
) -> None:
    """Measure what is missing, draw the figure and print a table."""
    records: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    for record in missing_records(records, seeds):
        records.append(record)
        out.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n  ".join(json.dumps(record) for record in records)
        out.write_text(f"[\n  {lines}\n]\n", encoding="utf-8")
    save(draw(records), figure)
    _print(records)


@dataclass(frozen=True)
class Setting:
    """What one record is about."""

    method: str
    heads: int
    sparsity: int
    noise: float
    masks: int
    planted: bool


def missing_records(records: list[dict[str, Any]], seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the records that are not there yet; a curve ends where every seed is recovered exactly."""
    known = {Setting(*(record[f.name] for f in fields(Setting))): record for record in list(records)}
    for heads in HEADS:
        for sparsity, noise, method in product(SPARSITY, NOISE, METHODS):
            for masks in MASKS:
                setting = Setting(method, heads, sparsity, noise, masks, planted=True)
                if setting not in known:
                    known[setting] = recovery_record(setting, seeds)
                    yield known[setting]
                if known[setting]["exact"] == known[setting]["seeds"]:
                    break
        # false finds hardly depend on the noise: scores are judged in units of it
        for method, (sparsity, n_masks) in product(BEST_SUBSETS, NULL_MASKS.items()):
            for masks in n_masks:
                setting = Setting(method, heads, sparsity, NOISE[0], masks, planted=False)
                if setting not in known:
                    yield null_record(setting, 2 * seeds)


def recovery_record(setting: Setting, seeds: int) -> dict[str, Any]:
    """Count the seeds in which a method recovers exactly the planted heads."""
    exact = spent = 0
    for seed in range(seeds):
        planted, measure = problem(setting.heads, setting.sparsity, setting.noise, seed)
        chosen, masks, _ = recover(setting, measure, seed)
        exact += chosen == planted
        spent += len(masks)
    return asdict(setting) | {"seeds": seeds, "exact": exact, "spent": round(spent / seeds, 1)}


def null_record(setting: Setting, seeds: int) -> dict[str, Any]:
    """Count the seeds in which heads are found though none is planted, and where all planted heads are."""
    false = found_exactly = 0
    for seed in range(seeds):
        for n_planted in (0, setting.sparsity):
            planted, measure = problem(setting.heads, n_planted, setting.noise, seed)
            _, masks, scores = recover(setting, measure, seed)
            heads = set(found(masks, scores, setting.sparsity).tolist())
            if n_planted:
                found_exactly += heads == planted
            else:
                false += len(heads) > 0
    return asdict(setting) | {"seeds": seeds, "false": false, "found": found_exactly}


def problem(heads: int, planted: int, noise: float, seed: int) -> tuple[set[int], Measure]:
    """Return the planted heads, and what scores masks; the same seed gives the same scores in order."""
    rng = np.random.default_rng([seed, heads, planted])
    effects = rng.normal(0, NUISANCE, heads)
    chosen = rng.choice(heads, planted, replace=False)
    effects[chosen] = -rng.uniform(0.5, 1.5, planted)
    return set(chosen.tolist()), lambda masks: masks @ effects + rng.normal(0, noise, len(masks))


def recover(setting: Setting, measure: Measure, seed: int) -> tuple[set[int], np.ndarray, np.ndarray]:
    """Return the heads that a method recovers, and the masks and scores that it took."""
    heads, sparsity, n_masks, density = (
        setting.heads, setting.sparsity, setting.masks, DENSITY[setting.method]
    )  # fmt: skip
    if setting.method == ADAPTIVE:
        run = adaptive_masks(
            lambda masks: measure(masks)[:, None],
            heads,
            masks=n_masks,
            density=density,
            sparsity=sparsity,
            seed=seed,
        )
        return set(run.chosen[0].tolist()), run.masks, run.scores[:, 0]
    masks = _balanced(heads, density, seed)[:n_masks]
    scores = measure(masks)
    if setting.method == BEST_SUBSET:
        chosen = best_subset(masks, scores, sparsity)
    else:
        chosen = np.argsort(LassoRecovery(alpha=0.01).fit(masks, scores).coef_)[:sparsity]
    return set(chosen.tolist()), masks, scores


@lru_cache(maxsize=200)
def _balanced(heads: int, density: float, seed: int) -> np.ndarray:
    return sample_masks("balanced", heads, max(MASKS), density, seed)


def needed(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the fewest masks of the grid from which on a method recovers enough of the seeds, or NaN."""
    curves = pd.DataFrame([record for record in records if record["planted"]])
    curves["share"] = curves["exact"] / curves["seeds"]
    rows = []
    for key, curve in curves.groupby(["heads", "sparsity", "noise", "method"], sort=False):
        # a curve must not fall below again
        enough = curve.sort_values("masks", ascending=False)
        enough = enough[(enough["share"] >= ENOUGH).cumprod().astype(bool)]
        rows.append((*key, enough["masks"].min()))
    return pd.DataFrame(rows, columns=["heads", "sparsity", "noise", "method", "masks"])


def draw(records: list[dict[str, Any]]) -> Figure:
    """Draw the share of seeds recovered exactly over the masks, a panel a number of heads and noise."""
    curves = pd.DataFrame([record for record in records if record["planted"]])
    curves["share"] = curves["exact"] / curves["seeds"]
    heads = list(dict.fromkeys(curves["heads"]))
    figure = Figure(figsize=(10, 6.5), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(NOISE), len(heads), squeeze=False, sharex=True, sharey=True)
    for (row, noise), (column, n) in product(enumerate(NOISE), enumerate(heads)):
        ax = axes[row, column]
        panel = curves[(curves["heads"] == n) & (curves["noise"] == noise)]
        sns.lineplot(
            panel, x="masks", y="share", hue="method", hue_order=list(METHODS), style="sparsity",
            style_order=list(SPARSITY), palette="colorblind", markers=True, ax=ax,
        )  # fmt: skip
        ax.axhline(ENOUGH, color="#bbbbbb", linewidth=0.8, zorder=0)
        ax.set_xscale("log")
        ax.set_xticks(MASKS, [str(masks) for masks in MASKS], fontsize=8)
        ax.minorticks_off()
        ax.set(
            xlabel="masks (a curve ends where all are recovered)",
            ylabel="share of problems recovered exactly",
            ylim=(-0.03, 1.03),
        )
        ax.set_title(f"{n} heads, noise {noise:g}", loc="left", fontsize=10)
        sns.despine(ax=ax)
        ax.get_legend().remove()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    labels = [f"{label} planted heads" if label in map(str, SPARSITY) else label for label in labels]
    shown = [i for i, label in enumerate(labels) if label not in ("method", "sparsity")]
    handles, labels = [handles[i] for i in shown], [labels[i] for i in shown]
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def _print(records: list[dict[str, Any]]) -> None:
    table = Table("heads", "sparsity", "noise", *METHODS, title=f"masks for {ENOUGH:.0%} exact")
    wide = needed(records).pivot_table(
        index=["heads", "sparsity", "noise"], columns="method", values="masks", dropna=False
    )
    for heads, sparsity, noise, *masks in wide.reindex(columns=list(METHODS)).reset_index().to_numpy():
        cells = (f"{n:.0f}" if n > 0 else f"> {max(MASKS)}" for n in masks)
        table.add_row(f"{heads:.0f}", f"{sparsity:.0f}", f"{noise:g}", *cells)
    null = Table("method", "heads", "sparsity", "masks", "false finds", "planted heads found")
    for record in records:
        if not record["planted"]:
            shares = (f"{record[count] / record['seeds']:.2f}" for count in ("false", "found"))
            null.add_row(*(str(record[key]) for key in ("method", "heads", "sparsity", "masks")), *shares)
    Console().print(table, null)


if __name__ == "__main__":
    typer.run(main)

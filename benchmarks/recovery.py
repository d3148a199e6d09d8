"""How selective the heads are that each method finds, against the evaluations it spends.

    dvc repro                        # once: the model, its prompts, baseline and gradients
    python benchmarks/recovery.py    # hours on a CPU the first time; then all scores come from the store

writes benchmarks/results/recovery.json (a record a method, capability, number of evaluations and seed),
benchmarks/results/coverage.json (how often the default's 90 % intervals cover what the exhaustive sweep
measures) and docs/recovery.png, and prints the means. Heads are found on the pipeline's ``measure`` prompts
and judged on its ``validate`` prompts. An evaluation is one prompt set scored under one mask; a gradient
counts as three.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import seaborn as sns
import typer
from rich.console import Console
from rich.table import Table
from scipy.special import expit
from sklearn.linear_model import Lasso

from caploc.capabilities.manifest import rebuild
from caploc.designs import design_heads, design_table, sample_masks
from caploc.files import BASELINE, CAPABILITIES, GRADIENTS, MODEL, read_json, read_table
from caploc.heads import HeadGrid
from caploc.localization import choose
from caploc.measurement import Evaluation, Measurements, measure_masks
from caploc.params import load_params
from caploc.recovery.estimators import make_estimator
from caploc.recovery.fits import BayesFit, Fit, MaskFit, fit_all
from caploc.recovery.observations import Observations, observe
from caploc.recovery.response import Link, Response
from caploc.refinement import refine
from caploc.strategies import greedy, thompson

RESULTS = Path(__file__).parent / "results" / "recovery.json"
COVERAGE = Path(__file__).parent / "results" / "coverage.json"
FIGURE = Path(__file__).parents[1] / "docs" / "recovery.png"
BUDGETS = (40, 70, 100, 200)
GRADIENT_COST = 3
SHORTLIST = 20  # heads, by the exhaustive sweep, that greedy tries in later rounds
CONTRAST_WEIGHT = 2.0
ESTIMATORS = (
    "lasso_cv",
    "adaptive_lasso",
    "prior_ridge",
    "elastic_net",
    "omp",
    "best_subset",
    "stability",
    "ard",
)

HeadSets = dict[str, list[int]]


@dataclass(frozen=True)
class Found:
    """Heads that a method found for each capability, and what it spent on them."""

    method: str
    evaluations: int
    seed: int
    heads: HeadSets


@dataclass
class Bench:
    """The experiment of params.yaml, whose measurements all methods share."""

    sparsity: int
    density: float
    weight: float
    grid: HeadGrid
    measurements: Measurements
    capabilities: dict
    baseline: pd.DataFrame
    gradients: pd.DataFrame
    gradient_passes: int
    _observed: dict = field(default_factory=dict)

    @cached_property
    def localized(self) -> list[str]:
        """The capabilities that get heads."""
        return [name for name, capability in self.capabilities.items() if not capability.is_control]

    def measure(self, masks: Iterable[Iterable[int]], names: Iterable[str], split: str = "measure") -> None:
        """Measure what the store lacks."""
        prompts = [self.capabilities[name].splits[split] for name in names]
        sets = [tuple(sorted(int(head) for head in mask)) for mask in masks]
        self.measurements.fill((Evaluation(heads, p) for heads in sets for p in prompts), split)

    def observe(self, masks: np.ndarray) -> dict[str, Observations]:
        """Measure every capability under some masks, and arrange the scores."""
        prompts = {name: capability.splits["measure"] for name, capability in self.capabilities.items()}
        tables = measure_masks(self.measurements, prompts, design_heads(design_table(masks)), "measure")
        return observe(tables, self.baseline, self.gradients)

    def random_masks(self, n_masks: int, seed: int) -> tuple[np.ndarray, dict[str, Observations]]:
        """Return the first masks of a balanced design, and what was measured under them."""
        if seed not in self._observed:
            masks = sample_masks("balanced", len(self.grid), max(BUDGETS), self.density, seed)
            self._observed[seed] = masks, self.observe(masks)
        masks, observations = self._observed[seed]
        first = np.arange(n_masks)
        return masks[first], {
            name: observed.take(first, np.arange(len(observed.tokens)))
            for name, observed in observations.items()
        }

    def choose(self, fits: dict[str, Fit], objective: str, weight: float) -> HeadSets:
        """Choose every capability's heads from fits of all of them."""
        responses = {name: fit.response for name, fit in fits.items()}
        return self.choose_by(responses, objective, weight)

    def choose_by(self, responses: dict[str, Response], objective: str, weight: float) -> HeadSets:
        """Choose every capability's heads from the responses of all."""
        pick = partial(choose, sparsity=self.sparsity, objective=objective, weight=weight)
        return {name: pick(responses, name) for name in self.localized}

    def soft_share(self, name: str, heads: tuple[int, ...], split: str = "measure") -> float:
        """Return the expected share of correct prompts."""
        prompts = self.capabilities[name].splits[split]
        return float(expit(self.measurements.scores(Evaluation(heads, prompts)).margin).mean())

    def contrast(self, name: str, sets: list[tuple[int, ...]]) -> np.ndarray:
        """Measure a capability's drop less the weighted mean drop of the others, for sets of heads."""
        sets = [tuple(sorted(heads)) for heads in sets]
        self.measure(sets, self.localized)
        intact = {other: self.soft_share(other, ()) for other in self.localized}

        def value(heads: tuple[int, ...]) -> float:
            drops = {other: intact[other] - self.soft_share(other, heads) for other in self.localized}
            own = drops.pop(name)
            return own - CONTRAST_WEIGHT * float(np.mean([max(drop, 0) for drop in drops.values()]))

        return np.array([value(heads) for heads in sets])

    def own_drop(self, name: str, sets: list[tuple[int, ...]]) -> np.ndarray:
        """Measure a capability's drop alone, for sets of heads."""
        sets = [tuple(sorted(heads)) for heads in sets]
        self.measure(sets, [name])
        intact = self.soft_share(name, ())
        return np.array([intact - self.soft_share(name, heads) for heads in sets])


def ours(bench: Bench, *, gradients: bool, objective: str, weight: float) -> Callable[[int, int], HeadSets]:
    """Return the Bayesian method as a function of the evaluations it may spend and a seed."""

    def find(evaluations: int, seed: int) -> HeadSets:
        spent = GRADIENT_COST * bench.gradient_passes if gradients else 0
        masks, observations = bench.random_masks(evaluations - spent, seed)
        if not gradients:
            observations = {name: replace(seen, gradient=None) for name, seen in observations.items()}
        return bench.choose(fit_all(masks, observations, BayesFit), objective, weight)

    return find


def by_estimator(
    bench: Bench, name: str, objective: str, score: str = "logprob"
) -> Callable[[int, int], HeadSets]:
    """Return a method that ranks single heads by an estimator of masks' scores."""

    def find(evaluations: int, seed: int) -> HeadSets:
        masks, observations = bench.random_masks(evaluations, seed)
        estimator = make_estimator(name, alpha=0.01, alpha_relative=False, sparsity=bench.sparsity, seed=seed)
        fits = fit_all(masks, observations, partial(MaskFit, estimator=estimator, score=score))
        return bench.choose(fits, objective, CONTRAST_WEIGHT)

    return find


def paper_lasso(bench: Bench, *, contrast: bool) -> Callable[[int, int], HeadSets]:
    """Return the paper's Lasso of standardized accuracy, straight from scikit-learn, all k heads taken.

    With `contrast`, of each capability's log-probability, heads ranked by the contrast of the effects.
    """

    def find(evaluations: int, seed: int) -> HeadSets:
        masks, observations = bench.random_masks(evaluations, seed)
        need = {}
        for name, observed in observations.items():
            scores = observed.logprob if contrast or observed.is_control else observed.correct
            y = scores.mean(axis=1)
            lasso = Lasso(alpha=0.01, max_iter=100_000).fit(masks, (y - y.mean()) / y.std())
            need[name] = -lasso.coef_
        chosen = {}
        for name in bench.localized:
            harm = np.mean([np.maximum(need[other], 0) for other in need if other != name], axis=0)
            rank = need[name] - CONTRAST_WEIGHT * harm if contrast else need[name]
            chosen[name] = np.argsort(-rank, kind="stable")[: bench.sparsity].tolist()
        return chosen

    return find


def refined(bench: Bench, evaluations: int, seed: int) -> HeadSets:
    """Spend the last third of the masks in rounds on the heads in doubt, by the default method."""
    spent = GRADIENT_COST * bench.gradient_passes
    more = (evaluations - spent) // 3
    first, _ = bench.random_masks(evaluations - spent - more, seed)
    pick = partial(choose, sparsity=bench.sparsity, objective="joint", weight=bench.weight)
    masks = refine(first, bench.observe, BayesFit, pick, bench.localized, masks=more, rounds=3, seed=seed)
    return bench.choose(fit_all(masks, bench.observe(masks), BayesFit), "joint", bench.weight)


def gradient_only(bench: Bench, *, objective: str, weight: float) -> HeadSets:
    """Choose heads by the gradients alone."""
    responses = {}
    for name, observed in bench.random_masks(1, 0)[1].items():
        link = Link.RELATIVE if observed.is_control else Link.LOGISTIC
        responses[name] = Response(observed.changes()[0], -np.asarray(observed.gradient), link, 1.0)
    return bench.choose_by(responses, objective, weight)


def exhaustive(bench: Bench, *, objective: str, weight: float) -> HeadSets:
    """Choose heads by what each costs when it alone is knocked out."""
    observations = bench.observe(np.eye(len(bench.grid), dtype=bool))
    responses = {}
    for name, observed in observations.items():
        intact, change = observed.changes()
        link = Link.RELATIVE if observed.is_control else Link.LOGISTIC
        responses[name] = Response(intact, change.T, link, 1.0)
    return bench.choose_by(responses, objective, weight)


def greedy_rounds(bench: Bench) -> HeadSets:
    """Choose heads by contrast-greedy rounds, later rounds among the leaders of the first."""
    everything = [(head,) for head in range(len(bench.grid))]
    found = {}
    for name in bench.localized:
        leaders = np.argsort(-bench.contrast(name, everything), kind="stable")[:SHORTLIST].tolist()
        run = greedy(partial(bench.contrast, name), len(bench.grid), bench.sparsity, candidates=leaders)
        found[name] = list(run.heads)
    return found


def thompson_rounds(bench: Bench, rounds: int, seed: int) -> HeadSets:
    """Choose heads by Thompson sampling of each capability's own drop."""
    return {
        name: list(
            thompson(
                partial(bench.own_drop, name), len(bench.grid), bench.sparsity, rounds=rounds, seed=seed
            ).heads
        )
        for name in bench.localized
    }


def find_all(bench: Bench, seeds: int, *, all_estimators: bool) -> Iterable[Found]:
    """Run every method."""
    default = ours(bench, gradients=True, objective="joint", weight=bench.weight)
    by_masks = {
        "default": default,
        "paper_lasso": paper_lasso(bench, contrast=False),
        "contrast_lasso": paper_lasso(bench, contrast=True),
        "no_gradients": ours(bench, gradients=False, objective="joint", weight=bench.weight),
    }
    for budget in BUDGETS:
        for seed in range(seeds):
            for name, find in by_masks.items():
                yield Found(name, budget, seed, find(budget, seed))
    at_100 = {
        f"weight_{w:g}": ours(bench, gradients=True, objective="joint", weight=w) for w in (1.0, 2.0, 4.0)
    }
    at_100["single_heads"] = ours(bench, gradients=True, objective="contrast", weight=CONTRAST_WEIGHT)
    for name, find in at_100.items():
        for seed in range(seeds):
            yield Found(name, 100, seed, find(100, seed))
    spent = GRADIENT_COST * bench.gradient_passes
    yield Found("gradient_only", spent, 0, gradient_only(bench, objective="joint", weight=bench.weight))
    n_heads = len(bench.grid)
    yield Found("exhaustive", n_heads, 0, exhaustive(bench, objective="contrast", weight=CONTRAST_WEIGHT))
    yield Found("exhaustive_joint", n_heads, 0, exhaustive(bench, objective="joint", weight=bench.weight))
    later = (bench.sparsity - 1) * SHORTLIST - bench.sparsity * (bench.sparsity - 1) // 2
    yield Found("greedy", n_heads + later, 0, greedy_rounds(bench))
    yield Found("thompson", 100, 0, thompson_rounds(bench, 100, 0))
    for seed in range(seeds):
        yield Found("refined", 100, seed, refined(bench, 100, seed))
    if all_estimators:
        for name in ESTIMATORS:
            yield Found(name, 100, 0, by_estimator(bench, name, "contrast")(100, 0))


def judge(bench: Bench, found: list[Found]) -> pd.DataFrame:
    """Knock every set of heads out on the validate prompts."""
    sets = {tuple(sorted(heads)) for f in found for heads in f.heads.values()} | {()}
    bench.measure(sorted(sets), bench.localized, "validate")

    def share(name: str, heads: tuple[int, ...]) -> float:
        prompts = bench.capabilities[name].splits["validate"]
        return float(bench.measurements.scores(Evaluation(heads, prompts)).correct.mean())

    rows = []
    for f in found:
        for name, heads in f.heads.items():
            out = tuple(sorted(heads))
            drops = {other: share(other, ()) - share(other, out) for other in bench.localized}
            drop = drops.pop(name)
            spillover = float(np.mean([max(other, 0) for other in drops.values()]))
            rows.append(
                {
                    "method": f.method,
                    "capability": name,
                    "evaluations": f.evaluations,
                    "seed": f.seed,
                    "drop": round(drop, 4),
                    "spillover": round(spillover, 4),
                    "selectivity": round(drop - spillover, 4),
                    "heads": bench.grid.names(heads),
                }
            )
    return pd.DataFrame(rows)


def coverage(bench: Bench, seeds: int) -> list[dict]:
    """Count how often the default's 90 % intervals cover a head's effect when it alone is knocked out."""
    sweep = bench.observe(np.eye(len(bench.grid), dtype=bool))
    records = []
    for budget in BUDGETS:
        for seed in range(seeds):
            masks, observations = bench.random_masks(budget - GRADIENT_COST * bench.gradient_passes, seed)
            fits = fit_all(masks, observations, BayesFit)
            rng = np.random.default_rng(seed)
            for name in bench.localized:
                truth = expit(sweep[name].margin).mean(axis=1) - expit(sweep[name].intact_margin).mean()
                draws = [fits[name].replicate(rng)[0] for _ in range(100)]
                low, high = np.quantile(draws, [0.05, 0.95], axis=0)
                covered = float(((low <= truth) & (truth <= high)).mean())
                correlation = float(np.corrcoef(fits[name].effects, truth)[0, 1])
                records.append(
                    {
                        "capability": name,
                        "evaluations": budget,
                        "seed": seed,
                        "covered": round(covered, 4),
                        "correlation": round(correlation, 4),
                    }
                )
    return records


def write(path: Path, records: list[dict]) -> None:
    """Write a record a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(record) for record in records)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def summarize(records: pd.DataFrame) -> pd.DataFrame:
    """Return each method's means at each number of evaluations, and how often it was clean.

    ``clean``: capabilities with a drop of at least 0.5 and a spillover of at most 0.05.
    """
    clean = (records["drop"] >= 0.5) & (records["spillover"] <= 0.05)
    runs = (
        records.assign(clean=clean)
        .groupby(["method", "evaluations", "seed"], sort=False)
        .agg(
            drop=("drop", "mean"),
            spillover=("spillover", "mean"),
            selectivity=("selectivity", "mean"),
            clean=("clean", "sum"),
        )
    )
    grouped = runs.groupby(["method", "evaluations"], sort=False)
    return grouped.mean().assign(least=grouped["selectivity"].min(), most=grouped["selectivity"].max())


def draw(records: pd.DataFrame) -> None:
    """Draw selectivity against evaluations."""
    runs = records.groupby(["method", "evaluations", "seed"], as_index=False)["selectivity"].mean()
    lines = ["default", "no_gradients", "contrast_lasso", "paper_lasso"]
    points = ["gradient_only", "thompson", "exhaustive", "greedy"]
    ax = sns.lineplot(
        runs[runs["method"].isin(lines)],
        x="evaluations",
        y="selectivity",
        hue="method",
        hue_order=lines,
        style="method",
        style_order=lines,
        markers=True,
        dashes=False,
        errorbar=("pi", 100),
        palette="colorblind",
    )
    for (name, rows), marker in zip(
        runs[runs["method"].isin(points)].groupby("method", sort=False), "DPX*", strict=False
    ):
        mean = rows.groupby("evaluations")["selectivity"].mean()
        ax.plot(mean.index, mean, linestyle="", marker=marker, markersize=9, color="0.25", label=name)
    ax.set(
        xlabel="evaluations a capability (log scale)",
        ylabel="mean selectivity on validate prompts",
        xscale="log",
    )
    ax.set_xticks([6, 40, 100, 200, 340], ["6", "40", "100", "200", "340"])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8)
    sns.despine(ax=ax)
    ax.figure.set_size_inches(7, 4.5)
    ax.figure.savefig(FIGURE, dpi=150, bbox_inches="tight")


def main(
    seeds: Annotated[int, typer.Option(min=1, help="Designs of each method.")] = 3,
    estimators: Annotated[bool, typer.Option(help="Try every estimator of masks' scores too.")] = True,
    out: Annotated[Path, typer.Option()] = RESULTS,
) -> None:
    """Find, judge, write and draw."""
    params = load_params()
    model = read_json(MODEL)
    bench = Bench(
        sparsity=params.sparsity,
        density=params.design.density,
        weight=params.localization.weight,
        grid=HeadGrid.of_model(model),
        measurements=Measurements.of_model(model, params.runtime),
        capabilities=rebuild(read_json(CAPABILITIES)),
        baseline=read_table(BASELINE),
        gradients=read_table(GRADIENTS),
        gradient_passes=len(params.gradients.gates),
    )
    records = judge(bench, list(find_all(bench, seeds, all_estimators=estimators)))
    write(out, records.to_dict("records"))
    covered = coverage(bench, seeds)
    write(COVERAGE, covered)
    draw(records)
    table = Table("method", "evaluations", "selectivity", "of the seeds", "drop", "spillover", "clean")
    for (name, evaluations), row in summarize(records).iterrows():
        spread = f"{row['least']:.3f} to {row['most']:.3f}"
        table.add_row(
            name,
            str(evaluations),
            f"{row['selectivity']:.3f}",
            spread,
            f"{row['drop']:.2f}",
            f"{row['spillover']:.3f}",
            f"{row['clean']:.1f}",
        )
    Console().print(table)
    by_budget = pd.DataFrame(covered).groupby("evaluations")[["covered", "correlation"]].mean()
    Console().print("90 % intervals against the exhaustive sweep:", by_budget.round(3).to_string(), sep="\n")


if __name__ == "__main__":
    typer.run(main)

"""Fills the store: evaluations out, one writer in, with progress and resume.

`fill` is the seam for other executors: it hands evaluations to a scorer one by one, and only it writes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from caploc.capabilities.prompts import PromptSet
from caploc.files import write_table
from caploc.models.loading import load_source
from caploc.models.sources import ModelSource
from caploc.params import Runtime
from caploc.scoring import Scorer, Scores
from caploc.store import MeasurementStore, default_root

_LINE_EVERY = 100  # evaluations, where there is no terminal for a progress bar


@dataclass(frozen=True)
class Evaluation:
    """A prompt set to score with some heads (flat indices) knocked out."""

    heads: tuple[int, ...]
    prompts: PromptSet


class Measurements:
    """Scores by evaluation, measured when asked for and kept in the store.

    Parameters
    ----------
    store : MeasurementStore
        Where scores are looked up and kept.
    load_scorer : callable
        Loads the model; called only if something has to be measured.
    progress : bool
        Whether to show a progress bar, with rate and time left.
    """

    def __init__(self, store: MeasurementStore, load_scorer: Callable[[], Scorer], *, progress: bool) -> None:
        self.store = store
        self._load_scorer = load_scorer
        self._progress = progress

    @classmethod
    def of_model(cls, model: dict[str, Any], runtime: Runtime) -> Self:
        """Return the measurements of the model that the download stage described."""

        def load_scorer() -> Scorer:
            source = ModelSource(**model["source"])
            loaded = load_source(source, dtype=model["dtype"], device=runtime.device)
            return Scorer(loaded.model, loaded.tokenizer, batch_tokens=runtime.batch_tokens)

        return cls(MeasurementStore(default_root(), model), load_scorer, progress=runtime.progress)

    @cached_property
    def scorer(self) -> Scorer:
        """The scorer, loaded when first needed."""
        return self._load_scorer()

    def fill(self, evaluations: Iterable[Evaluation], title: str) -> int:
        """Measure what the store lacks; return how many evaluations that took."""
        wanted = dict.fromkeys(evaluations)
        missing = [e for e in wanted if self.store.get(e.prompts.fingerprint, e.heads) is None]
        console = Console(stderr=True)
        console.print(f"{title}: {len(missing)} to measure, {len(wanted) - len(missing)} in the store")
        if missing:
            scorer = self.scorer
            with _progress_bar(console, shown=self._progress and console.is_terminal) as bar:
                scored = bar.track(_scored(scorer, missing), total=len(missing), description=title)
                for done, (evaluation, scores) in enumerate(scored, start=1):
                    self.store.put(evaluation.prompts.fingerprint, evaluation.heads, scores)
                    if self._progress and not console.is_terminal and done % _LINE_EVERY == 0:
                        console.print(f"{title}: {done} of {len(missing)} measured")
        return len(missing)

    def scores(self, evaluation: Evaluation) -> Scores:
        """Return the scores of an evaluation that was filled in before."""
        scores = self.store.get(evaluation.prompts.fingerprint, evaluation.heads)
        if scores is None:
            raise KeyError(f"not measured: heads {evaluation.heads}")
        return scores


def measure_masks(
    measurements: Measurements,
    prompts: Mapping[str, PromptSet],
    masks: Mapping[int, tuple[int, ...]],
    title: str,
) -> dict[str, pd.DataFrame]:
    """Score prompt sets under masks (flat indices, by ``mask_id``), and return a `scores_table` of each."""
    measurements.fill((Evaluation(mask, p) for mask in masks.values() for p in prompts.values()), title)
    return {
        name: scores_table({i: measurements.scores(Evaluation(mask, p)) for i, mask in masks.items()}, p)
        for name, p in prompts.items()
    }


def write_measurements(
    folder: Path,
    tables: Mapping[str, pd.DataFrame],
    prompts: Mapping[str, PromptSet],
    store: MeasurementStore,
) -> None:
    """Write each capability's table, with all that its scores depend on."""
    for name, table in tables.items():
        provenance = {**store.context, "capability": name, "prompts": prompts[name].fingerprint}
        write_table(folder / f"{name}.parquet", table, provenance)


def scores_table(scores: Mapping[int, Scores], prompts: PromptSet) -> pd.DataFrame:
    """Return a row a mask and prompt: ``mask_id, prompt_id, logprob, correct, margin, valid``.

    ``correct`` and ``margin`` are missing where the metric knows no right or wrong, or scores are not valid.
    """
    ids = [prompt.id for prompt in prompts.prompts]
    parts = list(scores.values())
    return pd.DataFrame(
        {
            "mask_id": np.repeat(np.array(list(scores), dtype=np.int32), len(ids)),
            "prompt_id": ids * len(parts),
            "logprob": np.concatenate([part.logprob for part in parts]),
            "correct": as_verdicts(np.concatenate([part.correct for part in parts])),
            "margin": np.concatenate([part.margin for part in parts]),
            "valid": np.concatenate([part.valid for part in parts]),
        }
    )


def as_verdicts(correct: np.ndarray) -> pd.Series:
    """Return 1, 0 and NaN as a nullable boolean column."""
    return pd.Series(correct).astype("Float64").astype("boolean")


def _scored(scorer: Scorer, evaluations: Iterable[Evaluation]) -> Iterator[tuple[Evaluation, Scores]]:
    """Score evaluations, those of one prompt set together: they may share forwards."""
    by_prompts: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        by_prompts.setdefault(evaluation.prompts.fingerprint, []).append(evaluation)
    for group in by_prompts.values():
        masks = [evaluation.heads for evaluation in group]
        for position, scores in scorer.score_masks(group[0].prompts, masks):
            yield group[position], scores


class _Rate(ProgressColumn):
    """Evaluations a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.2f}/s" if task.speed else "-/s")


def _progress_bar(console: Console, *, shown: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not shown)

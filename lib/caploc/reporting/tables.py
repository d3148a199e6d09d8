"""What was found, in numbers: the metrics of a run and the table a person reads."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pandas as pd
from rich import box
from rich.table import Table
from rich.text import Text

from caploc.errors import CaplocError

Metrics = dict[str, dict[str, float | int]]

_MEAN = "mean"
_NATS = "_nats"


def metrics(validation: pd.DataFrame, capabilities: Sequence[str] | None = None) -> Metrics:
    """Summarize what knocking out each capability's heads did, on held-out prompts.

    Parameters
    ----------
    validation : DataFrame
        A row a head set, number of heads and capability scored, with columns ``head_set, localized, k,
        capability, metric, baseline, score, drop, ci_low, ci_high``.
    capabilities : sequence of str, optional
        The localized capabilities. By default those with a chosen set in `validation`, so name them
        where a capability may have got no heads at all.

    Returns
    -------
    dict
        For each capability ``baseline, knocked_out, drop, spillover, selectivity`` (of the score, the share
        of correct prompts), ``heads`` (how many were knocked out) and ``<control>_nats`` (drop of each
        control that is scored by log-probability alone, in nats a token); then ``mean`` over the
        capabilities, with ``target_selectivity`` (sets ranked by target effect alone) and ``random_drop``
        (random sets), these two only where such sets were validated.

    Raises
    ------
    CaplocError
        If a number is missing, or a capability has a name that the metrics need.
    """
    names = localized(validation) if capabilities is None else list(capabilities)
    if _MEAN in names:
        raise CaplocError(f'no capability may be called "{_MEAN}": the metrics keep that name. Rename it')
    found = {name: _outcome(validation, name) for name in names}
    return {**found, _MEAN: _means(validation, found)}


def localized(validation: pd.DataFrame) -> list[str]:
    """Return the capabilities with a chosen head set, in the order they came."""
    return _unique(validation.loc[validation["head_set"] == "chosen", "localized"])


def scored_in_nats(validation: pd.DataFrame) -> list[str]:
    """Return the capabilities scored by log-probability alone: no term of spillover."""
    return _unique(validation.loc[validation["metric"] == "logprob", "capability"])


def full_size(validation: pd.DataFrame, head_set: str, name: str) -> pd.DataFrame:
    """Return the rows with all heads of the set localized for `name` out, a row a capability scored."""
    rows = validation[(validation["head_set"] == head_set) & (validation["localized"] == name)]
    return cast("pd.DataFrame", rows[rows["k"] == rows["k"].max()])


def spillover(rows: pd.DataFrame, name: str) -> float:
    """Return the mean over the other capabilities of ``max(drop, 0)``; 0 where no other was scored."""
    others = rows[(rows["capability"] != name) & (rows["metric"] != "logprob")]
    return float(others["drop"].clip(lower=0).mean()) if len(others) else 0.0


def summary_table(metrics: Metrics, heads: Mapping[str, Any]) -> Table:
    """Return the run as a table: a row a capability, the mean, and what lesser choices would have given.

    Parameters
    ----------
    metrics : dict
        From `metrics`.
    heads : mapping
        The content of heads.json: ``{"heads": {capability: {"chosen": ["L29H1", ...]}}}``.
    """
    table = Table(
        title="Heads that each capability needs", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.caption = "\n".join([*comparison(metrics), *doubt_lines(heads)])
    for title in ("capability", "intact -> out", "drop", "spillover", "selectivity"):
        table.add_column(title, justify="left" if title == "capability" else "right", no_wrap=True)
    table.add_column("heads")
    for name, row in capability_rows(metrics):
        scores = f"{row['baseline']:z.2f} -> {row['knocked_out']:z.2f}"
        table.add_row(Text(name), scores, *_shown(row), " ".join(chosen_heads(heads, name)) or "none")
    table.add_section()
    table.add_row(_MEAN, "", *_shown(metrics[_MEAN]), "", style="bold")
    return table


def capability_rows(metrics: Metrics) -> list[tuple[str, dict[str, float | int]]]:
    """Return the metrics of the capabilities alone, without their mean."""
    return [(name, row) for name, row in metrics.items() if name != _MEAN]


def controls_in(metrics: Metrics) -> list[str]:
    """Return the controls whose drop in nats the metrics hold."""
    keys = (key for _, row in capability_rows(metrics) for key in row if key.endswith(_NATS))
    return [key.removesuffix(_NATS) for key in _unique(keys)]


def chosen_heads(heads: Mapping[str, Any], name: str) -> list[str]:
    """Return the names of the heads chosen for a capability; empty where there are none."""
    return list(heads["heads"].get(name, {}).get("chosen", []))


def comparison(metrics: Metrics) -> list[str]:
    """Say what lesser choices of heads would have given, and what the controls in nats lost."""
    mean = metrics[_MEAN]
    lines = []
    if "target_selectivity" in mean:
        lines.append(f"Ranked by target effect alone: mean selectivity {mean['target_selectivity']:z.2f}")
    if "random_drop" in mean:
        lines.append(f"Random sets of as many heads as sparsity allows: mean drop {mean['random_drop']:z.2f}")
    for control in controls_in(metrics):
        worst = max(row.get(control + _NATS, 0.0) for _, row in capability_rows(metrics))
        lines.append(f"Largest loss on {control}: {worst:z.2f} nats a token")
    return lines


def doubt_lines(heads: Mapping[str, Any]) -> list[str]:
    """Say which findings the masks do not bear out, where more masks would help, and the universal heads."""
    found = heads["heads"]
    lines = []
    if unsure := [name for name, one in found.items() if not one["found"]]:
        lines.append(f"Not borne out by masks held out: {', '.join(unsure)}")
    if wanting := [name for name, one in found.items() if not one["enough_masks"]]:
        lines.append(f"More masks would help: {', '.join(wanting)}")
    if heads["universal"]:
        lines.append(f"Heads that most capabilities need: {' '.join(heads['universal'])}")
    return lines


def _shown(row: Mapping[str, float | int]) -> list[str]:
    return [f"{row[key]:z.2f}" for key in ("drop", "spillover", "selectivity")]


def _outcome(validation: pd.DataFrame, name: str) -> dict[str, float | int]:
    rows = full_size(validation, "chosen", name)
    own = rows[rows["capability"] == name]
    baseline = validation.loc[validation["capability"] == name, "baseline"]
    if not len(baseline):
        raise CaplocError(f'"{name}" was never scored in the validation: run the validate stage again')
    before = float(baseline.iloc[0])
    drop = float(own["drop"].iloc[0]) if len(own) else 0.0
    spilled = spillover(rows, name)
    result: dict[str, float | int] = {
        "baseline": _plain(before),
        "knocked_out": _plain(own["score"].iloc[0] if len(own) else before),
        "drop": _plain(drop),
        "spillover": _plain(spilled),
        "selectivity": _plain(drop - spilled),
        "heads": int(own["k"].iloc[0]) if len(own) else 0,
    }
    for control in scored_in_nats(validation):
        if control != name:
            lost = rows.loc[rows["capability"] == control, "drop"]
            result[control + _NATS] = _plain(lost.iloc[0] if len(lost) else 0.0)
    return result


def _means(validation: pd.DataFrame, found: Metrics) -> dict[str, float | int]:
    mean: dict[str, float | int] = {
        key: _mean([row[key] for row in found.values()]) for key in ("drop", "spillover", "selectivity")
    }
    if (validation["head_set"] == "target").any():
        mean["target_selectivity"] = _mean([_selectivity(validation, "target", name) for name in found])
    random = validation["head_set"].str.startswith("random-")
    rows = validation[
        random & validation["capability"].isin(list(found)) & (validation["metric"] != "logprob")
    ]
    if len(rows):
        mean["random_drop"] = _mean(rows["drop"].tolist())
    return mean


def _selectivity(validation: pd.DataFrame, head_set: str, name: str) -> float:
    rows = full_size(validation, head_set, name)
    own = rows.loc[rows["capability"] == name, "drop"]
    return (float(own.iloc[0]) if len(own) else 0.0) - spillover(rows, name)


def _mean(values: Sequence[float]) -> float:
    return _plain(math.fsum(values) / len(values)) if values else 0.0


def _plain(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise CaplocError("the validation holds a score that is no number: run the validate stage again")
    return round(number, 6) + 0.0  # + 0.0 makes -0.0 plain zero


def _unique(values: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values))

"""The rows behind the plots of ``dvc plots``: JSON, a row a line, the same bytes for the same run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from caploc.reporting.tables import full_size, localized, metrics

Rows = list[dict[str, Any]]

_DECIMALS = 4


def write_plots(
    effects: pd.DataFrame, validation: pd.DataFrame, folder: Path, capabilities: Sequence[str] | None = None
) -> list[Path]:
    """Write effects.json, drops.json, transfer.json and curve.json into `folder`.

    Parameters
    ----------
    effects : DataFrame
        Every head of every capability: ``capability, layer, head, effect, standardized, chosen``.
    validation : DataFrame
        As for `caploc.reporting.tables.metrics`.
    folder : Path
        Made where it is missing.
    capabilities : sequence of str, optional
        The localized capabilities; by default those with a chosen set in `validation`.
    """
    names = localized(validation) if capabilities is None else list(capabilities)
    plots = {
        "effects": effect_rows(effects),
        "drops": drop_rows(validation, names),
        "transfer": transfer_rows(validation, names),
        "curve": curve_rows(validation, names),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(folder / f"{name}.json", rows) for name, rows in plots.items()]


def effect_rows(effects: pd.DataFrame) -> Rows:
    """Return a row a head and capability: where it sits, its effect, whether it was chosen."""
    columns = effects[["capability", "layer", "head", "effect", "standardized", "chosen"]]
    return [
        {
            "capability": str(capability),
            "layer": int(layer),
            "head": int(head),
            "effect": _round(effect),
            "standardized": _round(standardized),
            "chosen": bool(chosen),
        }
        for capability, layer, head, effect, standardized, chosen in columns.itertuples(index=False)
    ]


def drop_rows(validation: pd.DataFrame, names: Sequence[str]) -> Rows:
    """Return two rows a capability, its drop with the interval and its spillover (which has none)."""
    rows: Rows = []
    for name, row in metrics(validation, names).items():
        if name not in names:
            continue
        low, high = _interval(validation, name)
        rows += [
            {
                "capability": name,
                "kind": "drop",
                "value": _round(row["drop"]),
                "ci_low": low,
                "ci_high": high,
            },
            {"capability": name, "kind": "spillover", "value": _round(row["spillover"])}
            | {"ci_low": None, "ci_high": None},
        ]
    return rows


def transfer_rows(validation: pd.DataFrame, names: Sequence[str]) -> Rows:
    """Return a row a localized capability and capability scored: what its heads cost the other.

    Capabilities scored in nats are left out: their drops share no unit with the others'.
    """
    rows: Rows = []
    for name in names:
        full = full_size(validation, "chosen", name)
        for row in full[full["metric"] != "logprob"].to_dict("records"):
            scores = {key: _round(row[key]) for key in ("baseline", "score", "drop")}
            rows.append({"localized": name, "capability": str(row["capability"]), **scores})
    return rows


def curve_rows(validation: pd.DataFrame, names: Sequence[str]) -> Rows:
    """Return a row a capability and number of heads knocked out, from none to all, with its own score.

    The interval is that of the drop, laid below the baseline and cut where no share of correct prompts
    can be; with no head out it has no width.
    """
    rows: Rows = []
    for name, result in metrics(validation, names).items():
        if name not in names:
            continue
        base = _round(result["baseline"])
        rows.append({"capability": name, "k": 0, "score": base, "ci_low": base, "ci_high": base})
        own = validation[(validation["localized"] == name) & (validation["capability"] == name)]
        chosen = own[(own["head_set"] == "chosen") & (own["k"] > 0)].sort_values("k")
        rows += [
            {
                "capability": name,
                "k": int(row["k"]),
                "score": _round(row["score"]),
                "ci_low": _round(max(row["baseline"] - row["ci_high"], 0)),
                "ci_high": _round(min(row["baseline"] - row["ci_low"], 1)),
            }
            for row in chosen.to_dict("records")
        ]
    return rows


def _interval(validation: pd.DataFrame, name: str) -> tuple[float | None, float | None]:
    rows = full_size(validation, "chosen", name)
    own = rows[rows["capability"] == name]
    if not len(own):
        return None, None
    return _round(own["ci_low"].iloc[0]), _round(own["ci_high"].iloc[0])


def _round(value: Any) -> float:
    return round(float(value), _DECIMALS) + 0.0  # + 0.0 makes -0.0 plain zero


def _write(path: Path, rows: Rows) -> Path:
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return path

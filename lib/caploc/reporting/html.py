"""report.html: the verdicts, tables and figures of a run on one page that needs no network."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from caploc.reporting.figures import Illustration, png
from caploc.reporting.layout import PAGE
from caploc.reporting.tables import Metrics, capability_rows, chosen_heads, comparison, full_size, metrics

_PROVENANCE = ("name", "source", "revision", "sha256", "dtype", "head_dim")


def render_report(
    validation: pd.DataFrame,
    heads: Mapping[str, Any],
    model: Mapping[str, Any],
    figures: Sequence[Illustration],
    params: str,
) -> str:
    """Return the report as HTML; the same run gives the same text.

    Parameters
    ----------
    validation : DataFrame
        As for `caploc.reporting.tables.metrics`.
    heads : mapping
        The content of heads.json.
    model : mapping
        The content of model.json.
    figures : sequence of Illustration
        From `caploc.reporting.figures.illustrations`.
    params : str
        The params.yaml of the run, as text.
    """
    found = metrics(validation, list(heads["heads"]))
    return PAGE.substitute(
        model=escape(str(model["name"])),
        shape=escape(_shape(model)),
        verdicts="\n".join(_verdict(validation, heads, name, row) for name, row in capability_rows(found)),
        summary=_summary(found, heads),
        comparison=escape(". ".join(comparison(found))),
        doubts=_doubts(heads),
        masks=heads["masks"],
        universal=escape(_universal(heads)),
        drops=_drops(validation, [name for name, _ in capability_rows(found)]),
        figures="\n".join(_figure(figure) for figure in figures),
        provenance="\n".join(
            f"<dt>{key}</dt><dd>{escape(str(model[key]))}</dd>" for key in _PROVENANCE if key in model
        ),
        params=escape(params),
        command="dvc repro",
    )


def _shape(model: Mapping[str, Any]) -> str:
    counts = [int(n) for n in model["heads_per_layer"]]
    each = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
    return f"{sum(counts)} heads: {len(counts)} attention layers of {each} heads"


def _verdict(
    validation: pd.DataFrame, heads: Mapping[str, Any], name: str, row: Mapping[str, float | int]
) -> str:
    chosen = chosen_heads(heads, name)
    if not chosen:
        return f'<li class="poor"><strong>{escape(name)}: not localized.</strong> No heads were chosen.</li>'
    own = full_size(validation, "chosen", name)
    own = own[own["capability"] == name].iloc[0]
    word, rank = _judge(float(own["ci_low"]), row["spillover"])
    before, after = (
        f"{100 * row[key]:z.0f}\N{NO-BREAK SPACE}% correct" for key in ("baseline", "knocked_out")
    )
    number = f"{len(chosen)} head{'s' if len(chosen) > 1 else ''}"
    return (
        f'<li class="{rank}"><strong>{escape(name)}: {word}.</strong> '
        f"Knocking out {number} ({escape(' '.join(chosen))}) takes it from {before} to {after}; "
        f"the other capabilities lose {100 * row['spillover']:z.0f} points on average.</li>"
    )


def _doubts(heads: Mapping[str, Any]) -> str:
    """Return how sure each choice is, and whether more masks would better it."""
    titles = (
        "capability",
        "heads, with the probability that each is chosen",
        "borne out by masks held out",
        "worth of the set",
        "at most gained by more masks",
        "enough masks",
        "harmful heads",
    )
    rows = []
    for name, found in heads["heads"].items():
        selected = " ".join(f"{head} {probability:.0%}" for head, probability in found["selected"].items())
        rows.append(
            [
                name,
                selected or "none",
                f"{'yes' if found['found'] else 'no'} (p = {found['p_value']:.1g})",
                f"{found['learning'][-1]['worth']:z.2f}",
                f"{found['regret']:z.2f}",
                "yes" if found["enough_masks"] else "no",
                " ".join(found["harmful"]) or "none",
            ]
        )
    return _table(titles, rows)


def _universal(heads: Mapping[str, Any]) -> str:
    names = heads["universal"]
    if not names:
        return "No head is clearly needed by most capabilities."
    return f"Needed by most capabilities (universal heads): {' '.join(names)}."


def _judge(ci_low: float, spillover: float) -> tuple[str, str]:
    if ci_low <= 0:
        return "not localized", "poor"
    return ("localized", "good") if ci_low > 2 * spillover else ("not selective", "fair")


def _summary(found: Metrics, heads: Mapping[str, Any]) -> str:
    titles = ("capability", "intact", "knocked out", "drop", "spillover", "selectivity", "heads")
    keys = ("baseline", "knocked_out", "drop", "spillover", "selectivity")
    rows = [
        [name, *(f"{row[key]:z.2f}" for key in keys), " ".join(chosen_heads(heads, name)) or "none"]
        for name, row in capability_rows(found)
    ]
    mean = [f"{found['mean'][key]:z.2f}" for key in keys[2:]]
    foot = _row(["mean", "", "", *mean, ""])
    return _table(titles, rows, foot)


def _drops(validation: pd.DataFrame, names: Iterable[str]) -> str:
    titles = ("heads of", "scored on", "intact", "knocked out", "drop", "95 % interval", "unit")
    rows = [
        [
            name,
            str(row["capability"]),
            *(f"{row[key]:z.2f}" for key in ("baseline", "score", "drop")),
            f"{row['ci_low']:z.2f} to {row['ci_high']:z.2f}",
            "nats a token" if row["metric"] == "logprob" else "share correct",
        ]
        for name in names
        for row in full_size(validation, "chosen", name).to_dict("records")
    ]
    return _table(titles, rows)


def _table(titles: Iterable[str], rows: Iterable[Sequence[str]], foot: str = "") -> str:
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    body = "\n".join(_row(row) for row in rows)
    tail = f"<tfoot>{foot}</tfoot>" if foot else ""
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>{tail}</table>"


def _row(cells: Sequence[str]) -> str:
    first, *rest = (escape(cell) for cell in cells)
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'


def _figure(illustration: Illustration) -> str:
    data = base64.b64encode(png(illustration.figure)).decode("ascii")
    return (
        f"<figure><figcaption>{escape(illustration.title)}</figcaption>"
        f'<img alt="{escape(illustration.alt)}" src="data:image/png;base64,{data}"></figure>'
    )

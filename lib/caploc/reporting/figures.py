"""Figures for the report: where the heads sit, what their knockout costs, and whom it costs."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from caploc.reporting.plot_data import drop_rows, transfer_rows
from caploc.reporting.tables import chosen_heads

_DPI = 150
_DIVERGING = "RdBu"  # red below zero, blue above: told apart with every common colour blindness
_WIDTH = 10.0  # inches


@dataclass(frozen=True)
class Illustration:
    """A figure with the words that go with it; `alt` says what it shows to those who cannot see it."""

    name: str
    title: str
    alt: str
    figure: Figure


def illustrations(
    effects: pd.DataFrame, validation: pd.DataFrame, heads: Mapping[str, Any], names: Sequence[str]
) -> list[Illustration]:
    """Return every figure of the report, in its order.

    Parameters
    ----------
    effects : DataFrame
        Every head of every capability: ``capability, layer, head, standardized, chosen``.
    validation : DataFrame
        As for `caploc.reporting.tables.metrics`.
    heads : mapping
        The content of heads.json.
    names : sequence of str
        The localized capabilities.
    """
    drops = drop_rows(validation, names)
    lost = "; ".join(f"{row['capability']} {row['kind']} {row['value']:z.2f}" for row in drops)
    chosen = "; ".join(f"{name}: {' '.join(chosen_heads(heads, name)) or 'none'}" for name in names)
    harm = "; ".join(
        f"heads of {row['localized']} cost {row['capability']} {row['drop']:z.2f}"
        for row in transfer_rows(validation, names)
    )
    return [
        Illustration(
            "drops",
            "What the knockout costs",
            f"Bars of drop and spillover a capability, as share of correct prompts. {lost}.",
            drop_bars(validation, names),
        ),
        Illustration(
            "transfer",
            "Whom the knockout costs",
            f"Matrix of the drop of every capability under every head set. {harm}.",
            transfer_matrix(validation, names),
        ),
        Illustration(
            "heads",
            "Where the heads sit",
            f"Maps of the effect of every head, a map a capability, chosen heads outlined. {chosen}.",
            head_map(effects),
        ),
    ]


def head_map(effects: pd.DataFrame) -> Figure:
    """Draw the standardized effect of every head, a map a capability, with the chosen heads outlined."""
    names = list(dict.fromkeys(effects["capability"]))
    grids = {name: _grid(effects, name) for name in names}
    n_heads, n_layers = np.max([grid.shape for grid in grids.values()], axis=0)
    columns = min(len(names), 2)
    rows = math.ceil(len(names) / columns)
    cell = 0.92 * _WIDTH / columns / n_layers
    figure = _figure(rows * (cell * n_heads + 0.75) + 0.8)
    limit = max(float(effects["standardized"].abs().max()), 1e-9)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, name in zip(axes, names, strict=False):
        _draw_heads(ax, grids[name], limit)
        _outline(ax, effects[(effects["capability"] == name) & effects["chosen"]], grids[name])
        ax.set_title(_text(name), loc="left", fontsize=10, fontweight="bold")
    for ax in axes[len(names) :]:
        ax.set_axis_off()
    bar = figure.colorbar(axes[0].collections[0], ax=list(axes), location="top", shrink=0.5, aspect=40)
    bar.set_label("effect of the knockout, standard deviations (red: needed; outlined: chosen)")
    bar.outline.set_visible(False)  # type: ignore[operator]  # matplotlib's stubs call it a tuple
    return figure


def drop_bars(validation: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Draw the drop, with its interval, beside the spillover of each capability."""
    rows = pd.DataFrame(drop_rows(validation, names))
    figure = _figure(0.6 * len(names) + 1.0)
    ax = figure.add_subplot()
    colours = sns.color_palette("colorblind")
    palette = {"drop": colours[0], "spillover": colours[1]}
    rows["capability"] = rows["capability"].map(_text)
    sns.barplot(rows, x="value", y="capability", hue="kind", palette=palette, saturation=1, ax=ax)
    drops = rows[rows["kind"] == "drop"].reset_index(drop=True).dropna()
    middle = drops.index.to_numpy() - 0.2  # seaborn's two bars share 0.8, the drop above
    ax.hlines(middle, drops["ci_low"], drops["ci_high"], colors="black", linewidth=1.3, zorder=3)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set(xlabel="share of correct prompts lost (line: 95 % interval)", ylabel="")
    ax.grid(axis="x", color="#dddddd", linewidth=0.7)
    ax.set_axisbelow(True)
    sns.despine(ax=ax, left=True)
    ax.legend(title=None, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def transfer_matrix(validation: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Draw the drop of every capability (across) under the knockout of every head set (down)."""
    rows = pd.DataFrame(transfer_rows(validation, names), columns=["localized", "capability", "drop"])
    scored = list(dict.fromkeys([*(n for n in names if n in set(rows["capability"])), *rows["capability"]]))
    down = [name for name in names if name in set(rows["localized"])]
    matrix = rows.pivot_table(index="localized", columns="capability", values="drop").loc[down, scored]
    figure = _figure(0.5 * len(down) + 1.6)
    ax = figure.add_subplot()
    if matrix.empty:
        ax.text(0.5, 0.5, "no heads were chosen", ha="center", va="center")
        ax.set_axis_off()
        return figure
    sns.heatmap(
        matrix, ax=ax, cmap=f"{_DIVERGING}_r", vmin=-1, vmax=1, annot=True, fmt="z.2f", linewidths=1,
        xticklabels=[_text(name) for name in scored], yticklabels=[_text(name) for name in down],
        cbar_kws={"label": "drop, share of correct prompts"},
    )  # fmt: skip
    ax.set(xlabel="scored on", ylabel="heads found for")
    ax.tick_params(length=0)
    ax.tick_params(axis="x", rotation=25)
    ax.tick_params(axis="y", rotation=0)
    return figure


def png(figure: Figure) -> bytes:
    """Return a figure as PNG: no time and no version in it, so the same figure is the same bytes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # each drawing would move the layout a little further
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
    return buffer.getvalue()


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, making its folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(figure))
    return path


def _figure(height: float) -> Figure:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _grid(effects: pd.DataFrame, name: str) -> pd.DataFrame:
    rows = effects[effects["capability"] == name]
    return rows.pivot_table(index="head", columns="layer", values="standardized")


def _draw_heads(ax: Axes, grid: pd.DataFrame, limit: float) -> None:
    sns.heatmap(
        grid,
        ax=ax,
        cmap=_DIVERGING,
        vmin=-limit,
        vmax=limit,
        square=True,
        cbar=False,
        xticklabels=5,
        yticklabels=5,
    )
    ax.set(xlabel="layer", ylabel="head")
    ax.tick_params(length=0, labelsize=8, labelrotation=0)
    for spine in ax.spines.values():
        spine.set(visible=True, color="#bbbbbb", linewidth=0.6)


def _outline(ax: Axes, chosen: pd.DataFrame, grid: pd.DataFrame) -> None:
    for layer, head in zip(chosen["layer"], chosen["head"], strict=True):
        corner = (list(grid.columns).index(layer), list(grid.index).index(head))
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="black", linewidth=1.6, clip_on=False))


def _text(name: Any) -> str:
    """Return a name that matplotlib prints as it is, dollar signs too."""
    return str(name).replace("$", r"\$")

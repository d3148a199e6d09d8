"""Write what people read: metrics, plots, figures, report.html; print the summary."""

from rich.console import Console

from _stage import run
from caploc.files import (
    EFFECTS,
    FIGURES,
    HEADS,
    METRICS,
    MODEL,
    PLOTS,
    REPORT,
    VALIDATION,
    read_json,
    read_table,
    write_json,
)
from caploc.params import load_params
from caploc.reporting.figures import illustrations, save
from caploc.reporting.html import render_report
from caploc.reporting.plot_data import write_plots
from caploc.reporting.tables import metrics, summary_table


def main() -> None:
    """Report what was found, and how sure it is."""
    effects, validation, heads = read_table(EFFECTS), read_table(VALIDATION), read_json(HEADS)
    localized = list(heads["heads"])
    found = metrics(validation, localized)
    write_json(METRICS, found)
    write_plots(effects, validation, PLOTS, localized)
    figures = illustrations(effects, validation, heads, localized)
    for figure in figures:
        save(figure.figure, FIGURES / f"{figure.name}.png")
    page = render_report(validation, heads, read_json(MODEL), figures, load_params().experiment())
    REPORT.write_text(page, encoding="utf-8")
    Console().print(summary_table(found, heads), f"The whole report: {REPORT}")


if __name__ == "__main__":
    run(main)

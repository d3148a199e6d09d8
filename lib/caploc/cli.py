"""The ``caploc`` command: what there is to choose from, and what the last run found."""

import sys

import typer
from rich.console import Console
from rich.table import Table

from caploc.capabilities.registry import FAMILIES
from caploc.errors import CaplocError
from caploc.files import HEADS, METRICS, read_json
from caploc.models.sources import preset_names, resolve
from caploc.reporting.tables import summary_table

app = typer.Typer(
    help="Find the attention heads that a language model's capability needs; `dvc repro` runs the pipeline.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command()
def models() -> None:
    """List the model presets; hub ids and local folders work too."""
    table = Table("preset", "from", "layers x heads")
    for name in preset_names():
        source = resolve(name)
        layers, heads = source.heads_per_layer or ("?", "?")
        table.add_row(name, f"{source.kind}: {source.location}", f"{layers} x {heads}")
    Console().print(table)


@app.command()
def capabilities() -> None:
    """List the capabilities, how each is scored, and its chance level."""
    table = Table("capability", "what it tests", "metric", "chance")
    for name, family in FAMILIES.items():
        table.add_row(name, family.summary, family.metric, f"{family.chance:g}")
    Console().print(table)


@app.command()
def show() -> None:
    """Print the summary of the last run."""
    for path in (METRICS, HEADS):
        if not path.exists():
            sys.exit(f"error: there is no {path}; run `dvc repro` first, or `dvc checkout` to restore a run")
    Console().print(summary_table(read_json(METRICS), read_json(HEADS)))


def main() -> None:
    """Run the command; an error that is the user's to mend is shown without a traceback."""
    try:
        app()
    except CaplocError as error:
        sys.exit(f"error: {error}")

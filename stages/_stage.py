"""What every stage script does first: put its own checkout's library first, and run as a command.

An editable install imports the workspace's lib/, even in an experiment's temporary checkout.
"""

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import typer

from caploc.errors import CaplocError


def run(main: Callable[[], None]) -> None:
    """Run a stage as a command; an error that is the user's to mend is shown without a traceback."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    try:
        app()
    except CaplocError as error:
        sys.exit(f"error: {error}")

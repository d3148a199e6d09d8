"""The ``caploc`` command: what there is to choose from, what a run found, heads tried and taken out."""
# ruff: noqa: PLC0415 - torch and transformers take seconds to import, and most commands do without

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from caploc.capabilities.registry import FAMILIES, build
from caploc.errors import CaplocError, did_you_mean
from caploc.files import HEADS, METRICS, MODEL, read_json
from caploc.models.sources import ModelSource, preset_names, resolve
from caploc.reporting.tables import summary_table

app = typer.Typer(
    help="Find the attention heads that a language model's capability needs; `dvc repro` runs the pipeline.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class Dtype(StrEnum):
    """What weights are loaded as; ``auto`` is the checkpoint's own."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Split(StrEnum):
    """The prompts for the proof, or those for recovery."""

    VALIDATE = "validate"
    MEASURE = "measure"


ModelOption = Annotated[
    str, typer.Option("--model", help="Preset, hub id or folder; by default the model of the last run.")
]
HeadsArgument = Annotated[
    list[str] | None, typer.Argument(help="More heads to knock out.", show_default=False)
]
KnockoutOption = Annotated[list[str] | None, typer.Option("--knockout", help="Heads such as L16H21 L15H13.")]
HeadsFileOption = Annotated[Path, typer.Option("--heads", help="Where a run wrote the heads that it found.")]
DeviceOption = Annotated[str, typer.Option(help="auto (cuda, else mps, else cpu) or a torch device.")]


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


@app.command()
def score(
    capability: Annotated[str, typer.Option(help="One of `caploc capabilities`.")],
    heads: HeadsArgument = None,
    knockout: KnockoutOption = None,
    model: ModelOption = "",
    split: Annotated[Split, typer.Option(help="Which prompts.")] = Split.VALIDATE,
    prompts: Annotated[int, typer.Option(min=1, help="How many prompts.")] = 48,
    seed: Annotated[int, typer.Option(min=0, help="Seed of prompts and interval.")] = 0,
    dtype: Annotated[Dtype, typer.Option()] = Dtype.FLOAT32,
    device: DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Score one capability with some heads knocked out: the drop, with its 95 % interval."""
    names = [*(knockout or []), *(heads or [])]
    counts = {split.value: prompts}
    asked = build(capability, seed=seed, measure=counts.get("measure", 8), validate=counts.get("validate", 8))
    source = _source(model)
    from caploc.models.loading import load_source
    from caploc.scoring import Scorer
    from caploc.spot_check import spot_check

    loaded = load_source(source, dtype=dtype, device=device)
    names = loaded.grid.names(loaded.grid.indices(names))
    scorer = Scorer(loaded.model, loaded.tokenizer)
    found = spot_check(scorer, asked, names, split=split, bootstrap=2000, seed=seed)
    if as_json:
        sys.stdout.write(json.dumps({"model": source.name, **found}, indent=2) + "\n")
        return
    table = Table(
        "", "score", "log-probability", title=f"{capability} on {found['n']} {split} prompts, {source.name}"
    )
    table.add_row("intact", f"{found['baseline']:.3f}", f"{found['logprob_baseline']:.3f}")
    table.add_row(
        f"without {' '.join(names) or 'nothing'}", f"{found['score']:.3f}", f"{found['logprob']:.3f}"
    )
    table.add_row("drop", f"{found['drop']:.3f} [{found['ci_low']:.3f}, {found['ci_high']:.3f}]", "")
    Console().print(table)


@app.command()
def export(
    out: Annotated[Path, typer.Option(help="The folder to write; it must not hold anything yet.")],
    more: HeadsArgument = None,
    knockout: KnockoutOption = None,
    heads: HeadsFileOption = HEADS,
    capability: Annotated[str, typer.Option(help="Knock out the heads found for it.")] = "",
    model: ModelOption = "",
    dtype: Annotated[Dtype, typer.Option()] = Dtype.AUTO,
) -> None:
    """Write a model with heads knocked out as an ordinary checkpoint."""
    names = [*(knockout or []), *(more or [])]
    if bool(names) == bool(capability):
        raise CaplocError(
            "say which heads: either --knockout L16H21 L15H13 ..., or --capability NAME of the last run"
        )
    if capability:
        names = _found_heads(heads, capability)
    from caploc.exporting import export as write
    from caploc.exporting import require_empty
    from caploc.models.loading import load_source

    require_empty(out)
    source = _source(model)
    loaded = load_source(source, dtype=dtype, device="cpu")
    written = write(loaded.model, loaded.tokenizer, names, out, source=source.name)
    Console().print(f"{out}: {source.name} without {' '.join(written)}")


def _found_heads(path: Path, capability: str) -> list[str]:
    found = read_json(path)["heads"]
    if capability not in found:
        raise CaplocError(
            f'{path} has no heads for "{capability}"{did_you_mean(capability, found)}; '
            f"it has {', '.join(found)}"
        )
    if not found[capability]["chosen"]:
        raise CaplocError(f'no head was found for "{capability}"; name heads with --knockout')
    return found[capability]["chosen"]


def _source(model: str) -> ModelSource:
    if model:
        return resolve(model)
    if not MODEL.exists():
        raise CaplocError(f"name a model with --model; there is no last run here ({MODEL} is missing)")
    described: dict[str, Any] = read_json(MODEL)["source"]
    return ModelSource(**described)


def main() -> None:
    """Run the command; an error that is the user's to mend is shown without a traceback."""
    try:
        app()
    except CaplocError as error:
        sys.exit(f"error: {error}")

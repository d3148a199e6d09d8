"""A knockout written into the weights, for any tool that loads a checkpoint."""

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from caploc.errors import CaplocError
from caploc.files import write_json
from caploc.heads import HeadLike
from caploc.models.attention import AttentionLayer, attention_layers, grid_of

RECORD = "knockout.json"
"""In an exported folder: which heads were knocked out, and of what model."""


@torch.no_grad()
def write_knockout(model: Any, heads: Iterable[HeadLike]) -> list[str]:
    """Set the input columns of the output projections that belong to some heads to zero, for good.

    The model then computes what it would inside ``with knockout(model, heads)``.

    Returns
    -------
    list of str
        The heads' names, in flat order.

    Raises
    ------
    CaplocError
        If a head does not exist, or the weights are quantized or shared by several layers.
    """
    layers = attention_layers(model)
    grid = grid_of(layers)
    indices = grid.indices(heads)
    by_number = {layer.number: layer for layer in layers}
    weights = [id(layer.projection.weight) for layer in layers]
    for number, head in (grid.heads[index] for index in indices):
        layer = by_number[number]
        if weights.count(id(layer.projection.weight)) > 1:
            raise CaplocError(
                f"layer {number} shares its output projection with others: one head alone cannot go"
            )
        _columns(layer, head).zero_()
    return grid.names(indices)


def export(model: Any, tokenizer: Any, heads: Iterable[HeadLike], out: Path, *, source: str) -> list[str]:
    """Save a model with some heads knocked out as an ordinary checkpoint: safetensors, config and tokenizer.

    Parameters
    ----------
    model, tokenizer
        What to save; the model is changed.
    heads : iterable of int, str or (int, int)
        The heads to knock out.
    out : Path
        A folder that does not exist yet, or is empty. It appears whole or not at all.
    source : str
        The model's name, for the record.

    Returns
    -------
    list of str
        The heads' names, in flat order.

    Raises
    ------
    CaplocError
        If the folder holds something, cannot be written, or the heads cannot be written into the weights.
    """
    require_empty(out)
    names = write_knockout(model, heads)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as unfinished:
            folder = Path(unfinished) / "checkpoint"
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            write_json(folder / RECORD, {"model": source, "knocked_out": names})
            if out.exists():
                out.rmdir()
            shutil.move(folder, out)
    except OSError as error:
        raise CaplocError(f"{out} cannot be written: {error.strerror or error}") from error
    return names


def require_empty(out: Path) -> None:
    """Check that a folder can be exported to, before any weights are loaded.

    Raises
    ------
    CaplocError
        If it is a file, or holds something.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CaplocError(f"{out} is not an empty folder; choose another, or remove it first")


def _columns(layer: AttentionLayer, head: int) -> torch.Tensor:
    """Return the part of a projection's weight that reads a head."""
    projection: Any = layer.projection
    weight, width = projection.weight, layer.n_heads * layer.head_width
    if not weight.is_floating_point() or width not in weight.shape:
        raise CaplocError(
            f"the weights of layer {layer.number} are quantized: export from the full-precision model"
        )
    # nn.Linear keeps [out, in], GPT-2's Conv1D [in, out]
    columns = layer.columns(head)
    return weight[:, columns] if isinstance(projection, torch.nn.Linear) else weight[columns]

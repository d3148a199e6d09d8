"""From a model's name to weights in memory, with the grid of its heads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from caploc.errors import CaplocError
from caploc.heads import HeadGrid
from caploc.models.attention import attention_layers, grid_of, require_heads
from caploc.models.sources import ModelSource, fetch, read_config, resolve
from caploc.models.trial import try_heads


class LoadedModel(NamedTuple):
    """A model ready to be scored: in evaluation mode, parameters frozen."""

    model: Any
    tokenizer: Any
    grid: HeadGrid


def load_model(name: str, *, dtype: str = "float32", device: str = "auto") -> LoadedModel:
    """Load a model and its tokenizer, fetching the weights first if the model cache lacks them.

    Parameters
    ----------
    name : str
        A preset such as ``smollm2-135m-instruct``, a hub id, or a local folder.
    dtype : str
        ``float32``, ``bfloat16``, ``float16``, or ``auto``: the checkpoint's own.
    device : str
        ``auto`` (CUDA, else MPS, else CPU), or a torch device.

    Returns
    -------
    LoadedModel
        ``(model, tokenizer, grid)``.

    Raises
    ------
    CaplocError
        If the name is unknown, the weights cannot be had, or the architecture is not supported.
    """
    return load_source(resolve(name), dtype=dtype, device=device)


def load_source(source: ModelSource, *, dtype: str, device: str) -> LoadedModel:
    """Load the model that a resolved source names; see :func:`load_model`."""
    there = choose_device(device)
    require_heads(read_config(source))
    folder = fetch(source)
    with _no_progress_bar():
        model = _load_weights(folder, dtype)
    model = model.to(there).eval().requires_grad_(requires_grad=False)
    layers = attention_layers(model)
    try_heads(model, layers)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    return LoadedModel(model, tokenizer, grid_of(layers))


def _load_weights(folder: Path, dtype: str) -> Any:
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (SafetensorError, KeyError, OSError, RuntimeError) as error:
        raise CaplocError(f"the weights in {folder} cannot be loaded: {error}; fetch them again") from error
    model, report = loaded
    # transformers would fill what is missing with random numbers
    strange = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if strange:
        raise CaplocError(
            f"the weights in {folder} do not fit its config.json: {len(strange)} tensors are missing or of "
            f"another shape, {strange[0]} among them; fetch or convert the model again"
        )
    return model


def choose_device(device: str) -> torch.device:
    """Return the device that ``auto`` or an explicit name means here."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise CaplocError(f'"{device}" is no device: use auto, cpu, cuda or mps') from error
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (found.index or 0) >= there.get(found.type, 0):
        raise CaplocError(f"the device is {device}, which caploc does not see here; use auto or cpu")
    return found


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()

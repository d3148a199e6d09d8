"""From a model's name to weights in memory, with the grid of its heads."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from caploc.errors import CaplocError
from caploc.heads import HeadGrid
from caploc.models.attention import head_grid, require_supported
from caploc.models.sources import ModelSource, fetch, read_config, resolve


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
        ``float32``, ``bfloat16`` or ``float16``.
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
    require_supported(read_config(source).model_type)
    folder = fetch(source)
    with _no_progress_bar():
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), use_safetensors=True, trust_remote_code=False
        )
    model = model.to(choose_device(device)).eval().requires_grad_(requires_grad=False)
    return LoadedModel(
        model, AutoTokenizer.from_pretrained(folder, trust_remote_code=False), head_grid(model)
    )


def choose_device(device: str) -> torch.device:
    """Return the device that ``auto`` or an explicit name means here."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise CaplocError(f"runtime.device is {device}, but torch sees no CUDA device here; use auto or cpu")
    return torch.device(device)


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()

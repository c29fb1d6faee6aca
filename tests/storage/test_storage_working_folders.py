"""Folders that a process works in: they go with it, and where it was killed with a later one; never while in use."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clonos.errors import StorageUnavailable
from clonos.storage.working_folders import PREFIX, remove_left, working_folder

WORKS = """
import sys
from clonos.errors import StorageUnavailable
from clonos.storage.working_folders import working_folder
with working_folder("desk") as folder:
    open(f"{folder}/secret", "w").close()
    print(folder, flush=True)
    sys.stdin.read()
"""
ENDS_BESIDE = """
import threading
from clonos.errors import StorageUnavailable
from clonos.storage.working_folders import working_folder
def work():
    with working_folder("page"):
        begun.set()
        threading.Event().wait()
begun = threading.Event()
threading.Thread(target=work, daemon=True).start()
begun.wait()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def worker() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that works in a folder."""
    with subprocess.Popen(
        [sys.executable, "-c", WORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_it_goes_when_it_is_left(temporary: Path) -> None:
    with pytest.raises(RuntimeError), working_folder("desk") as folder:
        Path(folder, "secret").touch()
        (entry,) = temporary.iterdir()
        assert entry.name.startswith(f"{PREFIX}desk-") and entry.stat().st_mode & 0o077 == 0
        remove_left()
        assert Path(folder, "secret").exists(), "it is in use, by this process"
        raise RuntimeError
    assert list(temporary.iterdir()) == []


def test_of_a_process_that_was_killed_it_goes_with_a_later_one(temporary: Path) -> None:
    with worker() as (lives, used), worker() as (killed, left):
        killed.kill()
        killed.wait()
        assert (left / "secret").exists() and (used / "secret").exists()
        remove_left()
        assert not left.parent.exists() and (used / "secret").exists()
        lives.communicate("")
        assert list(temporary.iterdir()) == []


def test_it_goes_with_its_process_whatever_a_thread_does(temporary: Path) -> None:
    subprocess.run([sys.executable, "-c", ENDS_BESIDE], check=True)
    assert list(temporary.iterdir()) == []


def test_what_is_not_its_own_stays(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (temporary / f"{PREFIX}file").touch()
    os.symlink(elsewhere, temporary / f"{PREFIX}link")
    (temporary / f"{PREFIX}begun-to-be-removed" / "work").mkdir(parents=True)
    remove_left()
    assert (elsewhere / "kept").exists()
    assert {each.name for each in temporary.iterdir()} == {"elsewhere", f"{PREFIX}file", f"{PREFIX}link"}


@pytest.mark.parametrize("variable", ["TMPDIR", "TEMP", "TMP"])
@pytest.mark.parametrize("how", ["not mounted", "no directory", "full"])
def test_a_directory_that_cannot_be_used_is_named_and_no_other_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, how: str
) -> None:
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    directory, other = tmp_path / "encrypted", tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv(variable, str(directory))
    monkeypatch.setattr(tempfile, "tempdir", str(other))  # as Python has it by then
    reasons = {"not mounted": "No such file", "no directory": "Not a directory", "full": "No space left"}
    if how == "no directory":
        directory.touch()
    elif how == "full":
        directory.mkdir()

        def refused(descriptor: int, content: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "write", refused)
    with pytest.raises(StorageUnavailable, match=reasons[how]) as error, working_folder("desk"):
        pytest.fail("it is not worked in")
    assert f"{directory}, which {variable} names," in str(error.value)
    remove_left()
    assert list(other.iterdir()) == [] and (how != "full" or list(directory.iterdir()) == [])


def test_another_directory_is_taken_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the message advises."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    with pytest.raises(StorageUnavailable, match="or set TMPDIR to another one"), working_folder("desk"):
        pytest.fail("it is not worked in")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with working_folder("desk") as folder:
        assert Path(folder).parents[1] == tmp_path

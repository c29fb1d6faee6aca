"""Folders that a process works in: they go with it, and where it was killed with a later one; never while in use."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clonos.storage.working_folders import PREFIX, remove_left, working_folder

WORKS = """
import sys
from clonos.storage.working_folders import working_folder
with working_folder("desk") as folder:
    open(f"{folder}/secret", "w").close()
    print(folder, flush=True)
    sys.stdin.read()
"""
ENDS_BESIDE = """
import threading
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

"""Folders in which a process works on a copy, in the clear, of what is archived or logged; among temporary files:

    clonos-work-<what for>-<random>
        in-use      a file, locked as long as the process works in the folder
        work        the folder that is given

They are where TMPDIR (or TEMP, or TMP) says, which may be an encrypted disk. Where that cannot be used, Python would
take the next directory without a word: here it is an error.

Each goes when the work is done, or with its process where that ends by itself. Where the process was killed it goes
with `remove_left` of a later one, by the lock, which ends with the process: never while it is in use.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Final

from clonos.errors import StorageUnavailable

PREFIX: Final = "clonos-work-"
_NEW: Final = "clonos-new-"  # not yet locked, and empty
_LOCK: Final = "in-use"
_WORK: Final = "work"
_VARIABLES: Final = ("TMPDIR", "TEMP", "TMP")  # as Python asks them

# The folders, and the process that works in each: a fork of it has no part in them
_open: dict[str, int] = {}


@contextlib.contextmanager
def working_folder(what_for: str) -> Iterator[str]:
    """A folder of its own, until that is left. `what_for` is in its name. Raises StorageUnavailable where the directory
    for temporary files cannot be used."""
    with _usable():
        new = tempfile.mkdtemp(prefix=_NEW, dir=_directory())
    folder = os.path.join(os.path.dirname(new), f"{PREFIX}{what_for}-{os.path.basename(new)[len(_NEW) :]}")
    _open[folder] = os.getpid()
    lock = -1
    try:
        with _usable():
            lock = os.open(os.path.join(new, _LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            os.write(lock, b"clonos")  # a full disk takes names, and no content
        # Of a file system without locks: then it is not removed by another process
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.mkdir(os.path.join(new, _WORK))
        os.rename(new, folder)
        yield os.path.join(folder, _WORK)
    finally:
        for each in (folder, new):
            shutil.rmtree(each, ignore_errors=True)
        _open.pop(folder, None)
        if lock >= 0:
            os.close(lock)


def _variable() -> str | None:
    """The variable of the environment that says where temporary files are."""
    return next((name for name in _VARIABLES if os.environ.get(name)), None)


def _directory() -> str:
    variable = _variable()
    return tempfile.gettempdir() if variable is None else os.path.abspath(os.environ[variable])


@contextlib.contextmanager
def _usable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        variable = _variable()
        named = "" if variable is None else f", which {variable} names,"
        raise StorageUnavailable(
            f"the directory {_directory()}{named} cannot be used for temporary files: {error.strerror}",
            hint=f"Mount it, or make room there, or set {variable or _VARIABLES[0]} to another one. What is encrypted "
            "is in the clear there while the command runs, so no other directory is taken instead",
        ) from error


@atexit.register
def remove_open() -> None:
    """Those in which this process works: it is about to end."""
    for folder, process in list(_open.items()):
        if process == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)


def remove_left() -> None:
    """Those of this user whose processes are gone."""
    with contextlib.suppress(OSError), os.scandir(_directory()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _is_left(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_left(entry: os.DirEntry[str]) -> bool:
    try:
        is_own = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        if not is_own or not entry.is_dir(follow_symlinks=False):
            return False
        lock = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:  # it has it before it has its name: the process was killed when it removed it
        return True
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True

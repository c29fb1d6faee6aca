"""Files of a local directory that outlive a power failure: their content and their names, which are synced apart."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

READABLE: Final = 0o666
PRIVATE: Final = 0o600
"""Permissions of new files, before the process's mask: for all users, and for their owner alone."""


def fsync_directory(path: str) -> None:
    """Make the names in a local directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: str) -> None:
    """Make a local directory and those above it that are missing, durably."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_directory(parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    fsync_directory(parent)


def write_file(path: str, data: bytes, *, durable: bool = True, mode: int = READABLE) -> None:
    """Write a new local file, in place of one that a dead process may have left. Its content is durable then; its name
    is not."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(descriptor)


def replace_file(
    path: str | os.PathLike[str], data: bytes, *, durable: bool = True, mode: int = READABLE
) -> None:
    """Put a whole local file in place, or leave what was there. Without `durable` that holds for the death of the
    process only, not for that of the host."""
    target = os.fspath(path)
    temporary = f"{target}.tmp-{os.getpid()}"
    try:
        write_file(temporary, data, durable=durable, mode=mode)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        fsync_directory(os.path.dirname(os.path.abspath(target)))

"""Names in local directories that outlive a power failure: syncing a file does not sync its name."""

from __future__ import annotations

import os
from contextlib import suppress


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

"""What a failing disk means to the rest of the system.

RocksDB (through rocksdict) raises a bare `Exception` whose text starts with its status code; the operating
system and Arrow raise `OSError`. Here, and nowhere else, these become the project's own errors:

- the disk is full, read-only, failing or unreachable -> `StorageUnavailable` (retryable: the epoch can be run again
  once there is room), with the size of the hole where it can be told;
- the bytes are there but wrong -> the error that the caller names (`LogCorrupt`, `SnapshotCorrupt`);
- anything else is a programming error and passes through unchanged.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from rocksdict import DbClosedError

from clonos.errors import ClonosError, StateError, StorageUnavailable

_FULL = ("no space left", "disk quota exceeded", "space limit")
_IO_PREFIXES = ("io error", "no space", "timed out", "resource busy", "shutdown in progress", "busy")
_CORRUPT_PREFIXES = ("corruption", "invalid argument: corrupt")
# What `std::fs` says through rocksdict: "No such file or directory (os error 2)".
_OS_ERROR_MARK = "(os error "


def raise_mapped(error: Exception, what: str, *, corrupt: type[ClonosError]) -> NoReturn:
    """Raise what `error` means. `what` says what was being done, as in "writing the causal log in /data/x"."""
    if isinstance(error, ClonosError):
        raise error
    if isinstance(error, DbClosedError):
        raise StateError(f"{what}: it is already closed") from error
    if isinstance(error, OSError):
        raise unavailable(error, what) from error
    if type(error) is not Exception:
        raise error
    text = str(error)
    lowered = text.lower()
    if lowered.startswith(_CORRUPT_PREFIXES):
        raise corrupt(f"{what} failed: the stored bytes are damaged: {text}") from error
    if (
        lowered.startswith(_IO_PREFIXES)
        or _OS_ERROR_MARK in lowered
        or any(mark in lowered for mark in _FULL)
    ):
        raise unavailable(error, what) from error
    raise error


def unavailable(error: Exception, what: str) -> StorageUnavailable:
    """The retryable error for a failed disk or checkpoint storage."""
    text = str(error)
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT) or any(mark in text.lower() for mark in _FULL):
        return StorageUnavailable(f"{what} failed: the disk is full: {text}", hint="Free some space there")
    if "lock hold" in text or "lock file" in text.lower():
        return StorageUnavailable(
            f"{what} failed: another process, or this one, still has it open: {text}",
            hint="Only one replica may own an instance's directory",
        )
    return StorageUnavailable(f"{what} failed: {text}")


@contextmanager
def disk(what: str, *, corrupt: type[ClonosError]) -> Iterator[None]:
    """Map every storage failure inside the block. For paths that are not hot."""
    try:
        yield
    except Exception as error:
        raise_mapped(error, what, corrupt=corrupt)

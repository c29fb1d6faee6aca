"""Giving a file's bytes back to the file system while its length stays."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_KEEP_SIZE: Final = 1
_PUNCH_HOLE: Final = 2


def punch(path: Path, begin: int, end: int) -> bool:
    """Where the system can do that (Linux, on most of its file systems). What is read there is zeros then. Of a block
    that lies partly inside only that part is made zeros."""
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is None or end <= begin:
        return False
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            arguments = (
                ctypes.c_int(_KEEP_SIZE | _PUNCH_HOLE),
                ctypes.c_long(begin),
                ctypes.c_long(end - begin),
            )
            return bool(fallocate(ctypes.c_int(descriptor), *arguments) == 0)
        finally:
            os.close(descriptor)
    return False

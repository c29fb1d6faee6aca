"""Follows one partition of the embedded log from a position on, as a source that must go on where it was has to."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from clonos.storage.embedded_log import MAGIC

START = len(MAGIC)
_HEADER = struct.Struct("<IIq")
_CHUNK = 64 << 10


class Tail:
    """`position` is that of the next record; a reader that keeps it can go on there."""

    def __init__(self, log: str, partition: int, position: int = START) -> None:
        self._file = os.open(Path(log, f"{partition}.log"), os.O_RDONLY | os.O_CLOEXEC)
        self.position = position

    def next(self) -> list[bytes]:
        """The payloads of some more complete records, in order; none if there are none yet."""
        chunk, at, found = os.pread(self._file, _CHUNK, self.position), 0, []
        while at + _HEADER.size <= len(chunk):
            length, _, _ = _HEADER.unpack_from(chunk, at)
            end = at + _HEADER.size + length
            if end > len(chunk):
                break
            found.append(chunk[at + _HEADER.size : end])
            at = end
        self.position += at
        return found

    def close(self) -> None:
        os.close(self._file)

"""Holes in RocksDB's write-ahead logs, which a power failure may leave and which RocksDB passes over.

A write-ahead log is a sequence of blocks, a block of records, none of which crosses the end of its block:

    checksum (4) | length (2, little-endian) | kind (1) | payload

Zeros where a record would begin are for RocksDB the rest of a block that was never written, and it reads on in the next
one: in every mode of recovery, and without a word. If something comes behind them, they are a hole, and nothing behind
it may be believed: it came later than what is missing, and may depend on it.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

BLOCK: Final = 32 * 1024
_HEADER: Final = struct.Struct("<IHB")
SUFFIX: Final = ".log"
_READ_BY_ROCKSDB: Final = ("CURRENT", "MANIFEST-")


class Hole(NamedTuple):
    """In which write-ahead log of a store, and where it begins."""

    name: str
    offset: int


def find_hole(path: str) -> Hole | None:
    """The first one in the store's write-ahead logs. Raises OSError."""
    for name in sorted(name for name in os.listdir(path) if name.endswith(SUFFIX)):
        offset = _hole_in((Path(path) / name).read_bytes())
        if offset is not None:
            return Hole(name, offset)
    return None


def _hole_in(raw: bytes) -> int | None:
    at, end = 0, len(raw.rstrip(b"\0"))
    while at < end:
        left = BLOCK - at % BLOCK
        if left < _HEADER.size:  # no record begins so near the end of a block
            at += left
            continue
        if at + _HEADER.size > len(raw):
            return None
        _, length, kind = _HEADER.unpack_from(raw, at)
        if kind == 0 and length == 0:
            return at
        at += _HEADER.size + length
    return None


def link_up_to(path: str, hole: Hole, directory: str) -> None:
    """A view of the store in an empty directory, as if nothing had been written from the hole on. Raises OSError."""
    for entry in os.scandir(path):
        if entry.name.endswith(SUFFIX):
            if entry.name <= hole.name:
                raw = Path(entry.path).read_bytes()
                cut = raw[: hole.offset] if entry.name == hole.name else raw
                (Path(directory) / entry.name).write_bytes(cut)
        elif entry.name.endswith(".sst") or entry.name.startswith(_READ_BY_ROCKSDB):
            os.symlink(os.path.abspath(entry.path), os.path.join(directory, entry.name))

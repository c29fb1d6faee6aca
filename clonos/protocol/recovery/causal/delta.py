"""Deltas: the pieces of causal logs that travel on records.

A delta holds, for any number of origins, a piece of the origin's log at its offset, or, beyond the sharing depth, only
how far the origin's log reached (*elided*): the receiver then cannot hand the piece back, but whoever recovers the
origin can tell that somebody depends on it, and stop instead of guessing.

    u8 0xD1 (format version 1) | entries | u32 CRC-32 of all before, little-endian
    entry: varint node | varint instance | varint start | varint hop << 1 | elided | varint length | bytes unless elided

`hop` is the distance from the origin to the receiver, 1 for its direct successors.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from clonos.errors import LogCorrupt
from clonos.protocol.ids import Origin
from clonos.protocol.varint import append_varint, read_varint

VERSION = 0xD1
_U32 = struct.Struct("<I")


class DeltaEntry(NamedTuple):
    """A piece of one origin's log. `data` is None where it is elided."""

    origin: Origin
    start: int
    length: int
    hop: int
    data: bytes | None

    @property
    def end(self) -> int:
        return self.start + self.length


def encode_entry(origin: Origin, start: int, length: int, hop: int, data: bytes | None) -> bytes:
    out = bytearray()
    append_varint(out, origin.node)
    append_varint(out, origin.instance)
    append_varint(out, start)
    append_varint(out, hop << 1 | (data is None))
    append_varint(out, length)
    if data is not None:
        out += data
    return bytes(out)


def encode_delta(entries: Iterable[bytes]) -> bytes:
    """A delta of entries that `encode_entry` made."""
    body = b"".join((b"\xd1", *entries))
    return body + _U32.pack(zlib.crc32(body))


def decode_delta(raw: bytes) -> list[DeltaEntry]:
    """The entries of a delta. Raises LogCorrupt."""
    if len(raw) < 5 or raw[0] != VERSION:
        raise LogCorrupt("a delta is too short or of another format version")
    if zlib.crc32(raw[:-4]) != _U32.unpack(raw[-4:])[0]:
        raise LogCorrupt("a delta fails its checksum")
    entries: list[DeltaEntry] = []
    at, stop = 1, len(raw) - 4
    while at < stop:
        node, at = read_varint(raw, at)
        instance, at = read_varint(raw, at)
        start, at = read_varint(raw, at)
        flags, at = read_varint(raw, at)
        length, at = read_varint(raw, at)
        data: bytes | None = None
        if not flags & 1:
            data = raw[at : at + length]
            at += length
        if at > stop:
            raise LogCorrupt("an entry of a delta is cut off")
        entries.append(DeltaEntry(Origin(node, instance), start, length, flags >> 1, data))
    return entries


def still_needed(raw: bytes, truncation_points: Mapping[Any, int]) -> bool:
    """Whether a delta says anything beyond the offsets up to which nobody asks any more (invariant I7)."""
    return any(entry.end > truncation_points.get(entry.origin, 0) for entry in decode_delta(raw))

"""Deltas: the pieces of causal logs that travel on records.

A delta holds, for any number of origins, a piece of the origin's log at its offset, or, beyond the sharing depth, only
how far the origin's log reached (*elided*): the receiver then cannot hand the piece back, but the origin, when it
recovers, can tell that a receiver depends on it, and stop instead of guessing. Where the sharing depth is finite, each
piece also says which history of the origin it belongs to (*marked*): the CRC-32 of the log from where the epoch began
to the end of the piece.

    u8 0xD2 (format version 2) | entries | u32 CRC-32 of all before, little-endian
    entry: varint node | varint instance | varint start | varint hop << 2 | marked << 1 | elided | varint length
           | bytes unless elided
           | varint length of the log since the epoch began | u32 CRC-32 of it, little-endian, both if marked

`hop` is the distance from the origin to the receiver, 1 for its direct successors. Version 1 (0xD1) has no marks, and
`hop << 1 | elided`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from clonos.errors import LogCorrupt
from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.recovery.causal.history_mark import HistoryMark
from clonos.protocol.varint import append_varint, read_varint

VERSION = 0xD2
_WITHOUT_MARKS = 0xD1
_U32 = struct.Struct("<I")


class DeltaEntry(NamedTuple):
    """A piece of one origin's log. `data` is None where it is elided; `mark` says of which history it is, and is None
    where nothing is elided."""

    origin: Origin
    start: LogOffset
    length: int
    hop: int
    data: bytes | None
    mark: HistoryMark | None = None

    @property
    def end(self) -> LogOffset:
        return LogOffset(self.start + self.length)

    def part(self, start: LogOffset, end: LogOffset, hop: int, *, elided: bool) -> DeltaEntry:
        """What of it lies between two offsets, at another distance."""
        data = None if elided or self.data is None else self.data[start - self.start : end - self.start]
        return DeltaEntry(self.origin, start, end - start, hop, data, self.mark if end == self.end else None)


def encode_entry(
    origin: Origin,
    start: LogOffset,
    length: int,
    hop: int,
    data: bytes | None,
    mark: HistoryMark | None = None,
) -> bytes:
    out = bytearray()
    append_varint(out, origin.node)
    append_varint(out, origin.instance)
    append_varint(out, start)
    append_varint(out, hop << 2 | (mark is not None) << 1 | (data is None))
    append_varint(out, length)
    if data is not None:
        out += data
    if mark is not None:
        append_varint(out, mark.ends - mark.begins)
        out += _U32.pack(mark.digest)
    return bytes(out)


def encode_delta(entries: Iterable[bytes]) -> bytes:
    """A delta of entries that `encode_entry` made."""
    body = b"".join((bytes((VERSION,)), *entries))
    return body + _U32.pack(zlib.crc32(body))


def decode_delta(raw: bytes) -> list[DeltaEntry]:
    """The entries of a delta. Raises LogCorrupt."""
    if len(raw) < 5 or raw[0] not in (VERSION, _WITHOUT_MARKS):
        raise LogCorrupt("a delta is too short or of another format version")
    if zlib.crc32(raw[:-4]) != _U32.unpack(raw[-4:])[0]:
        raise LogCorrupt("a delta fails its checksum")
    flag_bits = 2 if raw[0] == VERSION else 1
    entries: list[DeltaEntry] = []
    at, stop = 1, len(raw) - 4
    while at < stop:
        node, at = read_varint(raw, at)
        instance, at = read_varint(raw, at)
        offset, at = read_varint(raw, at)
        start = LogOffset(offset)
        flags, at = read_varint(raw, at)
        length, at = read_varint(raw, at)
        data: bytes | None = None
        if not flags & 1:
            data = raw[at : at + length]
            at += length
        mark: HistoryMark | None = None
        if flag_bits == 2 and flags & 2:
            mark, at = _decode_mark(raw, at, stop, LogOffset(start + length))
        if at > stop:
            raise LogCorrupt("an entry of a delta is cut off")
        entries.append(DeltaEntry(Origin.of(node, instance), start, length, flags >> flag_bits, data, mark))
    return entries


def _decode_mark(raw: bytes, at: int, stop: int, end: LogOffset) -> tuple[HistoryMark, int]:
    length, at = read_varint(raw, at)
    if length > end or at + _U32.size > stop:
        raise LogCorrupt("the mark of an entry of a delta is cut off, or from before its log began")
    return HistoryMark(LogOffset(end - length), end, _U32.unpack_from(raw, at)[0]), at + _U32.size


def still_needed(raw: bytes, truncation_points: Mapping[Any, LogOffset]) -> bool:
    """Whether a delta says anything beyond the truncation points (invariant I7)."""
    return any(entry.end > truncation_points.get(entry.origin, 0) for entry in decode_delta(raw))

"""The bytes of the write-ahead log.

A log is a row of segment files, `ahead-0000000001.log` and so on. Only the newest one is written to. All integers are
little-endian.

    segment   "CLWA", u16 version (1), u16 zero, then records
    record    u32 length of the payload, u32 CRC-32 of those four bytes and the payload, payload
    payload   u8 kind, u64 start, u32 n, n * (i64 channel, i64 position), u32 m, m * (u32 length, delta), rows

| kind | name | cursors | start, rows |
| --- | --- | --- | --- |
| 1 | BASE | all of them, as they stand; first record of every segment | the visible file's length |
| 2 | BUNDLE | those that move | where in the visible file the row bytes belong |
| 3 | INTENT | those that a call is about to move | 0, none |
| 4 | DONE | those that have moved | 0, none |
| 5 | KEPT | none: determinants that a compaction left | 0, none |

Only one record is ever under way, so only the last one can be *torn*: shorter than it says, filled with zeros, or
(after a power failure) of the right length with a wrong checksum. It was never acknowledged and is cut. Anything else
that does not fit is *corrupt*, and nothing from there on is believed.
"""

from __future__ import annotations

import enum
import struct
import zlib
from dataclasses import dataclass, field

from clonos.errors import LogCorrupt, SinkError
from clonos.sinks.port import Cursors

MAGIC = b"CLWA"
VERSION = 1
HEADER = MAGIC + struct.pack("<HH", VERSION, 0)
LONGEST_PAYLOAD = 1 << 30
_FRAME = struct.Struct("<II")
_HEAD = struct.Struct("<BQI")
_CURSOR = struct.Struct("<qq")
_COUNT = struct.Struct("<I")


class Kind(enum.IntEnum):
    BASE = 1
    BUNDLE = 2
    INTENT = 3
    DONE = 4
    KEPT = 5


class Tail(enum.Enum):
    """How a segment ends."""

    CLEAN = "clean"
    TORN = "torn"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    kind: Kind
    start: int = 0
    cursors: Cursors = field(default_factory=dict)
    deltas: list[bytes] = field(default_factory=list)
    rows: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a segment holds: the records before its end, how long they are, and how it ends."""

    records: list[Record]
    length: int
    tail: Tail


def encode(record: Record) -> bytes:
    """The record with its frame. Raises SinkError where it is too large."""
    size = _HEAD.size + _CURSOR.size * len(record.cursors) + _COUNT.size * (1 + len(record.deltas))
    size += sum(map(len, record.deltas)) + len(record.rows)
    if size > LONGEST_PAYLOAD:
        raise SinkError(
            f"a bundle of {size} bytes does not fit into one record of the write-ahead log, which holds "
            f"{LONGEST_PAYLOAD}",
            hint="Lower spark.clonos.bundle.rows, or let ctx.call return less: what it returned is in the bundle",
        )
    parts = [_HEAD.pack(record.kind, record.start, len(record.cursors))]
    parts += [_CURSOR.pack(channel, position) for channel, position in sorted(record.cursors.items())]
    parts.append(_COUNT.pack(len(record.deltas)))
    for delta in record.deltas:
        parts += (_COUNT.pack(len(delta)), delta)
    parts.append(record.rows)
    payload = b"".join(parts)
    return _FRAME.pack(len(payload), _checksum(len(payload), payload)) + payload


def decode(payload: bytes) -> Record:
    """Raises LogCorrupt where the structure does not fit."""
    try:
        kind, start, cursors_count = _HEAD.unpack_from(payload)
        at = _HEAD.size
        if cursors_count > (len(payload) - at) // _CURSOR.size:
            raise LogCorrupt("a write-ahead record has more cursors than bytes")
        end = at + cursors_count * _CURSOR.size
        cursors = dict(_CURSOR.iter_unpack(payload[at:end]))
        (deltas_count,) = _COUNT.unpack_from(payload, end)
        at = end + _COUNT.size
        deltas = []
        for _ in range(deltas_count):
            (length,) = _COUNT.unpack_from(payload, at)
            at += _COUNT.size
            if at + length > len(payload):
                raise LogCorrupt("a write-ahead record ends within a delta")
            deltas.append(payload[at : at + length])
            at += length
        return Record(kind=Kind(kind), start=start, cursors=cursors, deltas=deltas, rows=payload[at:])
    except (struct.error, ValueError) as error:
        raise LogCorrupt(f"a write-ahead record does not fit its format: {error}") from None


def scan(data: bytes) -> Scan:
    """Read a segment as far as it can be believed."""
    records: list[Record] = []
    if data[: len(HEADER)] != HEADER:
        return Scan(records=records, length=0, tail=Tail.CORRUPT)
    at = len(HEADER)
    while at < len(data):
        record, size, tail = _next(data, at)
        if record is None:
            return Scan(records=records, length=at, tail=tail)
        records.append(record)
        at += size
    return Scan(records=records, length=at, tail=Tail.CLEAN)


def _next(data: bytes, at: int) -> tuple[Record | None, int, Tail]:
    left = len(data) - at
    if left < _FRAME.size:
        return None, 0, Tail.TORN
    length, checksum = _FRAME.unpack_from(data, at)
    if length == 0:
        return None, 0, Tail.CORRUPT if data[at:].strip(b"\0") else Tail.TORN
    if length > LONGEST_PAYLOAD:
        return None, 0, Tail.CORRUPT
    size = _FRAME.size + length
    if size > left:
        return None, 0, Tail.TORN
    payload = data[at + _FRAME.size : at + size]
    if _checksum(length, payload) != checksum:
        return None, 0, Tail.TORN if size == left else Tail.CORRUPT
    try:
        return decode(payload), size, Tail.CLEAN
    except LogCorrupt:
        return None, 0, Tail.CORRUPT


def _checksum(length: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(_COUNT.pack(length)))

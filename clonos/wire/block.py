"""Blocks: what an instance, or a partition of a source, sends to one destination at a time.

Spark's exchanges carry blocks and know of each only its destination. The sender encodes the rows once, the receiver
decodes them once; conduits count, keep, spill and forward blocks and read nothing but the header. The layout is that
of docs/wire.md:

    u8 0xB3 (format version 3) | u8 kind | u8 encoding of the rows | u8 width of a number | u32 CRC-32 of what follows
    u64 epoch | i64 sender | i64 number of the first row | i64 number of the last row
    u32 rows | u32 bytes that ride along | u32 bytes of the rows | u32 0 | i64 watermark
    i64 when the oldest row entered the query
    numbers of the rows, what rides along, the rows; each is filled up with zeros to a multiple of 8 bytes

Integers are little-endian. The numbers of rows that are consecutive are not written (width 0). Else they stand as
distances from the first one (width 4), or, where that is not enough, as they are (width 8).

A block of the kind WATERMARK has no rows: it is a header alone, whose watermark is for a destination that gets no rows
to carry it. Nor has one of the kind MARKER; what rides along there is a u64, the number of the round whose marker it
is.
"""

from __future__ import annotations

import enum
import struct
import zlib
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from clonos.errors import ProtocolError
from clonos.protocol.frontier import Column
from clonos.protocol.ids import Epoch
from clonos.protocol.ingestion import UNKNOWN
from clonos.protocol.recovery.marker import NO_ROUND, Round
from clonos.wire.framing import Buffer

VERSION: Final = 0xB3
_HEAD: Final = struct.Struct("<BBBBI")
_BODY: Final = struct.Struct("<QqqqIIIIqq")
HEADER_BYTES: Final = _HEAD.size + _BODY.size
_ROUND: Final = struct.Struct("<Q")
_ALIGNED: Final = 8
_MAX_DISTANCE: Final = (1 << 32) - 1
_NO_WATERMARK: Final = -(1 << 63)
_MAX_WATERMARK: Final = (1 << 63) - 1
_NO_ROW: Final = -1  # the number of the first and of the last row, where there is none
_FEW: Final = 64  # below, lists are faster than arrays
_ZEROS: Final = bytes(_ALIGNED)


class Kind(enum.IntEnum):
    """What a block holds."""

    ROWS = 1
    WATERMARK = 2
    MARKER = 3


class Encoding(enum.IntEnum):
    """How rows are written."""

    NONE = 0
    """There are no rows."""
    ARROW = 1
    """As one encapsulated Arrow record batch message, without its schema."""
    PACKED = 2
    """As a MessagePack array of rows (`clonos.operators.packed_rows`)."""


class _Width(enum.IntEnum):
    """Bytes of a row's number."""

    CONSECUTIVE = 0
    DISTANCE = 4
    ABSOLUTE = 8


_FORMS: Final = frozenset(
    {(Kind.ROWS, encoding, width) for encoding in (Encoding.ARROW, Encoding.PACKED) for width in _Width}
    | {(kind, Encoding.NONE, _Width.CONSECUTIVE) for kind in (Kind.WATERMARK, Kind.MARKER)}
)
"""What may stand together in a header: kind, encoding, width."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of one sender for one destination, or its watermark alone, or a marker. `numbers` are output numbers, or
    positions in a source; ascending."""

    epoch: Epoch
    sender: int
    """The channel: a sending instance, or a channel of a source."""
    numbers: Column
    ride_along: Buffer
    """The delta that the destination lacks; empty where it lacks none."""
    rows: Buffer
    """As `encoding` says; empty where there are no rows."""
    watermark: int | None = None
    """In microseconds since 1970: the sender gives the destination no further row with an earlier event time, but for
    late ones."""
    encoding: Encoding = Encoding.ARROW
    ingested: int = UNKNOWN
    """When the oldest row that these are made of entered the query (`clonos.protocol.ingestion`)."""
    round: Round = NO_ROUND
    """Of a marker."""

    @property
    def count(self) -> int:
        return len(self.numbers)

    @property
    def kind(self) -> Kind:
        if len(self.numbers):
            return Kind.ROWS
        return Kind.MARKER if self.round else Kind.WATERMARK


def watermark_block(epoch: Epoch, sender: int, watermark: int) -> Block:
    """A block without rows."""
    return Block(epoch, sender, [], b"", b"", watermark, Encoding.NONE)


def marker_block(epoch: Epoch, sender: int, round: Round) -> Block:
    """What the sender has sent before it belongs to the round."""
    return Block(epoch, sender, [], b"", b"", None, Encoding.NONE, round=round)


def pack_block(block: Block) -> bytes:
    """The block as one piece of bytes, a multiple of 8 long. Raises ProtocolError where no receiver would take it."""
    numbers = block.numbers
    along = _ROUND.pack(block.round) if block.round else block.ride_along
    ride_along, rows = memoryview(along).cast("B"), memoryview(block.rows).cast("B")
    count, watermark = len(numbers), _packed_watermark(block.watermark)
    if count:
        kind, encoding = Kind.ROWS, block.encoding
        first, last = int(numbers[0]), int(numbers[-1])
        width = _width(numbers, first, last)
    else:
        kind, encoding, width = block.kind, Encoding.NONE, _Width.CONSECUTIVE
        first = last = _NO_ROW
    _check_sizes(kind, count, len(ride_along), len(rows), watermark)
    written = b"" if width is _Width.CONSECUTIVE else _written(numbers, first, width)
    sizes = count, len(ride_along), len(rows)
    body = _BODY.pack(block.epoch, block.sender, first, last, *sizes, 0, watermark, block.ingested)
    content = b"".join(
        (
            body,
            written,
            _ZEROS[: -len(written) % _ALIGNED],
            ride_along,
            _ZEROS[: -len(ride_along) % _ALIGNED],
            rows,
            _ZEROS[: -len(rows) % _ALIGNED],
        )
    )
    return _HEAD.pack(VERSION, kind, encoding, width, zlib.crc32(content)) + content


def parse_block(raw: memoryview) -> Block:
    """Raises ProtocolError where the bytes are not a block, or not the block that was sent."""
    if raw.nbytes < HEADER_BYTES:
        raise ProtocolError(f"a block of {raw.nbytes} bytes, fewer than its header has")
    version, kind, encoding, width, crc = _HEAD.unpack_from(raw)
    if version != VERSION:
        raise ProtocolError(f"a block of format {version:#04x}; this release reads {VERSION:#04x}")
    found = zlib.crc32(raw[_HEAD.size :])
    if found != crc:
        raise ProtocolError(f"a block has checksum {found:#010x} where it says {crc:#010x}")
    if (kind, encoding, width) not in _FORMS:
        raise ProtocolError(f"a block of kind {kind}, encoding {encoding} and number width {width}")
    epoch, sender, first, last, count, ride_along, rows, _, watermark, ingested = _BODY.unpack_from(
        raw, _HEAD.size
    )
    _check_sizes(kind, count, ride_along, rows, watermark)
    begin = HEADER_BYTES + _up(width * count)
    end = begin + _up(ride_along)
    if end + _up(rows) != raw.nbytes:
        raise ProtocolError(
            f"a block of {count} rows in {rows} bytes, with {ride_along} bytes that ride along, has {raw.nbytes} bytes"
        )
    numbers = _numbers(raw[HEADER_BYTES:begin], _Width(width), first, last, count)
    said = None if watermark == _NO_WATERMARK else watermark
    if kind == Kind.MARKER:
        (number,) = _ROUND.unpack(raw[begin:end])
        if not number:
            raise ProtocolError("a block of a marker has no round")
        return marker_block(Epoch(epoch), sender, Round(number))
    return Block(
        Epoch(epoch),
        sender,
        numbers,
        raw[begin : begin + ride_along],
        raw[end : end + rows],
        said,
        Encoding(encoding),
        ingested,
    )


def has_rows(raw: memoryview) -> bool:
    """Of a block as it was sent."""
    return raw[1] == Kind.ROWS


def without_ride_along(raw: memoryview) -> bytes:
    """A copy of a block with rows, as it was sent, but for what rode along with them."""
    _, _, _, _, _, ride_along, *_ = _BODY.unpack_from(raw, _HEAD.size)
    if not ride_along:
        return bytes(raw)
    return pack_block(replace(parse_block(raw), ride_along=b""))


def _check_sizes(kind: int, count: int, ride_along: int, rows: int, watermark: int) -> None:
    if kind == Kind.ROWS and (count == 0 or rows == 0):
        raise ProtocolError(f"a block of {count} rows in {rows} bytes")
    if kind == Kind.WATERMARK:
        if count or ride_along or rows:
            raise ProtocolError(
                f"a block without rows has {count} of them in {rows} bytes, and {ride_along} bytes that ride along"
            )
        if watermark == _NO_WATERMARK:
            raise ProtocolError("a block has neither rows nor a watermark")
    if kind == Kind.MARKER and (count or rows or ride_along != _ROUND.size or watermark != _NO_WATERMARK):
        raise ProtocolError(
            f"a block of a marker has {count} rows in {rows} bytes, {ride_along} bytes that ride along, or a watermark"
        )


def _packed_watermark(watermark: int | None) -> int:
    if watermark is None:
        return _NO_WATERMARK
    if not _NO_WATERMARK < watermark <= _MAX_WATERMARK:
        raise ProtocolError(f"a watermark of {watermark} microseconds does not fit into a block")
    return watermark


def _width(numbers: Column, first: int, last: int) -> _Width:
    count = len(numbers)
    array = numbers if isinstance(numbers, np.ndarray) else None
    ascending = bool((array[1:] > array[:-1]).all()) if array is not None else _ascends(numbers)
    if ascending and last - first == count - 1:
        return _Width.CONSECUTIVE
    return _Width.DISTANCE if ascending and last - first <= _MAX_DISTANCE else _Width.ABSOLUTE


def _ascends(numbers: Column) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def _written(numbers: Column, first: int, width: _Width) -> bytes:
    array = np.asarray(numbers, np.int64)
    return (
        (array - first).astype("<u4").tobytes() if width is _Width.DISTANCE else array.astype("<i8").tobytes()
    )


def _numbers(raw: memoryview, width: _Width, first: int, last: int, count: int) -> Column:
    if count == 0:
        if first != _NO_ROW or last != _NO_ROW:
            raise ProtocolError(f"a block without rows says they go from {first} to {last}")
        return []
    if width is _Width.CONSECUTIVE:
        if last - first != count - 1:
            raise ProtocolError(f"a block of {count} consecutive rows from {first} to {last}")
        return list(range(first, last + 1)) if count < _FEW else first + np.arange(count, dtype=np.int64)
    if width is _Width.DISTANCE:
        numbers = np.frombuffer(raw, "<u4", count).astype(np.int64) + first
    else:
        numbers = np.frombuffer(raw, "<i8", count)
    if numbers[0] != first or numbers[-1] != last:
        raise ProtocolError(
            f"a block from row {first} to {last} has numbers from {numbers[0]} to {numbers[-1]}"
        )
    few: Column = numbers.tolist() if count < _FEW else numbers
    return few


def _up(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED

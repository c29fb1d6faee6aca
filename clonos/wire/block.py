"""Blocks: what an instance, or a partition of a source, sends to one destination at a time.

Spark's exchanges carry blocks and know of each only its destination. The sender encodes the rows once, the receiver
decodes them once; conduits count, keep, spill and forward blocks and read nothing but the header. The layout is that
of docs/wire.md:

    u8 0xB1 (format version 1) | u8 kind | u8 encoding of the rows | u8 width of a number | u32 CRC-32 of what follows
    u64 epoch | i64 sender | i64 number of the first row | i64 number of the last row
    u32 rows | u32 bytes that ride along | u32 bytes of the rows | u32 0
    numbers of the rows, what rides along, the rows; each is filled up with zeros to a multiple of 8 bytes

Integers are little-endian. The numbers of rows that are consecutive are not written (width 0). Else they stand as
distances from the first one (width 4), or, where that is not enough, as they are (width 8).
"""

from __future__ import annotations

import enum
import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from clonos.errors import ProtocolError
from clonos.protocol.frontier import Column
from clonos.protocol.ids import Epoch
from clonos.wire.framing import Buffer

VERSION: Final = 0xB1
_HEAD: Final = struct.Struct("<BBBBI")
_BODY: Final = struct.Struct("<QqqqIIII")
HEADER_BYTES: Final = _HEAD.size + _BODY.size
_ALIGNED: Final = 8
_MAX_DISTANCE: Final = (1 << 32) - 1
_FEW: Final = 64  # below, lists are faster than arrays
_ZEROS: Final = bytes(_ALIGNED)


class Kind(enum.IntEnum):
    """What a block holds."""

    ROWS = 1


class Encoding(enum.IntEnum):
    """How rows are written: as one encapsulated Arrow record batch message, without its schema."""

    ARROW = 1


class _Width(enum.IntEnum):
    """Bytes of a row's number."""

    CONSECUTIVE = 0
    DISTANCE = 4
    ABSOLUTE = 8


_WIDTHS: Final = frozenset(_Width)


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of one sender for one destination. `numbers` are output numbers, or positions in a source; ascending."""

    epoch: Epoch
    sender: int
    """The channel: a sending instance, or a channel of a source."""
    numbers: Column
    ride_along: Buffer
    """The delta that the destination lacks; empty where it lacks none."""
    rows: Buffer
    """An Arrow record batch message."""

    @property
    def count(self) -> int:
        return len(self.numbers)


def pack_block(block: Block) -> bytes:
    """The block as one piece of bytes, a multiple of 8 long."""
    numbers = block.numbers
    count = len(numbers)
    first, last = int(numbers[0]), int(numbers[-1])
    width = _width(numbers, first, last)
    written = b"" if width is _Width.CONSECUTIVE else _written(numbers, first, width)
    ride_along, rows = memoryview(block.ride_along), memoryview(block.rows)
    body = _BODY.pack(block.epoch, block.sender, first, last, count, ride_along.nbytes, rows.nbytes, 0)
    parts: list[Buffer] = [body, *_filled(written), *_filled(ride_along), *_filled(rows)]
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return b"".join((_HEAD.pack(VERSION, Kind.ROWS, Encoding.ARROW, width, crc), *parts))


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
    if kind != Kind.ROWS or encoding != Encoding.ARROW or width not in _WIDTHS:
        raise ProtocolError(f"a block of kind {kind}, encoding {encoding} and number width {width}")
    epoch, sender, first, last, count, ride_along, rows, _ = _BODY.unpack_from(raw, _HEAD.size)
    begin = HEADER_BYTES + _up(width * count)
    end = begin + _up(ride_along)
    if count == 0 or rows == 0 or end + _up(rows) != raw.nbytes:
        raise ProtocolError(
            f"a block of {count} rows in {rows} bytes, with {ride_along} bytes that ride along, has {raw.nbytes} bytes"
        )
    numbers = _numbers(raw[HEADER_BYTES:begin], _Width(width), first, last, count)
    return Block(Epoch(epoch), sender, numbers, raw[begin : begin + ride_along], raw[end : end + rows])


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


def _filled(part: Buffer) -> tuple[Buffer, ...]:
    """What it takes up in the block."""
    size = memoryview(part).nbytes
    return (part, _ZEROS[: _up(size) - size]) if size else ()


def _up(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED

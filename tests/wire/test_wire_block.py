"""Blocks: exact bytes, every form of numbers, damage anywhere, any garbage."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from clonos.errors import ProtocolError
from clonos.protocol.ids import Epoch
from clonos.protocol.recovery.marker import Round
from clonos.wire.block import (
    HEADER_BYTES,
    Block,
    Kind,
    marker_block,
    pack_block,
    parse_block,
    watermark_block,
)

BLOCK = Block(
    Epoch(3), 0x101, [7, 8], b"delta", b"rows", 1_700_000_000_000_000, ingested=1_700_000_001_000_000
)
MARK = watermark_block(Epoch(3), 0x101, 1_700_000_000_000_000)
ROUND = marker_block(Epoch(3), 0x101, Round(7))
PACKED = {block.kind: pack_block(block) for block in (BLOCK, MARK, ROUND)}
LOWEST, HIGHEST = -(2**63), 2**63 - 1
ascending = st.lists(st.integers(LOWEST, HIGHEST), min_size=1, max_size=200, unique=True).map(sorted)
watermarks = st.one_of(st.none(), st.integers(LOWEST + 1, HIGHEST))
near = st.lists(st.integers(0, 300), min_size=1, max_size=200, unique=True).map(sorted)


def parsed(raw: bytes) -> Block:
    return parse_block(memoryview(raw))


def numbers(block: Block) -> list[int]:
    return np.asarray(block.numbers).tolist()


def sealed(raw: bytes) -> bytes:
    """With the checksum of what it holds now."""
    return raw[:4] + struct.pack("<I", zlib.crc32(raw[8:])) + raw[8:]


def test_golden_bytes() -> None:
    """A difference here means a new format version."""
    assert pack_block(BLOCK).hex() == (
        "b3010100" + "5a1e4acd"
        "0300000000000000" + "0101000000000000" + "0700000000000000" + "0800000000000000"
        "02000000" + "05000000" + "04000000" + "00000000" + "00401e18240a0600" + "40822d18240a0600"
        "64656c7461000000" + "726f777300000000"
    )  # fmt: skip
    assert pack_block(MARK).hex() == (
        "b3020000" + "8046938f"
        "0300000000000000" + "0101000000000000" + "ffffffffffffffff" + "ffffffffffffffff"
        "00000000" + "00000000" + "00000000" + "00000000" + "00401e18240a0600" + "0000000000000000"
    )  # fmt: skip
    assert pack_block(ROUND).hex() == (
        "b3030000" + "49028e57"
        "0300000000000000" + "0101000000000000" + "ffffffffffffffff" + "ffffffffffffffff"
        "00000000" + "08000000" + "00000000" + "00000000" + "0000000000000080" + "0000000000000000"
        "0700000000000000"
    )  # fmt: skip
    assert pack_block(replace(BLOCK, watermark=None))[56:64].hex() == "0000000000000080"
    sparse = Block(Epoch(0), 1, [7, 9], b"", b"rows")
    assert pack_block(sparse)[HEADER_BYTES:].hex() == "00000000" + "02000000" + "726f777300000000"
    far = Block(Epoch(0), 1, [7, 7 + 2**32], b"", b"rows")
    assert pack_block(far)[HEADER_BYTES:-8].hex() == "0700000000000000" + "0700000001000000"


@pytest.mark.parametrize(
    ("given", "width"),
    [
        ([5], 0),
        ([5, 6, 7], 0),
        ([5, 7, 9], 4),
        ([0, 2**32 - 1], 4),
        ([0, 2**32], 8),
        ([LOWEST, HIGHEST], 8),
        ([HIGHEST - 1, HIGHEST], 0),
        ([3, 2, 5], 8),  # a source that is not in order is refused by the receiver, which says which one
        ([3, 3, 3], 8),
    ],
)
@pytest.mark.parametrize("times", [1, 64])
def test_numbers_take_up_as_little_as_they_can(given: list[int], width: int, times: int) -> None:
    long = given if times == 1 or len(given) == 1 else given[:1] * times + given
    block = Block(Epoch(0), 1, given if times == 1 else long, b"", b"rows")
    raw = pack_block(block)
    assert numbers(parsed(raw)) == list(block.numbers)
    if times == 1:
        assert raw[3] == width


@given(
    st.one_of(ascending, near),
    st.binary(max_size=30),
    st.binary(min_size=1, max_size=30),
    st.booleans(),
    watermarks,
    st.integers(0, HIGHEST),
)
def test_what_is_packed_is_parsed(
    given: list[int], delta: bytes, rows: bytes, as_array: bool, watermark: int | None, ingested: int
) -> None:
    column: Any = np.array(given, np.int64) if as_array else given
    raw = pack_block(Block(Epoch(9), 65, column, delta, rows, watermark, ingested=ingested))
    found = parsed(raw)
    assert len(raw) % 8 == 0
    assert (found.epoch, found.sender, numbers(found), found.count) == (9, 65, given, len(given))
    assert (bytes(found.ride_along), bytes(found.rows)) == (delta, rows)
    assert (found.watermark, found.kind, found.ingested) == (watermark, Kind.ROWS, ingested)


@given(st.integers(0, 2**64 - 1), st.integers(LOWEST, HIGHEST), st.integers(LOWEST + 1, HIGHEST))
def test_a_watermark_travels_alone(epoch: int, sender: int, watermark: int) -> None:
    raw = pack_block(watermark_block(Epoch(epoch), sender, watermark))
    found = parsed(raw)
    assert len(raw) == HEADER_BYTES == 72
    assert (found.epoch, found.sender, found.watermark, found.kind) == (
        epoch, sender, watermark, Kind.WATERMARK,
    )  # fmt: skip
    assert (found.count, bytes(found.ride_along), bytes(found.rows)) == (0, b"", b"")


@given(st.integers(0, 2**64 - 1), st.integers(LOWEST, HIGHEST), st.integers(1, 2**64 - 1))
def test_a_marker_travels_alone(epoch: int, sender: int, round: int) -> None:
    found = parsed(pack_block(marker_block(Epoch(epoch), sender, Round(round))))
    assert (found.epoch, found.sender, found.round, found.kind) == (epoch, sender, round, Kind.MARKER)
    assert (found.count, bytes(found.ride_along), bytes(found.rows), found.watermark) == (0, b"", b"", None)


@pytest.mark.parametrize("at", [40, 56, 72])  # what rides along, watermark, round
def test_a_marker_that_is_something_else_too_is_refused(at: int) -> None:
    raw = bytearray(PACKED[Kind.MARKER])
    raw[at : at + 8] = bytes(8)
    with pytest.raises(ProtocolError, match="block"):
        parsed(sealed(bytes(raw)))


@pytest.mark.parametrize(
    "wrong",
    [
        replace(ROUND, watermark=7),
        replace(ROUND, rows=b"rows"),
        replace(MARK, watermark=None),
        replace(MARK, watermark=LOWEST),  # on the wire: none
        replace(MARK, watermark=HIGHEST + 1),
        replace(MARK, rows=b"rows"),
        replace(MARK, ride_along=b"delta"),
        replace(BLOCK, watermark=LOWEST),
        replace(BLOCK, rows=b""),
    ],
)
def test_what_no_receiver_takes_is_not_packed(wrong: Block) -> None:
    with pytest.raises(ProtocolError, match="block"):
        pack_block(wrong)


@given(st.sampled_from(Kind), st.integers(0, len(PACKED[Kind.WATERMARK]) - 1), st.integers(1, 255))
def test_no_changed_byte_is_taken_for_what_was_sent(kind: Kind, at: int, by: int) -> None:
    raw = bytearray(PACKED[kind])
    raw[at] ^= by
    with pytest.raises(ProtocolError, match="block"):
        parsed(bytes(raw))


@given(st.integers(HEADER_BYTES, len(PACKED[Kind.ROWS]) - 1), st.integers(1, 255))
def test_no_changed_byte_of_the_rows_is_taken_for_what_was_sent(at: int, by: int) -> None:
    raw = bytearray(PACKED[Kind.ROWS])
    raw[at] ^= by
    with pytest.raises(ProtocolError, match="block"):
        parsed(bytes(raw))


@given(st.binary(max_size=120))
def test_garbage_is_refused(raw: bytes) -> None:
    for made in (
        raw,
        b"\xb3\x01\x01\x00" + raw,
        b"\xb3\x02\x00\x00" + raw,
        sealed(b"\xb3\x01\x01\x04" + raw.ljust(HEADER_BYTES, b"\0")),
        sealed(b"\xb3\x02\x00\x00" + raw.ljust(HEADER_BYTES, b"\0")),
    ):
        with pytest.raises(ProtocolError):
            parsed(made)


def changed(at: int, *fields: int, layout: str = "<I", kind: Kind = Kind.ROWS) -> bytes:
    raw = bytearray(PACKED[kind])
    struct.pack_into(layout, raw, at, *fields)
    return sealed(bytes(raw))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (pack_block(BLOCK)[:40], "fewer than its header"),
        (b"\xb2" + pack_block(BLOCK)[1:], "format 0xb2; this release reads 0xb3"),
        (changed(1, 3, layout="<B"), "of kind 3"),
        (changed(1, 2, layout="<B"), "of kind 2, encoding 1"),
        (changed(1, 1, layout="<B", kind=Kind.WATERMARK), "of kind 1, encoding 0"),
        (changed(3, 4, layout="<B", kind=Kind.WATERMARK), "number width 4"),
        (changed(24, 0, layout="<q", kind=Kind.WATERMARK), "without rows says they go from 0 to -1"),
        (changed(32, 7, layout="<q", kind=Kind.WATERMARK), "without rows says they go from -1 to 7"),
        (changed(40, 1, kind=Kind.WATERMARK), "without rows has 1 of them"),
        (changed(44, 8, kind=Kind.WATERMARK), "8 bytes that ride along"),
        (changed(48, 8, kind=Kind.WATERMARK), "in 8 bytes"),
        (changed(56, LOWEST, layout="<q", kind=Kind.WATERMARK), "neither rows nor a watermark"),
        (sealed(PACKED[Kind.WATERMARK] + bytes(8)), "has 80 bytes"),
        (changed(2, 7, layout="<B"), "encoding 7"),
        (changed(3, 3, layout="<B"), "number width 3"),
        (changed(32, 9, layout="<q"), "2 consecutive rows from 7 to 9"),
        (changed(40, 0), "0 rows"),
        (changed(40, 1), "1 consecutive rows from 7 to 8"),
        (changed(44, 500), "500 bytes that ride along"),
        (changed(48, 0), "in 0 bytes"),
        (sealed(pack_block(BLOCK) + bytes(8)), "has 96 bytes"),
    ],
)
def test_what_is_wrong_is_said(raw: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        parsed(raw)

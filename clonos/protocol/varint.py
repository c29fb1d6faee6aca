"""Unsigned LEB128 integers, and zigzag for signed ones.

Shared by the determinant codec and the delta codec. Decoding is bounded (ten bytes) and raises `LogCorrupt` on
anything that is not a varint, because every reader of it reads bytes that crossed a boundary.
"""

from __future__ import annotations

from clonos.errors import LogCorrupt

_MAX_BYTES = 10


def append_varint(out: bytearray, value: int) -> None:
    """Append `value` (>= 0, below 2**70) to `out`."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The value at `at`, and the index after it."""
    value = shift = 0
    for _ in range(_MAX_BYTES):
        if at >= len(data):
            raise LogCorrupt("a variable-length integer is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise LogCorrupt("a variable-length integer is longer than ten bytes")


def zigzag(value: int) -> int:
    """Map a signed integer to an unsigned one, small magnitudes to small values."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def unzigzag(value: int) -> int:
    return value >> 1 if value & 1 == 0 else -((value + 1) >> 1)

"""The digest of rows as they are sent.

A function of the values that the receiver reads, and of nothing else: not of the Python types that the function gave
them in (`True` or 1 in a column of integers), nor of how many rows there are, nor of what lies in the memory of an
Arrow array beyond its values. So it is CRC-32 over the arrays that are sent. They are freshly made from Python values,
whose builders write zeros where a value is missing and leave no validity bitmap where none is; what a bitmap holds
beyond its last value is zero as well.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import pyarrow as pa

_JOIN_BELOW = 4096


def digest_of(arrays: Iterable[pa.Array]) -> int:
    """CRC-32 of rows given as freshly made arrays, column by column."""
    buffers = [buffer for array in arrays for buffer in array.buffers() if buffer is not None]
    if sum(buffer.size for buffer in buffers) < _JOIN_BELOW:  # one call costs as much as some hundred bytes
        return zlib.crc32(b"".join(buffers))
    digest = 0
    for buffer in buffers:
        digest = zlib.crc32(buffer, digest)
    return digest

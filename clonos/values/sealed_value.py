"""A value on disk is *sealed*: one version byte, a CRC-32 over its context (the key that it is stored under) and the
payload, then the payload. A value that was altered, cut, or moved to another key does not open.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from clonos.errors import ClonosError

VERSION: Final = 1
_SEAL: Final = struct.Struct("<BI")


def seal(payload: bytes, context: bytes) -> bytes:
    """`payload` with version and checksum; `context` (its key) is covered but not stored."""
    return _SEAL.pack(VERSION, zlib.crc32(payload, zlib.crc32(context))) + payload


def unseal(data: bytes, context: bytes, *, what: str, corrupt: type[ClonosError]) -> bytes:
    """What was sealed under `context`, or the error `corrupt` saying what is wrong with `what`."""
    if len(data) < _SEAL.size:
        raise corrupt(f"{what} is cut off: {len(data)} bytes, its header alone has {_SEAL.size}")
    version, checksum = _SEAL.unpack_from(data)
    if version != VERSION:
        raise corrupt(f"{what} has format version {version}; this library reads version {VERSION}")
    payload = data[_SEAL.size :]
    found = zlib.crc32(payload, zlib.crc32(context))
    if found != checksum:
        raise corrupt(f"{what} is damaged: checksum {found:08x}, recorded {checksum:08x}")
    return payload

"""Small JSON files of the checkpoint, with a version and a checksum over their content."""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from clonos.errors import CheckpointMismatch

VERSION: Final = 1
_RESTORE: Final = (
    "Restore it from a copy of the checkpoint, or begin anew with a new checkpointLocation and a new sink"
)


def sealed(body: dict[str, Any]) -> bytes:
    """The file's content: `body` in an envelope with the format's version and a checksum."""
    said = {"version": VERSION, "crc32": _checksum(body), "body": body}
    return json.dumps(said, indent=1).encode()


def unsealed(raw: bytes, where: str, hint: str = _RESTORE) -> dict[str, Any]:
    """Raises CheckpointMismatch, with what to do about it."""
    if not raw.strip(b"\0"):
        raise CheckpointMismatch(f"{where} is {'full of zeros' if raw else 'empty'}", hint=hint)
    try:
        said = json.loads(raw)
        body: dict[str, Any] = said["body"]
        version, checksum = said["version"], said["crc32"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointMismatch(
            f"{where} is damaged: it is cut off, or not what was written", hint=hint
        ) from error
    if version != VERSION:
        raise CheckpointMismatch(f"{where} has format version {version}; this library reads {VERSION}")
    if _checksum(body) != checksum:
        raise CheckpointMismatch(f"{where} is damaged: it fails its checksum", hint=hint)
    return body


def _checksum(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())

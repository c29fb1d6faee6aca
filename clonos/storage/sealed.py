"""Small JSON files of the checkpoint, with a version and a checksum over their content."""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from clonos.errors import CheckpointMismatch
from clonos.json_text import parsed_json

VERSION: Final = 1
_RESTORE: Final = (
    "Restore it from a copy of the checkpoint, or begin anew with a new checkpointLocation and a new sink"
)


def sealed(body: dict[str, Any], version: int = VERSION) -> bytes:
    """The file's content: `body` in an envelope with the format's version and a checksum."""
    said = {"version": version, "crc32": _checksum(body), "body": body}
    return json.dumps(said, indent=1).encode()


def unsealed(raw: bytes, where: str, hint: str = _RESTORE) -> dict[str, Any]:
    """Raises CheckpointMismatch, with what to do about it."""
    return unsealed_of(raw, where, VERSION, hint)[1]


def unsealed_of(raw: bytes, where: str, newest: int, hint: str = _RESTORE) -> tuple[int, dict[str, Any]]:
    """The version of a format that has several, and what it says. Raises CheckpointMismatch."""
    if not raw.strip(b"\0"):
        raise CheckpointMismatch(f"{where} is {'full of zeros' if raw else 'empty'}", hint=hint)
    try:
        said = parsed_json(raw)
        body: dict[str, Any] = said["body"]
        version, checksum = said["version"], said["crc32"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointMismatch(
            f"{where} is damaged: it is cut off, or not what was written", hint=hint
        ) from error
    if version not in range(1, newest + 1):
        upto = f"{newest}" if newest == 1 else f"up to {newest}"
        raise CheckpointMismatch(f"{where} has format version {version}; this library reads {upto}")
    if _checksum(body) != checksum:
        raise CheckpointMismatch(f"{where} is damaged: it fails its checksum", hint=hint)
    return version, body


def _checksum(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())

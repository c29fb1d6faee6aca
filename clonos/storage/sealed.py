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
    text = json.dumps(body, sort_keys=True)
    said = {"version": VERSION, "crc32": zlib.crc32(text.encode()), "body": body}
    return json.dumps(said, indent=1).encode()


def unsealed(raw: bytes, where: str) -> dict[str, Any]:
    """Raises CheckpointMismatch."""
    try:
        said = json.loads(raw)
        body: dict[str, Any] = said["body"]
        if said["version"] != VERSION:
            raise CheckpointMismatch(
                f"{where} has format version {said['version']}; this library reads {VERSION}"
            )
        if zlib.crc32(json.dumps(body, sort_keys=True).encode()) != said["crc32"]:
            raise CheckpointMismatch(f"{where} fails its checksum", hint=_RESTORE)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointMismatch(f"{where} cannot be read: {error}", hint=_RESTORE) from error
    return body

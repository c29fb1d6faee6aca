"""Why the driver cannot record a commit, in its checkpoint (`clonos.protocol.line.unrecorded_commit`).

    <checkpoint>/clonos/unrecorded    JSON: format version, checksum, epoch, generation, error, message

It says something of the start of the query that wrote it alone, so no later start need remove it.
"""

from __future__ import annotations

from typing import Final

from clonos.errors import CheckpointMismatch
from clonos.protocol.line.unrecorded_commit import UnrecordedCommit
from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed, unsealed

_NAME: Final = "unrecorded"


def write_unrecorded(folder: Folder, unrecorded: UnrecordedCommit) -> None:
    """Raises StorageUnavailable."""
    body = {
        "epoch": unrecorded.epoch,
        "generation": unrecorded.generation,
        "error": unrecorded.error,
        "message": unrecorded.message,
    }
    folder.write(_NAME, sealed(body))


def last_unrecorded(checkpoint: str) -> UnrecordedCommit | None:
    """The last that was written. One that is damaged is as good as none: it only spares waiting."""
    filesystem, root = resolve(checkpoint)
    folder = Folder(filesystem, f"{root}/clonos", tag="looking")
    try:
        return UnrecordedCommit(**unsealed(folder.read(_NAME), folder.path(_NAME)))
    except (FileNotFoundError, CheckpointMismatch, TypeError):
        return None

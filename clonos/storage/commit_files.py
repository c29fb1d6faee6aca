"""The commit records of a checkpoint (`clonos.protocol.line.commit_record`).

<checkpoint>/clonos/epochs/<epoch>-<generation>    one per epoch and start, written once; the last few are kept
"""

from __future__ import annotations

import re
from typing import Final

from clonos.protocol.line.commit_record import CommitRecord
from clonos.storage.folder import Folder, resolve

_FOLDER: Final = "epochs"
_NAME: Final = re.compile(r"(\d{20})-(\d{20})")
KEPT: Final = 4


def write_commit(folder: Folder, record: CommitRecord) -> None:
    """Durably. Of earlier epochs, and of earlier starts, the last few stay."""
    own = f"{record.epoch:020d}-{record.generation:020d}"
    folder.write(f"{_FOLDER}/{own}", record.to_bytes())
    for name in _names(folder)[:-KEPT]:
        if name < own:
            folder.delete(f"{_FOLDER}/{name}")


def read_commit(folder: Folder) -> CommitRecord | None:
    """The newest. Raises LogCorrupt."""
    for name in reversed(_names(folder)):
        path = f"{_FOLDER}/{name}"
        try:
            return CommitRecord.from_bytes(folder.read(path), folder.path(path))
        except FileNotFoundError:  # tidied up since it was listed
            continue
    return None


def newest_commit(checkpoint: str) -> CommitRecord | None:
    """The newest commit record of a checkpoint, for a process that only reads. Raises LogCorrupt."""
    filesystem, root = resolve(checkpoint)
    return read_commit(Folder(filesystem, f"{root}/clonos", tag="looking"))


def _names(folder: Folder) -> list[str]:
    return sorted(name for name in folder.sizes(_FOLDER) if _NAME.fullmatch(name))

"""What Spark has planned of an epoch: where it ends in the sources (`<checkpoint>/offsets/<epoch>`).

In micro-batch Spark writes it before the epoch begins, and renames it into place, but syncs neither the file nor its
directory. Storage that is no file system of this host is taken to be durable as it is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from clonos.storage.folder import Folder, resolve

OFFSETS: Final = "offsets"


def keep_plan(checkpoint: str, epoch: int) -> None:
    """A power failure of this host does not take it any more. Raises StorageUnavailable."""
    filesystem, root = resolve(checkpoint)
    with suppress(FileNotFoundError):  # another writer of checkpoints may keep it elsewhere
        Folder(filesystem, root, tag="looking").sync(f"{OFFSETS}/{epoch}")

"""Which epoch Spark has committed last, for an instance that has to know what may still be asked for."""

from __future__ import annotations

from typing import Final

from clonos.store.folder import Folder, resolve

COMMITS: Final = "commits"  # Spark's own


def last_committed(checkpoint: str) -> int:
    """-1 before the first. Raises StorageUnavailable."""
    filesystem, path = resolve(checkpoint)
    names = Folder(filesystem, path, tag="commits").sizes(COMMITS)
    return max((int(name) for name in names if name.isdigit()), default=-1)

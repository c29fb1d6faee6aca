"""The values of broadcast variables that a query's functions use, in the checkpoint.

    <checkpoint>/clonos/broadcasts/<digest>     a pickled value, as Spark has written it

A value is named after a digest of it, so it is there once, whatever the number of operators, instances and starts. The
driver that leads writes what its program uses before it starts a replica, and removes what it does not use.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from clonos.errors import StorageUnavailable
from clonos.storage.folder import Folder, resolve

FOLDER: Final = "broadcasts"


def digest_of(raw: bytes) -> str:
    """The name of a value."""
    return hashlib.sha256(raw).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class BroadcastValues:
    """Of the queries over one checkpoint."""

    checkpoint: str

    def load(self, name: str) -> bytes:
        """Raises StorageUnavailable."""
        folder, at = self._folder(), f"{FOLDER}/{name}"
        try:
            raw = folder.read(at)
        except FileNotFoundError:
            raise StorageUnavailable(
                f"the value of a broadcast variable is not there: {folder.path(at)}",
                hint="The driver writes it when the query starts, and when it starts again after a failure",
            ) from None
        if digest_of(raw) != name:
            raise StorageUnavailable(
                f"the value of a broadcast variable is damaged: {folder.path(at)}",
                hint="Remove that file, and start the query again: the driver writes it",
            )
        return raw

    def keep(self, values: Mapping[str, Callable[[], bytes]], *, and_others: bool = False) -> None:
        """These are there afterwards, by name, and no others, unless past epochs may need them (`and_others`). One that
        is there is not read. Raises StorageUnavailable."""
        folder = self._folder()
        there = folder.sizes(FOLDER)
        for name in values.keys() - there.keys():
            folder.write(f"{FOLDER}/{name}", values[name]())
        for name in () if and_others else there.keys() - values.keys():
            folder.delete(f"{FOLDER}/{name}")

    def _folder(self) -> Folder:
        filesystem, root = resolve(self.checkpoint)
        return Folder(filesystem, f"{root}/clonos", tag=f"broadcast-{uuid.uuid4().hex}")

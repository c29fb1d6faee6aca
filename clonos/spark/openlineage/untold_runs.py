"""Runs of which the consumer has not been told how they ended: the next start of the query tells it.

    <checkpoint>/clonos/openlineage/<run>.json      its id, the job's namespace and name, how it ended if that is known

A file is there from the start of a run until its last event has been taken. Where the driver is killed, or the consumer
is away at the end, it stays.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from clonos.errors import CheckpointMismatch
from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed, unsealed

FOLDER: Final = "openlineage"
ABORT: Final = "ABORT"
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class UntoldRun:
    """`state` is the type of its last event; ABORT where nothing has said how it ended."""

    run: str
    namespace: str
    name: str
    state: str = ABORT


class UntoldRuns:
    """Of the query with this checkpoint location. Raises StorageUnavailable."""

    def __init__(self, location: str) -> None:
        filesystem, root = resolve(location)
        self._folder = Folder(filesystem, f"{root.rstrip('/')}/clonos", tag=f"{FOLDER}-{uuid.uuid4().hex}")

    def all(self) -> Iterator[UntoldRun]:
        """Those that can be read; another one is of no use any more."""
        for name in sorted(self._folder.sizes(FOLDER)):
            path = f"{FOLDER}/{name}"
            try:
                said = unsealed(self._folder.read(path), self._folder.path(path))
                yield UntoldRun(said["run"], said["namespace"], said["name"], said["state"])
            except (CheckpointMismatch, KeyError):
                self._folder.delete(path)
            except FileNotFoundError:
                pass  # another driver has told it

    def note(self, untold: UntoldRun) -> None:
        self._folder.write(f"{FOLDER}/{untold.run}{_SUFFIX}", sealed(asdict(untold)))

    def told(self, run: str) -> None:
        self._folder.delete(f"{FOLDER}/{run}{_SUFFIX}")

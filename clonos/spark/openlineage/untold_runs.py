"""Runs of which the consumer has not been told how they ended: the next start of the query tells it.

    <checkpoint>/clonos/openlineage/<run>.json      its id, the job's namespace and name, how it ended if that is known

A file is there from the start of a run until its last event has been taken. Where the driver is killed, or the consumer
is away at the end, it stays. A run that this process is still going to tell of is left to that.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final

from clonos.errors import CheckpointMismatch
from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed, unsealed

FOLDER: Final = "openlineage"
ABORT: Final = "ABORT"
_SUFFIX: Final = ".json"
_lives: set[str] = set()
"""Runs that this process tells of itself, of whatever query; one that has ended, too, while an event hangs."""
_lives_lock: Final = threading.Lock()


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

    @contextmanager
    def tells_itself(self, run: str) -> Iterator[None]:
        """As long as this process is going to tell of a run: `others` leaves it out."""
        with _lives_lock:
            _lives.add(run)
        try:
            yield
        finally:
            with _lives_lock:
                _lives.discard(run)

    def others(self) -> Iterator[UntoldRun]:
        """Those of which this process does not tell itself, and that can be read; another one is of no use any more."""
        # Before it is looked what there is: one that ends meanwhile has told, or the next start does.
        with _lives_lock:
            left_out = {f"{run}{_SUFFIX}" for run in _lives}
        for name in sorted(self._folder.sizes(FOLDER).keys() - left_out):
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

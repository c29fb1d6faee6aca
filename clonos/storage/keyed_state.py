"""The keyed state of one instance: RocksDB, with the live Python objects in front (`clonos.values.state_cache`).

A checkpoint of many dirty objects holds the caller up for as long as encoding them and writing a table takes. A caller
that knows that one is due calls `prepare` between records until it says so: it does nearly all of that beforehand,
piece by piece, and leaves to the checkpoint what was changed again meanwhile.

There is no write-ahead log: what counts is the last snapshot. So a directory is opened once, empty or just
restored, and what a former owner left behind is refused.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocksdict import AccessType

from clonos.errors import SnapshotCorrupt, StateError
from clonos.storage.database import DEFAULT_MEMORY_BYTES, Batch, Database, prefix_end, tuned
from clonos.storage.disk_errors import disk
from clonos.storage.increment import FILE, Increment, decode_increment
from clonos.values.state_cache import MIB, StateCache

FORMAT_KEY: Final = b"\x00format"
FORMAT: Final = b"clonos-state-2"
FORMAT_WITHOUT_FOLD: Final = b"clonos-state-1"
STATE_PREFIX: Final = b"s"
SENT_PREFIX: Final = b"m"
DELTA_PREFIX: Final = b"d"
TIMER_PREFIX: Final = b"t"

_IN_USE: Final = "clonos-in-use"
_LONGEST_PREPARATION_SECONDS: Final = 2.0
_BATCH_BYTES: Final = 1 * MIB


@dataclass(slots=True)
class _Preparation:
    """Of a checkpoint: the keys that were dirty when it began and are still to be looked at; since when, once there
    are none, their table is being written."""

    ahead: Iterator[bytes]
    ordered: float | None = None


class _States:
    """The part of a database that holds states."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: bytes) -> bytes | None:
        return self._database.get(STATE_PREFIX + key)

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        batch = Batch()
        for key, data in changes.items():
            batch.put(STATE_PREFIX + key, data)
        self._database.write(batch)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        lower, skip = STATE_PREFIX + prefix, len(STATE_PREFIX)
        cursor = self._database.cursor(lower, prefix_end(lower))  # its view is of now, not of the first step
        return ((key[skip:], data) for key, data in iter(cursor))


def has_remains(path: str) -> bool:
    """Whether the files of a state, which is not in use, may have something that is deleted, or was written again
    since. They are only read: RocksDB merges tables as soon as it may write."""
    if any(Path(path).glob(f"{FILE}*")):
        return True
    database = Database(
        path,
        what="the keyed state",
        corrupt=SnapshotCorrupt,
        options=tuned(DEFAULT_MEMORY_BYTES),
        wal=False,
        access=AccessType.read_only(),
    )
    try:
        there = sum(1 for _ in database.cursor(b"", None))
        return sum(int(each["num_entries"]) for each in database.raw.live_files()) != there
    finally:
        database.close()


class KeyedState(StateCache):
    """See the module. Owned by one process and used from one thread."""

    def __init__(
        self,
        path: str,
        *,
        cache_entries: int = 200_000,
        cache_bytes: int = 64 * MIB,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        increment: Increment | None = None,
    ) -> None:
        """With an `increment` most checkpoints are that."""
        self._refuse_used(path)
        self.database = Database(
            path, what="the keyed state", corrupt=SnapshotCorrupt, options=tuned(memory_bytes), wal=False
        )
        self._entries = _States(self.database)
        super().__init__(self._entries, cache_entries=cache_entries, cache_bytes=cache_bytes)
        self._preparation: _Preparation | None = None
        try:
            self._check_format()
            for file in sorted(Path(path).glob(f"{FILE}*")):
                self._apply_increment(file)
            self.database.increment = increment
        except BaseException:
            self.database.close()
            raise

    def _refuse_used(self, path: str) -> None:
        """What an earlier owner left is some mixture of moments, never a state."""
        marker = os.path.join(path, _IN_USE)
        with disk(f"opening the keyed state in {path}", corrupt=SnapshotCorrupt):
            os.makedirs(path, exist_ok=True)
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:
                raise StateError(
                    f"{path} was in use before: the files in it are not the state of any moment",
                    hint="Restore a snapshot into a new directory, or begin with an empty one",
                ) from None

    def _check_format(self) -> None:
        found = self.database.get(FORMAT_KEY)
        if found is None and self.database.raw.latest_sequence_number() == 0:
            self.database.put(FORMAT_KEY, FORMAT)
            found = FORMAT
        self.tells_folds = found == FORMAT
        """Whether the two instants of a repeated hour are two keys; in state of older versions they are one."""
        if found not in (FORMAT, FORMAT_WITHOUT_FOLD):
            raise SnapshotCorrupt(
                f"{self.database.path} is not keyed state of this version: found {found!r}, expected {FORMAT!r}"
            )

    def _apply_increment(self, file: Path) -> None:
        with disk(f"reading {file}", corrupt=SnapshotCorrupt):
            raw = file.read_bytes()
            file.unlink()
        batch = Batch()
        for key, value in decode_increment(raw, str(file)):
            batch.put(key, value)
        self.database.write(batch)

    def increment(self) -> bytes | None:
        """What a checkpoint has more than the last whole one; None where a whole one is due."""
        if self.database.increment is None:
            return None
        self._preparation = None
        self.flush()
        return self.database.increment.encode()

    def prepare(self) -> bool:
        """A small piece of the work of a checkpoint; whether that is cheap to take now."""
        if self._preparation is None:
            self._preparation = _Preparation(iter(self.dirty))
        if self._preparation.ordered is None:
            if self.write_piece(self._preparation.ahead):
                return False
            self.database.begin_flush()
            self._preparation.ordered = time.monotonic()
        waited = time.monotonic() - self._preparation.ordered
        return not self.database.flushing or waited > _LONGEST_PREPARATION_SECONDS

    def checkpoint(self, directory: str) -> None:
        """Write what is dirty, then hard-link everything into `directory`, which must not exist yet."""
        self._preparation = None
        self.flush()
        self.database.checkpoint(directory)
        if self.database.increment is not None:
            self.database.increment.is_whole()

    def checkpoint_anew(self, directory: str) -> None:
        """As `checkpoint`, but of a database that never had anything else. Tables keep what was deleted until they are
        merged, and RocksDB's own list of them names the least and the greatest key of those that are gone, too."""
        self.flush()
        with disk(f"writing the keyed state anew into {directory}", corrupt=SnapshotCorrupt):
            os.makedirs(os.path.dirname(directory), exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="anew-", dir=os.path.dirname(directory)) as folder:
                path = os.path.join(folder, "state")
                options = tuned(DEFAULT_MEMORY_BYTES)
                anew = Database(
                    path, what=self.database.what, corrupt=SnapshotCorrupt, options=options, wal=False
                )
                try:
                    batch = Batch()
                    for key, value in self.database.cursor(b"", None):
                        batch.put(key, value)
                        if batch.size > _BATCH_BYTES:
                            anew.write(batch)
                            batch = Batch()
                    anew.write(batch)
                    anew.checkpoint(directory)
                finally:
                    anew.close()

    def stored(self) -> Iterator[tuple[bytes, bytes]]:
        """Every entry as it is stored (`value_of`), by key."""
        self.flush()
        return self._entries.scan(b"")

    def stored_timers(self) -> Iterator[tuple[bytes, bytes]]:
        """Every timer as it is stored (`timers.timer_key`), in that order."""
        return iter(self.database.cursor(TIMER_PREFIX, prefix_end(TIMER_PREFIX)))

    @property
    def entries(self) -> int:
        """How many there are, timers among them, as the database estimates it. What was sent, and others' logs, are
        counted to leave them out."""
        others = sum(
            1
            for prefix in (SENT_PREFIX, DELTA_PREFIX)
            for _ in self.database.cursor(prefix, prefix_end(prefix))
        )
        return max(0, self.database.estimated_entries - 1 - others)  # without that of the format

    def close(self) -> None:
        """Close without writing: what was not checkpointed is of no use. Scans under way end."""
        self.database.close()


class WrittenAnew:
    """Of a state, what a snapshot is taken of whose files have nothing that the state does not have any more."""

    def __init__(self, state: KeyedState) -> None:
        self._state = state

    def checkpoint(self, directory: str) -> None:
        self._state.checkpoint_anew(directory)

    def increment(self) -> None:
        """It is stored whole."""

"""RocksDB as this project uses it: raw bytes, one owner, bounded memory, no surprise on close.

Rules that the raw library does not enforce, and this module does:

- *Iterators.* An iterator that is still alive keeps the directory locked after `close()`, and rocksdict's `items()`
  ends quietly at a damaged block. So every walk goes through a `Cursor`, which the database knows and drops on close,
  and which asks for the iterator's status where it ends.
- *Memory.* One block cache that also holds index and filter blocks, a few small write buffers and a limit on open
  files: what an instance takes does not grow with its state.
- *Waiting.* A write never waits without end for a disk that has no room.
- *Errors.* A full or failing disk is `StorageUnavailable`; damaged blocks are whatever the owner calls damaged.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, cast

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DbClosedError,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from clonos.errors import ClonosError, StateError, StorageUnavailable
from clonos.storage.disk_errors import disk, raise_mapped
from clonos.storage.increment import Increment

MIB: Final = 1024 * 1024
DEFAULT_MEMORY_BYTES: Final = 48 * MIB
_MAX_OPEN_FILES: Final = 256
# How RocksDB's "incomplete" begins, which is what a write says that does not want to wait.
_INCOMPLETE: Final = "Write stall"
_LEVEL_0: Final = "rocksdb.num-files-at-level0"
_BEHIND_FILES: Final = 12  # of the 20 at which writes are slowed down
_MAX_STALL_SECONDS: Final = 60
_FIRST_PAUSE_SECONDS: Final = 0.0005
_MAX_PAUSE_SECONDS: Final = 0.02
_MAX_MANIFEST_BYTES: Final = 4 * MIB


def _write_options(*, wal: bool) -> WriteOptions:
    options = WriteOptions()
    # The library's stub calls this a method; it is a property.
    setattr(options, "disable_wal", not wal)  # noqa: B010
    # A write that would have to wait comes back and says so (see `Database._when_ready`).
    options.no_slowdown = True
    return options


class _Closed:
    """Stands where the open database was."""

    def __getattr__(self, name: str) -> Any:
        raise DbClosedError("it is closed")


def tuned(memory_bytes: int, *, recovery: DBRecoveryMode | None = None) -> Options:
    """Options under which one database takes about `memory_bytes`, whatever its size on disk."""
    if memory_bytes < MIB:
        raise ValueError(f"a database needs at least 1 MiB of memory, not {memory_bytes} bytes")
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(memory_bytes // 2))
    table.set_block_size(8 * 1024)
    table.set_bloom_filter(10, False)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_format_version(5)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(max(memory_bytes // 6, 256 * 1024))
    options.set_max_write_buffer_number(3)
    options.set_target_file_size_base(16 * MIB)
    options.set_max_bytes_for_level_base(64 * MIB)
    options.set_max_open_files(_MAX_OPEN_FILES)
    options.set_max_background_jobs(2)
    options.set_max_manifest_file_size(_MAX_MANIFEST_BYTES)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(MIB)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    if recovery is not None:
        options.set_wal_recovery_mode(recovery)
    return options


class Batch:
    """Changes to be made together: first the ranges are removed, then the entries are put or (None) deleted.

    RocksDB's own batch is used up by a write, even by one that was refused.
    """

    __slots__ = ("entries", "ranges", "size")

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, bytes | None]] = []
        self.ranges: list[tuple[bytes, bytes]] = []
        self.size = 0

    def put(self, key: bytes, value: bytes | None) -> None:
        """Keep `value` under `key`; None deletes."""
        self.entries.append((key, value))
        self.size += len(key) + (len(value) if value is not None else 0)

    def delete_range(self, lower: bytes, upper: bytes) -> None:
        """Remove every key in [lower, upper)."""
        self.ranges.append((lower, upper))

    def made(self) -> WriteBatch:
        """RocksDB's batch, for one write."""
        batch = WriteBatch(raw_mode=True)
        for lower, upper in self.ranges:
            batch.delete_range(lower, upper)
        for key, value in self.entries:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        return batch


class Cursor:
    """A walk over the keys in [lower, upper), on the state as it was when the walk began."""

    __slots__ = ("__weakref__", "_database", "_iterator", "_options")

    def __init__(self, database: Database, lower: bytes, upper: bytes | None) -> None:
        self._database = database
        self._options = ReadOptions()
        if upper is not None:
            self._options.set_iterate_upper_bound(upper)
        iterator = database.raw.iter(self._options)
        iterator.seek(lower)
        self._iterator: Any = iterator

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        try:
            while (iterator := self._iterator) is not None and iterator.valid():
                item = (iterator.key(), iterator.value())
                iterator.next()
                # Nothing but the cursor may hold the iterator while the caller has control.
                del iterator
                yield item
            if (iterator := self._iterator) is not None:
                self._check(iterator)
            else:
                self._database.ended_early()
        finally:
            iterator = None
            self.close()

    def _check(self, iterator: Any) -> None:
        try:
            iterator.status()
        except Exception as error:
            self._database.failed(error, "reading")

    def close(self) -> None:
        """Let go of the iterator; the walk ends."""
        self._iterator = None


class Database:
    """One open RocksDB. `raw` is for reading on hot paths, which hand their exceptions to `failed`."""

    def __init__(
        self,
        path: str,
        *,
        what: str,
        corrupt: type[ClonosError],
        options: Options,
        wal: bool,
        access: AccessType | None = None,
    ) -> None:
        self.path = path
        self.what = what
        self.corrupt = corrupt
        self._cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()
        with disk(f"opening {what} in {path}", corrupt=corrupt):
            self.raw = Rdict(path, options, access_type=access or AccessType.read_write())
        self._write_options = _write_options(wal=wal)
        self.increment: Increment | None = None  # since the last checkpoint, where they are of use

    def failed(self, error: Exception, doing: str) -> None:
        """Raise what `error`, got while `doing` something, means. Never returns normally."""
        raise_mapped(error, f"{doing} {self.what} in {self.path}", corrupt=self.corrupt)

    def ended_early(self) -> None:
        """A walk went on after the database was closed."""
        raise StateError(f"{self.what} in {self.path} was closed while it was being read")

    def cursor(self, lower: bytes, upper: bytes | None) -> Cursor:
        """Begin a walk over [lower, upper)."""
        try:
            cursor = Cursor(self, lower, upper)
        except Exception as error:
            self.failed(error, "reading")
            raise AssertionError("unreachable") from error
        self._cursors.add(cursor)
        return cursor

    def get(self, key: bytes) -> bytes | None:
        """What is kept under `key`."""
        try:
            value: bytes | None = self.raw.get(key)
        except Exception as error:
            self.failed(error, "reading")
            raise AssertionError("unreachable") from error
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Keep one entry."""
        self._note(key, value)
        try:
            self.raw.put(key, value, self._write_options)
        except Exception as error:
            self._when_ready(error, lambda: self.raw.put(key, value, self._write_options))

    @property
    def estimated_entries(self) -> int:
        """How many entries there are, as RocksDB estimates it: until tables are merged, one that was written again may
        count twice, and one that was deleted before it was written to a table takes another one's place."""
        return self.raw.property_int_value("rocksdb.estimate-num-keys") or 0

    def delete(self, key: bytes) -> None:
        """Remove one entry, if it is there."""
        self._note(key, None)
        try:
            self.raw.delete(key, self._write_options)
        except Exception as error:
            self._when_ready(error, lambda: self.raw.delete(key, self._write_options))

    def write(self, batch: Batch) -> None:
        """Apply a batch atomically."""
        if self.increment is not None:
            if batch.ranges:
                raise StateError("a range of keys is removed, and its keys are not known")
            for key, value in batch.entries:
                self.increment.note(key, value)
        try:
            self.raw.write(batch.made(), self._write_options)
        except Exception as error:
            self._when_ready(error, lambda: self.raw.write(batch.made(), self._write_options))

    def _note(self, key: bytes, value: bytes | None) -> None:
        if self.increment is not None:
            self.increment.note(key, value)

    def _when_ready(self, error: Exception, write: Callable[[], None]) -> None:
        """Write again once RocksDB has caught up with flushing and compacting.

        Left to itself RocksDB makes a writer wait for that, and, where the disk is full, wait for ever.
        """
        deadline = time.monotonic() + _MAX_STALL_SECONDS
        pause = _FIRST_PAUSE_SECONDS
        while _INCOMPLETE in str(error):
            failures = self.raw.property_int_value("rocksdb.background-errors")
            if failures or time.monotonic() > deadline:
                reason = (
                    "it cannot write its tables" if failures else f"it was busy for {_MAX_STALL_SECONDS} s"
                )
                raise StorageUnavailable(
                    f"writing {self.what} in {self.path} failed: {reason}",
                    hint="See whether the disk is full or failing",
                ) from error
            time.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE_SECONDS)
            try:
                write()
            except Exception as again:
                error = again
            else:
                return
        self.failed(error, "writing")

    def begin_flush(self) -> None:
        """Let what is in memory be written to tables in the background.

        Not where RocksDB is behind with compacting: there the mere request waits, as long as a write would be stalled.
        """
        try:
            behind = int(self.raw.property_value(_LEVEL_0) or 0) >= _BEHIND_FILES
            if not behind and not self.flushing:
                self.raw.flush(wait=False)
        except Exception as error:
            self.failed(error, "flushing")

    @property
    def flushing(self) -> bool:
        """Whether tables are being written."""
        return bool(self.raw.property_int_value("rocksdb.num-immutable-mem-table"))

    def checkpoint(self, directory: str) -> None:
        """A copy made of hard links, in a directory that does not exist yet."""
        with disk(f"taking a checkpoint of {self.what} into {directory}", corrupt=self.corrupt):
            Checkpoint(self.raw).create_checkpoint(directory)

    def close(self) -> None:
        """Close it and free its lock, whatever walks are still under way. Never fails.

        RocksDB writes out what is in memory, and complains if it cannot. There is nothing to lose then: a log has it
        in its write-ahead log, and state that is not in a checkpoint is of no use.
        """
        raw, self.raw = self.raw, cast(Rdict, _Closed())
        if isinstance(raw, _Closed):
            return
        for cursor in list(self._cursors):
            cursor.close()
        # What `close` leaves open when it fails is closed with the last reference.
        with suppress(Exception):
            raw.close()


def prefix_end(prefix: bytes) -> bytes | None:
    """The first key after every key that starts with `prefix`; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))

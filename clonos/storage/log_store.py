"""Causal logs of one instance on local disk: its own log and the deltas that it received.

RocksDB with its write-ahead log and without fsync: what `append` has returned from survives the death of the process
(the kernel has it), and `sync` makes it survive the death of the host, which an effect on the outside world waits for.

    "o" offset(8, big-endian) -> sealed bytes of the own log that begin at this offset
    "d" number(8, big-endian) -> sealed delta; numbers count up, so order is order of insertion
    00 "incarnations-2"       -> sealed pairs of fence and log offset (16 + 8, big-endian), where there are standbys;
                                 the highest bit of the offset says that a copy begins there
    00 "whole"                -> sealed log offset (8, big-endian) and boot id: from there on the store lacks nothing
                                 that the instance wrote, as long as this host has not been started again
    00 "damaged"              -> sealed text: what could not be read of the store in whose place this one is, until the
                                 instance has recovered

A store from when fences had 64 bits (`protocol.fence`) has 00 "incarnations" instead, pairs of 8 + 8 bytes.

One `append` is one write batch: after a crash there is all of it or nothing, and, the log being sequential, nothing
after a hole. Each value carries a version and a checksum that also covers its key (see `clonos.values.sealed_value`);
one that does not fit is never returned. The owner raises `LogCorrupt`. A reader collects what is wrong in `corrupt`,
since it answers for another instance's recovery and the rest of the log is still worth having.

A reader opens the directory while its owner is alive, or after it was killed, and sees everything acknowledged before
the reader was opened. It does not follow later appends.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from rocksdict import AccessType, DBRecoveryMode

from clonos.errors import ClonosError, LogConflict, LogCorrupt, StorageUnavailable
from clonos.protocol.counters import LAST_LONG, used_up
from clonos.protocol.fence import FENCE_BYTES, Fence
from clonos.protocol.ids import LOG_BEGIN, LogOffset, log_after
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.own_log import Writer, begun, truncated
from clonos.storage.boot import is_of_this_boot, note_boot
from clonos.storage.database import MIB, Batch, Database, prefix_end, tuned
from clonos.storage.disk_errors import unavailable
from clonos.storage.durable_files import make_directory
from clonos.storage.working_folders import working_folder
from clonos.storage.write_ahead import Hole, find_hole, link_up_to
from clonos.values.sealed_value import seal, unseal

DEFAULT_LOG_MEMORY_BYTES: Final = 24 * MIB

_OWN: Final = b"o"
_DELTA: Final = b"d"
_NUMBER: Final = struct.Struct(">Q")
_KEY_BYTES: Final = 1 + _NUMBER.size
_FORMAT_KEY: Final = b"\x00format"
_INCARNATIONS_KEY: Final = b"\x00incarnations-2"
_INCARNATION: Final = struct.Struct(f">{FENCE_BYTES}sQ")
_NARROW_INCARNATIONS_KEY: Final = b"\x00incarnations"
_NARROW_INCARNATION: Final = struct.Struct(">QQ")
_WHOLE_KEY: Final = b"\x00whole"
_DAMAGED_KEY: Final = b"\x00damaged"
_FORMAT: Final = b"clonos-log-1"
# An attempt takes milliseconds; an owner that writes as fast as it can spoils one in seven.
_MAX_OPEN_ATTEMPTS: Final = 50
# Says so where something is damaged, other than an append that never ended.
_STRICT: Final = DBRecoveryMode.tolerate_corrupted_tail_records()
# Up to what is damaged, or to the first hole in RocksDB's numbering of batches, which strict mode does not look at.
_PREFIX: Final = DBRecoveryMode.point_in_time()


def _key(prefix: bytes, number: int) -> bytes:
    """Raises CounterExhausted."""
    if number > LAST_LONG:
        raise used_up("the offset of its own log" if prefix == _OWN else "the number of a received delta")
    return prefix + _NUMBER.pack(number)


def _number(key: bytes, what: str) -> int:
    if len(key) != _KEY_BYTES:
        raise LogCorrupt(f"{what} has an entry with the malformed key {key!r}")
    number: int = _NUMBER.unpack_from(key, 1)[0]
    return number


def _packed(incarnations: Sequence[Writer]) -> bytes:
    raw = b"".join(
        _INCARNATION.pack(Fence(one.fence).pack(), one.since + one.copy * (LAST_LONG + 1))
        for one in incarnations
    )
    return seal(raw, _INCARNATIONS_KEY)


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unavailable(error, f"opening the causal log in {path}") from error


def _data_files(path: str) -> set[str]:
    """Names of the write-ahead logs and tables in a directory."""
    return {name for name in _names(path) if name.endswith((".log", ".sst"))}


def _may_have_a_hole(path: str) -> bool:
    """Whether there are several write-ahead logs. RocksDB begins the next one while it still makes a table of the one
    before, and neither is synced: a power failure can take the end of the older and leave the newer."""
    return sum(name.endswith(".log") for name in _names(path)) > 1


def _hole(path: str) -> Hole | None:
    """In one write-ahead log: there is none where the host has not been started again since the store was opened."""
    if is_of_this_boot(path):
        return None
    try:
        return find_hole(path)
    except OSError as error:
        raise unavailable(error, f"opening the causal log in {path}") from error


def _hole_found(path: str, hole: Hole) -> LogCorrupt:
    return LogCorrupt(
        f"{hole.name} of the causal log in {path} has zeros from byte {hole.offset} on, and something behind them"
    )


class _Reading:
    """What owner and reader have in common: walking over entries whose checksums hold."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _damaged(self, error: ClonosError) -> None:
        raise error

    def _entries(self, prefix: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
        path = self._database.path
        for key, data in self._database.cursor(_key(prefix, start), prefix_end(prefix)):
            try:
                number = _number(key, f"the log in {path}")
                kind = "own log at offset" if prefix == _OWN else "delta"
                payload = unseal(data, key, what=f"{kind} {number} in {path}", corrupt=LogCorrupt)
            except LogCorrupt as error:
                self._damaged(error)
                continue
            yield number, payload

    def own(self) -> Iterator[Segment]:
        """The own log's pieces as (offset, bytes), in order."""
        return self._own_from(LOG_BEGIN)

    def _own_from(self, offset: LogOffset) -> Iterator[Segment]:
        for start, payload in self._entries(_OWN, offset):
            yield LogOffset(start), payload

    def deltas(self) -> Iterator[bytes]:
        """The received deltas, in the order in which they were appended."""
        return (payload for _, payload in self._entries(_DELTA))

    def incarnations(self) -> tuple[Writer, ...] | None:
        """The incarnations that wrote the own log, each from its offset on; None where that is not kept."""
        raw = self._unsealed(_INCARNATIONS_KEY)
        if raw is not None:
            return tuple(
                Writer(Fence.unpack(fence), LogOffset(since & LAST_LONG), copy=since > LAST_LONG)
                for fence, since in _INCARNATION.iter_unpack(raw)
            )
        raw = self._unsealed(_NARROW_INCARNATIONS_KEY)
        if raw is not None:
            return tuple(
                Writer(Fence.widened(fence), LogOffset(since))
                for fence, since in _NARROW_INCARNATION.iter_unpack(raw)
            )
        return None

    def _unsealed(self, key: bytes) -> bytes | None:
        data = self._database.get(key)
        where = f"the incarnations in {self._database.path}"
        return None if data is None else unseal(data, key, what=where, corrupt=LogCorrupt)

    @property
    def damaged_before(self) -> str | None:
        """What could not be read of the store in whose place this one is."""
        data = self._database.get(_DAMAGED_KEY)
        if data is None:
            return None
        where = f"the note of damage in {self._database.path}"
        return unseal(data, _DAMAGED_KEY, what=where, corrupt=LogCorrupt).decode("utf-8", "replace")

    def close(self) -> None:
        """Close it; walks under way end with an error."""
        self._database.close()


def _open_read_only(path: str, memory_bytes: int, recovery: DBRecoveryMode) -> Database:
    options = tuned(memory_bytes, recovery=recovery)
    options.create_if_missing(False)
    # All files are opened at once: the owner may delete one later, and an open file stays readable.
    options.set_max_open_files(-1)
    database = Database(
        path,
        what="the causal log",
        corrupt=LogCorrupt,
        options=options,
        wal=True,
        access=AccessType.read_only(False),
    )
    found = database.get(_FORMAT_KEY)
    if found not in (_FORMAT, None):
        database.close()
        raise LogCorrupt(f"{path} is not a causal log of this version: found {found!r}, expected {_FORMAT!r}")
    return database


def _check_whole(path: str, memory_bytes: int) -> None:
    """Raises LogCorrupt where something is damaged, other than an append that never ended."""
    _open_read_only(path, memory_bytes, _STRICT).close()


class LogReader(_Reading):
    """A log as it was when this was opened. `corrupt` says what could not be returned, and where."""

    def __init__(self, path: str, *, memory_bytes: int = DEFAULT_LOG_MEMORY_BYTES) -> None:
        self.corrupt: list[str] = []
        super().__init__(self._open(path, memory_bytes))

    def _open(self, path: str, memory_bytes: int) -> Database:
        if "CURRENT" not in _names(path):
            if _data_files(path):
                raise LogCorrupt(f"the causal log in {path} has files of data, but CURRENT is gone")
            raise FileNotFoundError(f"there is no causal log in {path}")
        hole = _hole(path)
        if hole is not None:
            self.corrupt.append(str(_hole_found(path, hole)))
            return self._open_before(path, hole, memory_bytes)
        problem = StorageUnavailable(f"the causal log in {path} changed each time it was opened")
        for _ in range(_MAX_OPEN_ATTEMPTS):
            try:
                try:
                    database = self._open_whole(path, memory_bytes, _STRICT)
                    if not _may_have_a_hole(path):
                        return database
                    database.close()
                    return self._open_whole(path, memory_bytes, _PREFIX)
                except LogCorrupt as error:
                    # Everything before the damage is a prefix, and a prefix is meaningful.
                    database = self._open_whole(path, memory_bytes, _PREFIX)
                    self.corrupt.append(str(error))
                    return database
            except StorageUnavailable as error:
                # The owner may have replaced a file between our looking and our opening it: look again.
                problem = error
        raise problem

    def _open_before(self, path: str, hole: Hole, memory_bytes: int) -> Database:
        """What was written before a hole. RocksDB would read on behind it; all files are open when this returns."""
        try:
            with working_folder("log") as view:
                link_up_to(path, hole, view)
                return self._open_once(view, memory_bytes, _PREFIX)
        except OSError as error:
            raise unavailable(error, f"opening the causal log in {path}") from error

    def _open_whole(self, path: str, memory_bytes: int, recovery: DBRecoveryMode) -> Database:
        """Open, and make sure that no piece was missed.

        RocksDB reads its manifest first and write-ahead logs second. If the owner flushed in between, the manifest
        did not have the new table yet, and the write-ahead log is gone: a hole that RocksDB does not notice. The owner
        removes a write-ahead log only after writing the manifest, so there is no hole if all that were there before
        are there still.
        """
        before = _data_files(path)
        try:
            database = self._open_once(path, memory_bytes, recovery)
        except LogCorrupt as error:
            # A table that compaction has just replaced also looks like damage to RocksDB.
            if _data_files(path) != before:
                raise StorageUnavailable(f"the causal log in {path} changed while it was opened") from error
            raise
        gone = before - _data_files(path)
        if any(name.endswith(".log") for name in gone):
            database.close()
            raise StorageUnavailable(f"the causal log in {path} changed while it was opened")
        return database

    def _open_once(self, path: str, memory_bytes: int, recovery: DBRecoveryMode) -> Database:
        return _open_read_only(path, memory_bytes, recovery)

    def _damaged(self, error: ClonosError) -> None:
        self.corrupt.append(error.message)

    def _entries(self, prefix: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
        try:
            yield from super()._entries(prefix, start)
        except LogCorrupt as error:
            # A damaged block: RocksDB cannot walk past it.
            self.corrupt.append(error.message)

    def incarnations(self) -> tuple[Writer, ...] | None:
        try:
            return super().incarnations()
        except LogCorrupt as error:
            self.corrupt.append(error.message)
            return ()

    @property
    def damaged_before(self) -> str | None:
        try:
            return super().damaged_before
        except LogCorrupt as error:
            self.corrupt.append(error.message)
            return None

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LogStore(_Reading):
    """The owner's end. One process, one thread."""

    def __init__(self, path: str, *, memory_bytes: int = DEFAULT_LOG_MEMORY_BYTES) -> None:
        make_directory(path)
        hole = _hole(path)
        if hole is not None:
            raise _hole_found(path, hole)
        recovery = _STRICT
        if _may_have_a_hole(path):
            _check_whole(path, memory_bytes)
            recovery = _PREFIX
        options = tuned(memory_bytes, recovery=recovery)
        super().__init__(Database(path, what="the causal log", corrupt=LogCorrupt, options=options, wal=True))
        try:
            self._begin()
        except BaseException:
            self._database.close()
            raise
        note_boot(path)

    def _begin(self) -> None:
        found = self._database.get(_FORMAT_KEY)
        if found is None and self._database.raw.latest_sequence_number() == 0:
            self._database.put(_FORMAT_KEY, _FORMAT)
            found = _FORMAT
        if found != _FORMAT:
            raise LogCorrupt(
                f"{self._database.path} is not a causal log of this version: found {found!r}, expected {_FORMAT!r}"
            )
        last = self._last(_DELTA)
        self._next_delta = 0 if last is None else _number(last[0], "the causal log") + 1
        self._folded_delta, self._folded_own = 0, LOG_BEGIN
        last = self._last(_OWN)
        self._end = LOG_BEGIN if last is None else self._own_end(*last)

    def _last(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        upper = prefix_end(prefix)
        assert upper is not None
        iterator = self._database.raw.iter()
        iterator.seek_for_prev(upper)
        try:
            iterator.status()
        except Exception as error:
            self._database.failed(error, "opening")
        if not iterator.valid() or not iterator.key().startswith(prefix):
            return None
        return iterator.key(), iterator.value()

    def _own_end(self, key: bytes, data: bytes) -> LogOffset:
        offset = _number(key, "the causal log")
        where = f"own log at offset {offset} in {self._database.path}"
        return log_after(LogOffset(offset), unseal(data, key, what=where, corrupt=LogCorrupt))

    @property
    def end(self) -> LogOffset:
        """The offset after the last byte of the own log."""
        return self._end

    def append(self, deltas: Sequence[bytes], own: Segment | None) -> None:
        """Add received deltas and a piece of the own log, all or nothing.

        A piece that begins before the end must repeat what is there (`LogConflict` otherwise); only what is new of it
        is added. One that begins after the end leaves a gap, which a log recovered in segments may have.
        """
        batch = Batch()
        number = self._next_delta
        for delta in deltas:
            key = _key(_DELTA, number)
            batch.put(key, seal(delta, key))
            number += 1
        end = self._end
        if own is not None:
            offset, piece = own
            if offset < end:
                offset, piece = self._only_new(offset, piece)
            if piece:
                key = _key(_OWN, offset)
                batch.put(key, seal(piece, key))
                end = log_after(offset, piece)
        if not batch.entries:
            return
        self._database.write(batch)
        self._next_delta = number
        self._end = end

    def _only_new(self, offset: LogOffset, piece: bytes) -> Segment:
        """Compare what overlaps, return the new rest."""
        for start, known in self._own_from(self._start_before(offset)):
            low, high = max(start, offset), min(start + len(known), offset + len(piece))
            if low < high and known[low - start : high - start] != piece[low - offset : high - offset]:
                raise LogConflict(
                    f"the own log in {self._database.path} already has other bytes between offsets {low} and {high}"
                )
        return self._end, piece[self._end - offset :]

    def _start_before(self, offset: LogOffset) -> LogOffset:
        """Where the piece begins that covers `offset`, or `offset`."""
        iterator = self._database.raw.iter()
        iterator.seek_for_prev(_key(_OWN, offset))
        if iterator.valid() and iterator.key().startswith(_OWN):
            return LogOffset(_number(iterator.key(), "the causal log"))
        return offset

    def begin(self, incarnation: Writer | None) -> None:
        """What is written from its offset on is its own, or a copy. It may show a newer fence later.

        None: the incarnations that write the store are kept from now on.
        """
        kept = self.incarnations() or ()
        if incarnation is not None:
            kept = begun(kept, incarnation)
        self._database.put(_INCARNATIONS_KEY, _packed(kept))

    def note_damage(self, what: str) -> None:
        """This store is in the place of one of which only a part could be read."""
        self._database.put(_DAMAGED_KEY, seal(what.encode(), _DAMAGED_KEY))

    def is_whole(self, since: LogOffset, boot: str) -> None:
        """From this offset on the store lacks nothing; whatever was damaged before is forgotten. Durable."""
        batch = Batch()
        batch.put(_WHOLE_KEY, seal(_NUMBER.pack(since) + boot.encode(), _WHOLE_KEY))
        batch.put(_DAMAGED_KEY, None)
        self._database.write(batch)
        self.sync()

    def whole_since(self, boot: str) -> LogOffset | None:
        """The offset from which on it lacks nothing, if this host has not been started again since `is_whole`: what
        was not synced then is gone, and nothing tells what that was."""
        data = self._database.get(_WHOLE_KEY)
        if data is None:
            return None
        where = f"the note of being whole in {self._database.path}"
        raw = unseal(data, _WHOLE_KEY, what=where, corrupt=LogCorrupt)
        since = LogOffset(_NUMBER.unpack_from(raw)[0])
        return since if boot and raw[_NUMBER.size :] == boot.encode() else None

    def fold(self, merge: Callable[[list[bytes]], bytes]) -> None:
        """Make one entry of the deltas, and one of the own log's pieces, that came since the last call.

        Under small bundles there are thousands of a few bytes each, and a recovery reads them all. Readers notice
        nothing: one sees the entries of before or those of after.
        """
        batch = Batch()
        deltas = list(self._entries(_DELTA, self._folded_delta))
        if len(deltas) > 1:
            key = _key(_DELTA, deltas[0][0])
            batch.delete_range(_key(_DELTA, deltas[0][0] + 1), _key(_DELTA, deltas[-1][0] + 1))
            batch.put(key, seal(merge([raw for _, raw in deltas]), key))
        pieces = list(self._own_from(self._folded_own))
        contiguous = all(start + len(piece) == after for (start, piece), (after, _) in pairwise(pieces))
        if len(pieces) > 1 and contiguous:
            key = _key(_OWN, pieces[0][0])
            batch.delete_range(_key(_OWN, pieces[0][0] + 1), _key(_OWN, pieces[-1][0] + 1))
            batch.put(key, seal(b"".join(piece for _, piece in pieces), key))
        if batch.entries:
            self._database.write(batch)
        self._folded_delta, self._folded_own = self._next_delta, self._end

    def sync(self) -> None:
        """Make everything appended survive the host (fsync of the write-ahead log)."""
        try:
            self._database.raw.flush_wal(True)
        except Exception as error:
            self._database.failed(error, "making stable")

    def truncate_own(self, offset: LogOffset) -> None:
        """Forget the own log before `offset`; a piece that reaches beyond it is kept whole."""
        start = self._start_before(offset)
        if start < offset and start + self._piece_length(start) > offset:
            offset = start
        self._delete_range(_key(_OWN, 0), _key(_OWN, offset))
        kept = self.incarnations() or ()
        if len(kept) > 1:
            self._database.put(_INCARNATIONS_KEY, _packed(truncated(kept, offset)))

    def _piece_length(self, start: LogOffset) -> int:
        for number, piece in self._own_from(start):
            return len(piece) if number == start else 0
        return 0

    def rewrite_own(
        self, offset: LogOffset, pieces: Sequence[Segment], copied_by: Writer | None = None
    ) -> None:
        """Put these in the place of the own log from `offset` on, as a recovery has it: all or nothing, and durable,
        since an effect may depend on what was there. The incarnation that has copied them, if one has, is kept in the
        same write: what was there before must never count as its own."""
        kept: Segment | None = None
        start = self._start_before(offset)
        for number, piece in self._own_from(start):
            if number == start < offset:
                kept = number, piece[: offset - number]
            break
        upper = prefix_end(_OWN)
        assert upper is not None
        batch = Batch()
        batch.delete_range(_key(_OWN, min(start, offset)), upper)
        if kept is not None:
            batch.put(_key(_OWN, kept[0]), seal(kept[1], _key(_OWN, kept[0])))
        for number, piece in pieces:
            batch.put(_key(_OWN, number), seal(piece, _key(_OWN, number)))
        if copied_by is not None:
            batch.put(_INCARNATIONS_KEY, _packed(begun(self.incarnations() or (), copied_by)))
        self._database.write(batch)
        self.sync()
        last = self._last(_OWN)
        self._end = LOG_BEGIN if last is None else self._own_end(*last)

    def truncate_deltas(self, keep: Callable[[bytes], bool]) -> None:
        """Forget the deltas for which `keep` is false."""
        first: int | None = None
        after = 0
        ranges: list[tuple[int, int]] = []
        for number, delta in self._entries(_DELTA):
            if keep(delta):
                if first is not None:
                    ranges.append((first, number))
                first = None
            elif first is None:
                first = number
            after = number + 1
        if first is not None:
            ranges.append((first, after))
        for low, high in ranges:
            self._delete_range(_key(_DELTA, low), _key(_DELTA, high))

    def _delete_range(self, low: bytes, high: bytes) -> None:
        batch = Batch()
        batch.delete_range(low, high)
        self._database.write(batch)

    @staticmethod
    def read_only(path: str) -> LogReader:
        """A reader; `FileNotFoundError` where no log was ever written."""
        return LogReader(path)

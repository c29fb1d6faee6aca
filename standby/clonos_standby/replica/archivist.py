"""What an instance leaves in the archive: its input as it came, its log, and now and then its state.

What is left when is `protocol.archive.segment_cutter`'s matter. Input is kept in memory until a checkpoint is begun,
beyond some size in a file without a name, which goes with the process.

States are what a later repetition begins from. They are stored in a thread of their own, and one that could not be
stored is no loss: a repetition begins farther back. Only they are begun while the instance waits, on its host's disk:
storage of the archive may take long to answer.

What is too old or too much goes before a state is stored, and where storage has refused a segment: on a full disk
it may be what takes the room.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import IO, Final

from clonos.errors import ClonosError, SnapshotCorrupt, StorageUnavailable
from clonos.protocol.archive.archive_segment import ArchiveSegment, RanOn
from clonos.protocol.archive.archived_state import log_order
from clonos.protocol.archive.dropping import ArchivedFiles, drop_unwanted
from clonos.protocol.archive.segment_cutter import InputSpool, SegmentCutter
from clonos.protocol.archive.settled_clock import SettledClock
from clonos.protocol.archive.state_keeping import has_nothing_of, keep_state
from clonos.protocol.archive.state_schedule import StateSchedule
from clonos.protocol.engine.given_rows import GivenRows
from clonos.protocol.engine.instance import InstanceSnapshot
from clonos.protocol.engine.lineage_recorder import LineageRecorder
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.fence import Fence
from clonos.protocol.ids import FIRST_EPOCH, LOG_BEGIN, NO_EPOCH, Epoch, LogOffset, Origin
from clonos.protocol.line.snapshot_name import MARKED_EVERY, SnapshotName
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.storage.archive import Archive
from clonos.storage.archive_keys import NO_KEYS, ArchiveKeys
from clonos.storage.disk_errors import disk
from clonos.storage.keyed_state import KeyedState
from clonos.storage.segment_files import SegmentFiles
from clonos.storage.snapshots import PendingSnapshot, SnapshotStore, begin_whole
from clonos.wire.block import has_rows, without_ride_along
from clonos.wire.messages import Bundle
from clonos_standby.server.log import log

_IN_MEMORY: Final = 8 << 20
"""Bytes of input."""
_MOST_IN_SEGMENT: Final = 32 << 20


class _Spool(InputSpool):
    """In memory, beyond some size in a file without a name."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._blocks: list[bytes] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._sizes: list[int] = []  # of the blocks in the file

    def put(self, block: bytes) -> None:
        self._blocks.append(block)
        self._bytes += len(block)
        if self._bytes > _IN_MEMORY:
            if self._file is None:
                os.makedirs(self._folder, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - it stays open
            self._file.write(b"".join(self._blocks))
            self._sizes += map(len, self._blocks)
            self._blocks, self._bytes = [], 0

    def take(self) -> list[list[bytes]]:
        pieces: list[list[bytes]] = [[]]
        size = 0
        for block in self._all():
            if pieces[-1] and size + len(block) > _MOST_IN_SEGMENT:
                pieces.append([])
                size = 0
            pieces[-1].append(block)
            size += len(block)
        self.clear()
        return pieces

    def _all(self) -> Iterator[bytes]:
        if self._file is not None:
            self._file.seek(0)
            for size in self._sizes:
                yield self._file.read(size)
        yield from self._blocks

    def clear(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._sizes = None, []
        self._blocks, self._bytes = [], 0


class Archivist:
    """See the module. Of one instance of an operator whose steps are repeated."""

    def __init__(
        self,
        checkpoint: str,
        data: str,
        origin: Origin,
        program: bytes,
        keep: float,
        most: int | None = None,
        *,
        code: str = "",
        intercept: bool = False,
        keys: ArchiveKeys = NO_KEYS,
        query: str = "",
        lineage: bool = False,
    ) -> None:
        """`program` is what replicas are told of the operator; `keep` in seconds, `most` in bytes of segments; `keys`
        encrypt what is left, for the `query` of this id."""
        self._checkpoint = checkpoint
        self._origin = origin
        self._raw_program = program
        self._program = hashlib.sha256(program).hexdigest()
        self._keep = keep
        self._most = most
        self._keys = keys
        self._query = query
        spool = _Spool(os.path.join(data, "archive"))
        self._records_lineage = lineage
        self._cutter = SegmentCutter(
            origin, self._program, spool, code=code, intercept=intercept, lineage=lineage
        )
        self._host = socket.gethostname()
        self._clock = SettledClock(keep, *_clocks())
        self._pending = os.path.join(data, "archive", f"{origin.node}-{origin.instance}")
        self._due: deque[ArchiveSegment] = deque()
        self._archive: Archive | None = None
        self._has_program = False
        self._begun_states = itertools.count()
        self._store: SnapshotStore | None = None
        self._storing: threading.Thread | None = None
        self._writing = threading.Lock()
        self._freeing = threading.Lock()
        self._opening = threading.RLock()
        self._schedule = StateSchedule(keep)

    def lineage_recorder(self, services: CausalServices) -> LineageRecorder | None:
        """For an instance whose function is answered by these services, where lineage is recorded."""
        if not self._records_lineage:
            return None
        services.given_rows = GivenRows()
        return LineageRecorder(services.given_rows, self._cutter.note_lineage)

    def restored(self, snapshot: InstanceSnapshot | None) -> None:
        """None: the instance begins with nothing."""
        if snapshot is None:
            self._cutter.restored(LOG_BEGIN, NO_EPOCH)
        else:
            self._cutter.restored(snapshot.log_offset, snapshot.epoch)

    def record(self, start: LogOffset, data: bytes) -> None:
        """A piece of the log is saved."""
        self._cutter.record(start, data)

    def truncate(self, log_offset: LogOffset) -> None:
        """An epoch has committed."""
        self._cutter.truncate(log_offset)

    def take(self, bundle: Bundle, epoch: Epoch) -> None:
        """Input has come."""
        for block in bundle.blocks:
            if has_rows(block):
                self._cutter.take(epoch, without_ride_along(block))

    def cut(
        self, request: AttachRequest, content: InstanceSnapshot, *, own_from: LogOffset, is_end: bool
    ) -> None:
        """A checkpoint has been begun with `content`: what came and was recorded before it is due to be written. This
        process has repeated what is in the log before `own_from`."""
        ran_on = RanOn(self._host, os.getpid(), own_from)
        now = time.time_ns() // 1000
        self._due += self._cutter.cut(request, content, written_at=now, is_end=is_end, ran_on=ran_on)

    def write_due(self) -> None:
        """Before the checkpoint is stored; in whichever thread does that. Raises StorageUnavailable."""
        with self._writing:
            if not self._due:
                return
            fence = self._due[0].fence
            try:
                self._write_due(self._opened(fence))
            except StorageUnavailable as error:
                log(
                    "archive_freed", f"what is too old or too much is dropped, and it is tried again: {error}"
                )
                with suppress(ClonosError):
                    self._free(fence)
                self._write_due(self._opened(fence))

    def _write_due(self, archive: Archive) -> None:
        if not self._has_program:
            if not archive.has_program(self._program):
                archive.write_program(self._program, self._raw_program)
            self._has_program = True
        while self._due:
            archive.segments(self._origin).write(self._due[0])
            self._due.popleft()

    def _opened(self, fence: Fence) -> Archive:
        """Under the fence that the process has by then."""
        with self._opening:
            if self._archive is None:
                archive = Archive(self._checkpoint, keys=self._keys, query=self._query)
                archive.begin_writing_of(self._origin, fence)
                self._archive = archive
            return self._archive

    # ---------------------------------------------------------------- states

    def keep_state(
        self,
        name: SnapshotName,
        state: KeyedState,
        meta: Callable[[], bytes],
        at: LogOffset,
        records: int,
    ) -> None:
        """A checkpoint of this name has been begun, of which `meta` gives what the instance says of itself, at log
        offset `at`, when so many `records` have been processed: if a state is due, it is stored from now on."""
        now = time.monotonic()
        is_due = self._schedule.is_due(now, records, is_end=name.final)
        if not is_due or (self._storing is not None and self._storing.is_alive()):
            return
        self._schedule.begun(now, records)
        self._in_background(self._store_state, name, self._begun(name, state, meta, at))

    def keep_beginning(
        self, name: SnapshotName, state: KeyedState, meta: Callable[[], bytes], at: LogOffset
    ) -> None:
        """The process goes on from this checkpoint, as `keep_state` has it, in an archive that may not have been on
        then."""
        if name.final:
            self._in_background(self._store_beginning, name, self._begun(name, state, meta, at))

    def _in_background(
        self,
        store: Callable[[SnapshotName, PendingSnapshot | None], None],
        name: SnapshotName,
        pending: PendingSnapshot | None,
    ) -> None:
        self._storing = threading.Thread(target=store, args=(name, pending), name="archive", daemon=True)
        self._storing.start()

    def _store_beginning(self, name: SnapshotName, pending: PendingSnapshot | None) -> None:
        if pending is None:
            return
        try:
            archive = self._opened(name.fence)
            states = archive.states(self._origin).manifests()
            has_recorded = archive.segments(self._origin).has_recorded
            # While an erasure is cut short none is stored: it would take it for one that it has stored itself.
            if archive.erasure() is None and has_nothing_of(name.epoch, states, has_recorded):
                self._states(name.fence).store(pending)
                return
        except ClonosError as error:
            self._not_kept(error)
        _abandon(pending)

    def _begun(
        self, name: SnapshotName, state: KeyedState, meta: Callable[[], bytes], at: LogOffset
    ) -> PendingSnapshot | None:
        number = next(self._begun_states)
        directory = os.path.join(self._pending, f"{Fence(name.fence).text}-{number}")
        sequence = MARKED_EVERY * at  # of those inside an epoch, too, all are kept
        try:
            with disk(f"making {self._pending}", corrupt=SnapshotCorrupt):
                if not number:
                    shutil.rmtree(self._pending, ignore_errors=True)  # an earlier process's
                os.makedirs(self._pending, exist_ok=True)
            stored_as = SnapshotName(name.epoch, name.fence, sequence, name.final)
            return begin_whole(state, stored_as, meta(), directory)
        except ClonosError as error:
            self._not_kept(error)
            return None

    def _store_state(self, name: SnapshotName, pending: PendingSnapshot | None) -> None:
        """None could not be begun; what is to be dropped goes also then."""

        def store() -> None:
            nonlocal pending
            if pending is not None:
                self._states(name.fence).store(pending)
                pending = None

        drop, compact = partial(self._free, name.fence), partial(self._compact, name)
        try:
            keep_state(drop=drop, write_segments=self.write_due, store=store, compact=compact)
        except ClonosError as error:
            self._not_kept(error)
        if pending is not None:
            _abandon(pending)

    def _states(self, fence: Fence) -> SnapshotStore:
        """Under the fence of the process. What the newest state has is not stored again."""
        with self._opening:
            if self._store is None:
                self._store = self._opened(fence).states(self._origin, fence=fence)
                self._store.keep_from(0)
                newest = max(self._store.manifests(), default=None, key=log_order)
                if newest is not None and (found := self._store.readable(newest)) is not None:
                    self._store.share(found)
            elif fence > self._store.fence:
                self._store.claim(fence)
            return self._store

    def _compact(self, name: SnapshotName) -> None:
        """All epochs before that of a checkpoint are over."""
        if name.epoch > FIRST_EPOCH:
            files = self._opened(name.fence).segments(self._origin)
            files.compact(Epoch(name.epoch - 1), name.fence)

    def _free(self, fence: Fence) -> None:
        """Drop what is too old or too much, and not needed by what is kept. Raises StorageUnavailable or Fenced."""
        with self._freeing:
            files = self._files(fence)
            files.segments.drop_leftovers()
            stored = files.segments.stored()
            now = self._clock.reads(*_clocks(), (each.written_at for each in stored))
            # Nothing was written before 1970.
            horizon = 0 if now is None else now - int(self._keep * 1_000_000)
            drop_unwanted(files, stored, horizon, self._most)

    def _files(self, fence: Fence) -> _Files:
        archive = self._opened(fence)
        claimed = partial(self._states, fence)
        return _Files(archive.segments(self._origin), archive.states(self._origin), claimed)

    def _not_kept(self, error: ClonosError) -> None:
        log("archive_state", f"a state for the archive could not be stored; the next one will do: {error}")


class _Files(ArchivedFiles):
    """Of an instance. `claimed` gives its states to the process alone, which is asked for when some are to go."""

    def __init__(
        self, segments: SegmentFiles, states: SnapshotStore, claimed: Callable[[], SnapshotStore]
    ) -> None:
        self.segments = segments
        self._states = states
        self._claimed = claimed

    def states(self) -> Collection[SnapshotName]:
        return self._states.manifests()

    def left_by(self, epoch: Epoch) -> Iterable[Fence]:
        return self.segments.left_by(epoch)

    def forget_states(self, before: Epoch) -> None:
        self._claimed().forget(before_epoch=before)

    def drop_segments(self, upto: Epoch) -> None:
        self.segments.drop_upto(upto)


def _abandon(pending: PendingSnapshot) -> None:
    """Its files take room."""
    shutil.rmtree(pending.directory, ignore_errors=True)


def _clocks() -> tuple[int, float]:
    """This host's, in microseconds since 1970, and the steady one, in seconds."""
    return time.time_ns() // 1000, time.monotonic()

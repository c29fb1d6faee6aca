"""What instances leave in the archive, simulated: a block is the channels, positions and contents of records."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from clonos.errors import Fenced
from clonos.protocol.archive.archive_segment import ArchiveSegment, RanOn
from clonos.protocol.archive.dropping import ArchivedFiles, drop_unwanted
from clonos.protocol.archive.segment_cutter import InputSpool, SegmentCutter
from clonos.protocol.archive.state_keeping import keep_state
from clonos.protocol.archive.state_schedule import StateSchedule
from clonos.protocol.engine.given_rows import GivenRows
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.engine.lineage_recorder import LineageRecorder
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.fence import Fence
from clonos.protocol.frontier import numbers_of
from clonos.protocol.ids import Epoch, LogOffset, Origin, RecordId, epoch_before
from clonos.protocol.line.snapshot_name import MARKED_EVERY, SnapshotName
from clonos.protocol.ports import Bundle, Row
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.sim.archive_storage import ArchiveStorage
from clonos.storage.segment_files import SegmentFiles

if TYPE_CHECKING:
    from clonos.sim.checkpoint import Snapshot
    from clonos.sim.replica import Replica
    from clonos.sim.world import World

_IN_SEGMENT: Final = 3
"""Blocks."""
_IN_FILE: Final = 4
"""Segments, at least, where several are put into one."""
_BETWEEN_STATES_S: Final = 0.02
_BETWEEN_STATES_RECORDS: Final = 30


class Spool(InputSpool):
    """In memory."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []

    def put(self, block: bytes) -> None:
        self._blocks.append(block)

    def take(self) -> list[list[bytes]]:
        blocks, self._blocks = self._blocks, []
        return [blocks[at : at + _IN_SEGMENT] for at in range(0, len(blocks), _IN_SEGMENT)] or [[]]

    def clear(self) -> None:
        self._blocks = []


class Archivist:
    """Of one instance in one process; nothing is left where it is not on. `size`: so many bytes are kept, beside
    states; where it is None, all is, and no state is stored."""

    def __init__(self, world: World, replica: Replica, *, is_on: bool, size: int | None) -> None:
        self._world = world
        self._replica = replica
        self._origin = replica.origin
        self._is_on = is_on
        self._size = size
        self.cutter = SegmentCutter(self._origin, "program", Spool(), lineage=is_on)
        self._due: list[ArchiveSegment] = []
        self._process = next(world.measured)
        self._schedule = StateSchedule(
            keep=0, between=_BETWEEN_STATES_S, between_records=_BETWEEN_STATES_RECORDS
        )

    def lineage_recorder(
        self, services: CausalServices, is_live: Callable[[], bool]
    ) -> LineageRecorder | None:
        """`is_live`: whether the step that ends ran for the first time."""
        if not self._is_on:
            return None
        return _Recorder(self._world, self._origin, services, self.cutter, is_live, self._process)

    def took(self) -> int | None:
        """How long a call took: of each another number, so that one which is measured again is another log."""
        return next(self._world.measured) if self._is_on else None

    def restored(self, log_offset: LogOffset, epoch: Epoch) -> None:
        self.cutter.restored(log_offset, epoch)

    def record(self, start: LogOffset, data: bytes) -> None:
        if self._is_on:
            self.cutter.record(start, data)

    def truncate(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        if self._is_on and self._origin in truncation_points:
            self.cutter.truncate(truncation_points[self._origin])

    def take(self, request: AttachRequest, records: Bundle) -> None:
        if self._is_on and records.rows:
            self.cutter.take(request.epoch, _block_of(records))

    def cut(self, request: AttachRequest, snapshot: Snapshot, own_from: LogOffset) -> None:
        """What is due before the snapshot is stored; a state, if one is due, is stored from now on."""
        if not self._is_on:
            return
        now, name = self._world.kernel.now, snapshot.name
        ran_on = RanOn("host", self._process, own_from)
        self._due += self.cutter.cut(
            request, snapshot.instance, written_at=now, is_end=name.final, ran_on=ran_on
        )
        self._world.checks.archived.takes_snapshot(self._origin, snapshot)
        records = sum(snapshot.reached.values())
        if self._size is None or not self._schedule.is_due(now / 1_000_000, records, is_end=name.final):
            return
        self._schedule.begun(now / 1_000_000, records)
        kept = replace(name, sequence=MARKED_EVERY * snapshot.instance.log_offset, resumed=False)
        content = pickle.loads(pickle.dumps(snapshot.instance))
        rng = self._world.choices.schedule
        later = rng.randint(0, rng.choice((300, 50_000)))
        self._world.kernel.after(later, self._replica.call, self._store_state, kept, content)

    def write_due(self) -> None:
        while self._due:
            self._segments().write(self._due[0])
            del self._due[0]

    # ---------------------------------------------------------------- states

    def _store_state(self, name: SnapshotName, content: InstanceSnapshot) -> None:
        segments = self._segments()

        def drop() -> None:
            segments.drop_leftovers()
            drop_unwanted(_Files(self, name.fence), segments.stored(), 0, self._size)

        def store() -> None:
            storage = self._storage()
            storage.claim(name.fence)
            self._dies("stores a state in the archive")
            storage.keep(name, content)

        compact = partial(segments.compact, epoch_before(name.epoch), name.fence, _IN_FILE)
        with suppress(Fenced):
            keep_state(drop=drop, write_segments=self.write_due, store=store, compact=compact)

    def _storage(self) -> ArchiveStorage:
        """As it is: it may have been put back."""
        return self._world.checkpoint.archive(self._origin)

    def _segments(self) -> SegmentFiles:
        return self._storage().segments(self._origin, partial(self._dies, "changes a file in the archive"))

    def _dies(self, label: str) -> None:
        """In the middle of it, perhaps; a request that is under way when its process has died arrives whole."""
        if self._size is not None and self._replica.alive:
            self._replica.point(label)


class _Files(ArchivedFiles):
    """What is in the archive of an instance; what goes is told to the checkers, before it does."""

    def __init__(self, of: Archivist, fence: Fence) -> None:
        self._of = of
        self._fence = fence

    def states(self) -> Collection[SnapshotName]:
        return self._of._storage().states

    def left_by(self, epoch: Epoch) -> Iterable[Fence]:
        return self._of._segments().left_by(epoch)

    def forget_states(self, before: Epoch) -> None:
        storage = self._of._storage()
        storage.claim(self._fence)
        self._of._dies("forgets states in the archive")
        self._tells(before)
        storage.forget(before)

    def drop_segments(self, upto: Epoch) -> None:
        self._tells(upto)
        self._of._segments().drop_upto(upto)

    def _tells(self, behind: Epoch) -> None:
        assert self._of._size is not None
        stored = self._of._segments().stored()
        self._of._world.checks.archived.drops(self._of._origin, behind, stored, self._of._size)


class _Recorder(LineageRecorder):
    """Tells the checkers which records the steps run."""

    def __init__(
        self,
        world: World,
        origin: Origin,
        services: CausalServices,
        cutter: SegmentCutter,
        is_live: Callable[[], bool],
        process: int,
    ) -> None:
        self._services = services
        self._ran: list[RecordId] = []  # by the step that is under way

        def tell(stop: LogOffset, entry: bytes) -> None:
            world.checks.archived.step_ends(origin, stop, tuple(self._ran))
            if is_live():
                world.checks.archived.ran_live(origin, stop, process)
            self._ran.clear()
            cutter.note_lineage(stop, entry)

        services.given_rows = GivenRows()
        super().__init__(services.given_rows, tell)

    def gave_for_records(self, records: int, rows: int, *, one_by_one: bool) -> None:
        for at in range(records):
            where = self._services.where(at)
            assert where.channel is not None and where.position is not None
            self._ran.append(RecordId(where.channel, where.position))
        super().gave_for_records(records, rows, one_by_one=one_by_one)


def _block_of(records: Bundle) -> bytes:
    channels, positions = numbers_of(records.channels), numbers_of(records.positions)
    return pickle.dumps(list(zip(channels, positions, map(content_of, records.rows), strict=True)))


def content_of(row: Row) -> int:
    """A digest of what a function is given of a row."""
    return zlib.crc32(repr((*row[:2], *row[2])).encode())


def archived_records(blocks: tuple[bytes, ...]) -> Iterator[tuple[int, int, int]]:
    """Their channels, positions and contents."""
    for block in blocks:
        yield from pickle.loads(block)

"""What instances leave in the archive, simulated: a block is the channels and positions of records."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from clonos.protocol.archive.archive_segment import ArchiveSegment, RanOn
from clonos.protocol.archive.segment_cutter import InputSpool, SegmentCutter
from clonos.protocol.engine.given_rows import GivenRows
from clonos.protocol.engine.lineage_recorder import LineageRecorder
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.frontier import numbers_of
from clonos.protocol.ids import LogOffset, Origin, RecordId
from clonos.protocol.ports import Bundle
from clonos.protocol.roles.attach_request import AttachRequest

if TYPE_CHECKING:
    from clonos.sim.checkpoint import Snapshot
    from clonos.sim.world import World

_IN_SEGMENT = 3
"""Blocks."""


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
    """Of one instance in one process; nothing is left where it is not on."""

    def __init__(self, world: World, origin: Origin, *, is_on: bool) -> None:
        self._world = world
        self._origin = origin
        self._is_on = is_on
        self.cutter = SegmentCutter(origin, "program", Spool(), lineage=is_on)
        self._due: list[ArchiveSegment] = []
        self._process = next(world.measured)

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

    def restored(self, log_offset: LogOffset) -> None:
        self.cutter.restored(log_offset)

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
        """What is due before the snapshot is stored."""
        if self._is_on:
            now, is_end = self._world.kernel.now, snapshot.name.final
            ran_on = RanOn("host", self._process, own_from)
            self._due += self.cutter.cut(
                request, snapshot.instance, written_at=now, is_end=is_end, ran_on=ran_on
            )
            self._world.checks.archived.takes_snapshot(self._origin, snapshot)

    def write_due(self) -> None:
        due, self._due = self._due, []
        self._world.checkpoint.archive.setdefault(self._origin, []).extend(due)


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
    return pickle.dumps(list(zip(numbers_of(records.channels), numbers_of(records.positions), strict=True)))


def identities(blocks: tuple[bytes, ...]) -> Iterator[tuple[int, int]]:
    for block in blocks:
        yield from pickle.loads(block)

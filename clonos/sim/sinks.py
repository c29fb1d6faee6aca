"""The outside: sinks of each kind. Mirrors `clonos.sinks`.

A sink makes rows visible only together with their determinants and the new cursors. How that is made atomic differs:

- *transactional table*: one transaction, which checks the fence; it may be under way when its sender dies.
- *write-ahead file*: one record into the sink's own log, from which the visible file is finished, if need be by the
  next writer that opens it. The fence is held while the file is touched.
- *idempotent call*: determinants and intent into the log, then the call, then the cursors. A call can arrive again, and
  late, also from a predecessor; it carries the same ids with the same content.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clonos.errors import ClonosError, SinkError, SinkUnavailable
from clonos.protocol.engine.instance import Row
from clonos.protocol.engine.output_commit import Write
from clonos.protocol.fence import LOWEST_FENCE, NO_FENCE, Fence
from clonos.protocol.ids import Epoch, NodeId, Origin
from clonos.protocol.line.kept_commit import KeptCommit, supersedes
from clonos.protocol.line.sink_trim import Entry, Page, next_number, numbers
from clonos.protocol.roles.sink_fence import Holder, check_driver, check_holding, check_taking
from clonos.sim.kernel import Steps
from clonos.sim.partitions import Place
from clonos.sim.plan import Fault, SinkKind

if TYPE_CHECKING:
    from clonos.sim.replica import Replica
    from clonos.sim.world import World


@dataclass(eq=False)
class Request:
    """Something sent to the outside, and its answer."""

    done: bool = False
    error: ClonosError | None = None


@dataclass
class KeptDelta:
    """One delta in a sink's log."""

    raw: bytes
    number: int
    damaged: bool = False

    @property
    def entry(self) -> Entry:
        return Entry(self.number, zlib.crc32(self.raw))


@dataclass
class SinkCommits:
    """The commit record that sinks in one place share, as the outside keeps it. See
    `clonos.protocol.line.kept_commit`."""

    floor: Fence = NO_FENCE
    kept: KeptCommit | None = None

    def raise_fence(self, fence: Fence) -> None:
        self.floor = max(self.floor, fence)

    def record_commit(self, fence: Fence, epoch: Epoch, record: bytes) -> None:
        offered = KeptCommit(fence, epoch, record)
        if supersedes(offered, self.kept, floor=self.floor):
            self.kept = offered

    def last_commit(self) -> tuple[Epoch, bytes] | None:
        return None if self.kept is None else (self.kept.epoch, self.kept.record)


@dataclass
class SinkPlace:
    """One sink instance as the outside keeps it."""

    world: World
    origin: Origin
    holder: Holder = field(default_factory=Holder)
    floor: Fence = LOWEST_FENCE
    cursors: dict[int, int] = field(default_factory=dict)
    log: list[KeptDelta] = field(default_factory=list)
    version: int = 0  # counts truncations of the log
    next_number: int = 1
    removed_upto: int = 0
    ids: dict[str, str] = field(default_factory=dict)  # what is visible: id and text

    # ------------------------------------------------------------ the writer

    def open(self, replica: Replica, fence: Fence) -> Steps:
        """Take the fence and say what is visible."""
        yield self.world.choices.schedule.randint(20, 300)
        mine = Holder(fence, replica.name)
        check_taking(mine, self.holder, floor=self.floor, origin=self.origin)
        self.holder = mine
        self.next_number = next_number(max((kept.number for kept in self.log), default=0), self.removed_upto)
        self.world.checks.sink_fenced(self.origin, fence)
        yield from self.recover(replica)
        return dict(self.cursors)

    def recover(self, replica: Replica) -> Steps:
        """Finish what was promised."""
        yield 0

    def write(self, replica: Replica, fence: Fence, write: Write) -> Steps:
        raise NotImplementedError

    def raise_fence(self, fence: Fence) -> None:
        self.floor = max(self.floor, fence)
        self.holder = self.holder.raised_to(fence)
        self.world.sink_commits[self.origin.node].raise_fence(fence)
        self.world.checks.sink_fenced(self.origin, fence)

    def page(self, keep: Callable[[bytes], bool]) -> Page:
        """The intact entries that `keep` does not want. A damaged entry stays as evidence."""
        return Page.of(kept.entry for kept in self.log if not kept.damaged and not keep(kept.raw))

    def remove(self, fence: Fence, page: Page) -> None:
        """May be repeated, and come late."""
        check_driver(fence, floor=self.floor)
        self.world.checks.fencing.drops(self.origin, fence)
        self.version += 1
        self.removed_upto = page.removed_upto(self.removed_upto)
        self.log = [kept for kept in self.log if not page.removes(kept.entry)]

    # ------------------------------------------------------------- internals

    def _check_fence(self, mine: Holder) -> None:
        check_holding(mine, self.holder, origin=self.origin, kept_in="the store")

    def _already(self, cursors: Mapping[int, int]) -> bool:
        """Whether a bundle that is tried again did take effect."""
        return bool(cursors) and all(self.cursors.get(channel, -1) >= at for channel, at in cursors.items())

    def _keep_log(self, write: Write) -> None:
        given = numbers(self.next_number, len(write.deltas))
        self.log += [KeptDelta(raw, number) for raw, number in zip(write.deltas, given, strict=True)]
        self.next_number = given.stop

    def _show(self, identity: str, row: Row, fence: Fence) -> None:
        self.world.checks.shows(self, identity, row, fence)
        self.ids[identity] = repr(row[:3])

    def _request(self, replica: Replica, act: Callable[[], None]) -> Steps:
        """Send; wait for the answer. What is under way takes effect although its sender dies."""
        rng, faults, ways = self.world.choices.schedule, self.world.faults, self.world.ways
        here = replica.server.at
        request = Request()
        if faults.strikes(Fault.SINK_BEFORE, str(self.origin)) or ways.breaks(here, Place.SINKS):
            yield rng.randint(50, 500)
            raise SinkUnavailable(f"sink {self.origin} cannot be reached")
        loses_answer = faults.strikes(Fault.SINK_AFTER, str(self.origin)) or ways.breaks(Place.SINKS, here)
        delay = rng.randint(20, 400) + self.world.held(here, Place.SINKS)
        if faults.strikes(Fault.SINK_LATE, str(self.origin)):
            delay += rng.randint(1_000, 100_000)

        def land() -> None:
            try:
                act()
            except ClonosError as error:
                request.error = error
            self.world.kernel.after(self.world.held(Place.SINKS, here), answer)

        def answer() -> None:
            request.done = True
            replica.wake()

        self.world.kernel.after(delay, land)
        while not request.done:
            yield None
        if loses_answer and request.error is None:
            raise SinkUnavailable(f"sink {self.origin} did not answer")
        if request.error is not None:
            raise request.error


class TransactionalTable(SinkPlace):
    """Rows, determinants and cursors in one transaction."""

    def recover(self, replica: Replica) -> Steps:
        while not self.world.ways.answers(replica.server.at, Place.SINKS):
            yield 1_000

    def write(self, replica: Replica, fence: Fence, write: Write) -> Steps:
        yield from self._request(replica, lambda: self._commit(Holder(fence, replica.name), write))

    def _commit(self, mine: Holder, write: Write) -> None:
        self._check_fence(mine)
        if self._already(write.cursors):
            return
        self._keep_log(write)
        for identity, row in zip(write.ids, write.rows, strict=True):
            if identity in self.ids:
                raise SinkError(f"output {identity} would become visible twice")
            self._show(identity, row, mine.fence)
        self.cursors.update(write.cursors)


@dataclass
class AheadFile(SinkPlace):
    """A log record with everything, then the visible file."""

    promised: list[tuple[str, Row, int]] = field(default_factory=list)

    def recover(self, replica: Replica) -> Steps:
        yield from self._finish(replica)

    def write(self, replica: Replica, fence: Fence, write: Write) -> Steps:
        self._check_fence(Holder(fence, replica.name))
        if self.world.faults.strikes(Fault.SINK_BEFORE, str(self.origin)):
            raise SinkUnavailable(f"no space is left for the log of sink {self.origin}")
        if not self._already(write.cursors) or not write.cursors:
            self._keep_log(write)
            self.promised += [
                (identity, row, fence) for identity, row in zip(write.ids, write.rows, strict=True)
            ]
            self.cursors.update(write.cursors)
        yield from replica.pause("has written ahead")
        yield from self._finish(replica)

    def _finish(self, replica: Replica) -> Steps:
        while self.promised:
            self._check_fence(Holder(replica.fence, replica.name))
            identity, row, _ = self.promised[0]
            if identity in self.ids:
                raise SinkError(f"output {identity} would become visible twice")
            self._show(identity, row, replica.fence)
            self.promised.pop(0)
            yield from replica.pause("has written a line")


class IdempotentCall(SinkPlace):
    """Intent, call, cursors. The function ignores ids it has seen."""

    def write(self, replica: Replica, fence: Fence, write: Write) -> Steps:
        mine = Holder(fence, replica.name)
        self._check_fence(mine)
        self._keep_log(write)
        yield from replica.pause("has logged its intent")
        yield from self._request(replica, lambda: self._called(write, fence))
        self._check_fence(mine)
        self.cursors.update(write.cursors)

    def _called(self, write: Write, fence: Fence) -> None:
        for identity, row in zip(write.ids, write.rows, strict=True):
            if identity not in self.ids:
                self._show(identity, row, max(fence, self.holder.fence))
            else:
                self.world.checks.repeats(self, identity, row)


@dataclass(frozen=True)
class SinkStore:
    """All instances of one sink, as the driver sees them: for `protocol.roles.commit_records`."""

    world: World
    node: NodeId

    @property
    def _commits(self) -> SinkCommits:
        return self.world.sink_commits[self.node]

    def raise_fence(self, fence: Fence) -> Steps:
        for origin, place in self.world.sinks.items():
            if origin.node == self.node:
                yield self.world.choices.schedule.randint(10, 200)
                while not self.world.ways.answers(Place.DRIVER_HOST, Place.SINKS):
                    yield 1_000
                place.raise_fence(fence)

    def standing_fence(self) -> Fence:
        return max(self._commits.floor, LOWEST_FENCE)

    def record_commit(self, fence: Fence, epoch: Epoch, record: bytes) -> None:
        if self.world.faults.strikes(Fault.SINK_COMMIT, f"commit of epoch {epoch}, sink node {self.node}"):
            raise SinkUnavailable(f"sink node {self.node} does not take the commit of epoch {epoch}")
        self._commits.record_commit(fence, epoch, record)

    def last_commit(self) -> tuple[Epoch, bytes] | None:
        return self._commits.last_commit()


KINDS: dict[SinkKind, type[SinkPlace]] = {
    SinkKind.TRANSACTION: TransactionalTable,
    SinkKind.AHEAD: AheadFile,
    SinkKind.CALL: IdempotentCall,
}

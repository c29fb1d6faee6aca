"""The checkers: one file per invariant, apart from the code they check. `Checks` tells each of them what happens.

A checker looks at what was done (bytes in a store, a row on a channel, a file that is gone) and at the truth that the
simulator keeps beside the protocol; it never asks the protocol's own bookkeeping.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clonos.errors import ClonosError
from clonos.protocol.engine.instance import Emit, Row
from clonos.protocol.fence import Fence
from clonos.protocol.ids import LOG_BEGIN, NO_OUTPUT, LogOffset, Origin, OutputNumber, log_after
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.retrieval import Recovered
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.lease import HostLease
from clonos.sim.checkpoint import Snapshot, Snapshots
from clonos.sim.checks.archive import Archived
from clonos.sim.checks.dependency_vectors import DependencyVectors
from clonos.sim.checks.detection import Detection
from clonos.sim.checks.effects import Effects
from clonos.sim.checks.event_time import EventTime
from clonos.sim.checks.fencing import Fencing
from clonos.sim.checks.fifo import Fifo
from clonos.sim.checks.gaps import Gaps
from clonos.sim.checks.histories import Histories
from clonos.sim.checks.ingestion import Ingestion
from clonos.sim.checks.locality import Locality
from clonos.sim.checks.losses import Losses
from clonos.sim.checks.memory import Memory
from clonos.sim.checks.oracle import Oracle
from clonos.sim.checks.orphans import Orphans, directly
from clonos.sim.checks.outputs import Outputs
from clonos.sim.checks.prefix import Prefix
from clonos.sim.checks.replays import Replays
from clonos.sim.checks.rollbacks import Rollbacks
from clonos.sim.checks.truncation import Truncation
from clonos.sim.checks.truth import Truth
from clonos.sim.checks.violation import Violation
from clonos.sim.disk import LogStore
from clonos.sim.plan import Fault
from clonos.sim.records import Rows, Tag
from clonos.sim.row_history import RowHistory
from clonos.sim.trace import Shown

if TYPE_CHECKING:
    from clonos.sim.frames import OutputFrame
    from clonos.sim.operator_host import OperatorHost
    from clonos.sim.replica import Replica
    from clonos.sim.sinks import SinkPlace
    from clonos.sim.task import Task
    from clonos.sim.world import World


class Checks:
    """What happens in a run, told to whom it concerns."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.truth = Truth()
        self.truncation = Truncation(world)
        self.losses = Losses(world)
        self.effects = Effects(world)
        self.orphans = Orphans(world, self.truth, self.truncation, self.losses, self.effects)
        self.gaps = Gaps(world, self.truth, self.truncation, self.losses)
        self.replays = Replays(self.truth)
        self.outputs = Outputs(self.truth, world.plan.dataflow.topology)
        self.prefix = Prefix(self.truth, self.truncation)
        self.histories = Histories(self.truth)
        self.fifo = Fifo(world)
        self.fencing = Fencing()
        self.locality = Locality(world)
        self.memory = Memory(world.plan)
        self.detection = Detection(world)
        self.oracle = Oracle(world)
        self.rollbacks = Rollbacks(world)
        self.archived = Archived(world)
        self.ingestion = Ingestion(world.plan)
        self.event_time = EventTime(world)
        self.vectors = DependencyVectors(world)

    # ---------------------------------------------------------- an operator

    def restores(
        self, host: OperatorHost, hello: AttachRequest, found: Snapshot | None, recovered: Recovered
    ) -> None:
        if not self._world.recoveries.repeats(host.origin.node):
            self._goes_back(host, hello, found)
            return
        start = found.instance.log_offset if found else LOG_BEGIN
        if hello.standby:  # beyond what the conduit knows it may have been told of what never happened
            known = max(hello.log_start + len(hello.log) - start, 0)
            self.prefix.recovered(host.origin, start, Recovered([], recovered.recorded[:known]))
            self.histories.begins(host, start, recovered.recorded)
            return
        if self._is_overtaken(host):
            self.histories.begins(host, start, recovered.recorded)
            return
        self.fencing.begins(host.origin, host.replica)
        if found is not None and found.name.epoch == hello.epoch:
            self.fencing.starts_from(host.origin, hello.fence, found.name.fence)
        here = self._world.servers.index(host.replica.server)
        self.locality.restores(host, hello, moved=self._world.homes.get(host.origin, 0) != here)
        if self._world.plan.standbys or self._world.plan.may(Fault.OLD_DISK):
            emitted = found.instance.emitted if found else NO_OUTPUT
            self._another_history(host, hello, start, emitted, recovered.recorded)
        self.histories.begins(host, start, recovered.recorded)
        self.prefix.recovered(host.origin, start, recovered)
        self._goes_live(
            host, hello, start, found.instance.emitted if found else NO_OUTPUT, recovered.recorded
        )

    def _goes_back(self, host: OperatorHost, hello: AttachRequest, found: Snapshot | None) -> None:
        """With all others, to a line: what it did behind that never happened, and nothing of it is repeated."""
        self.fencing.begins(host.origin, host.replica)
        if hello.fresh:
            self.rollbacks.begins(host.origin)
        if self._world.recoveries.some_repeat:
            self.orphans.restores(host, hello, found.instance.log_offset if found is not None else LOG_BEGIN)
        self.truth.go_back(host.origin, found.rows if found is not None else RowHistory())
        self.event_time.goes_back(host.origin, found)
        self.vectors.begins(host, found, hello.epoch)

    def line_drawn(self, line: RecoveryLine) -> None:
        if self._world.recoveries.some_repeat:
            self.orphans.line_drawn(line)
        if not self._world.recoveries.all_repeat:
            self.rollbacks.line_drawn(line)

    def goes_on(self, host: OperatorHost, hello: AttachRequest) -> None:
        """It begins an epoch as it stands in memory; an attempt elsewhere may have run some of it before."""
        live = host.live
        self.vectors.begins(host, None, hello.epoch)
        self._goes_live(host, hello, live.log_offset, live.snapshot().emitted, live.recorded)

    def _goes_live(
        self,
        host: OperatorHost,
        hello: AttachRequest,
        start: LogOffset,
        emitted: OutputNumber,
        recorded: bytes,
    ) -> None:
        """Behind `recorded`, which begins at `start`, where rows up to `emitted` had left: more never happened."""
        upto = log_after(start, recorded)
        self.orphans.restores(host, hello, upto)
        if self.truth.cut(host.origin, upto):
            self.outputs.shortened(host.origin, emitted, recorded)

    def _another_history(
        self,
        host: OperatorHost,
        hello: AttachRequest,
        start: LogOffset,
        emitted: OutputNumber,
        recorded: bytes,
    ) -> None:
        """Where the store of the last incarnation is gone, a recovery may believe the log of an incarnation that was
        overtaken, or of an old copy of the disk, beyond what downstream instances and sinks have received of the log:
        then what the last incarnation did there never happened."""
        parted = self.prefix.parts(host.origin, start, recorded)
        if parted is None:
            return
        self.histories.believed(host, start, recorded)
        self.orphans.parts(host, hello, parted)
        self.truth.cut(host.origin, parted)
        self.outputs.shortened(host.origin, emitted, recorded, start, parted)
        self.truth.extend(host.origin, start, recorded)

    def _is_overtaken(self, host: OperatorHost) -> bool:
        """Whether its standby, on another host, is the replica now, so that nothing it still does is believed."""
        return bool(self._world.plan.standbys) and self.fencing.has_acted_since(host.origin, host.hello.fence)

    def consumed(self, host: OperatorHost, tag: Tag) -> None:
        self.fifo.consumed(host.origin, host.consumed, tag)
        self.vectors.consumed(host, tag)
        if tag.depends:
            depends = host.depends
            for origin, offset in tag.depends.items():
                if offset > depends.get(origin, 0):
                    depends[origin] = offset
            for sender, offset in directly(tag).items():
                host.depends_directly[sender] = max(offset, host.depends_directly.get(sender, LOG_BEGIN))

    def promoted(self, host: OperatorHost, hello: AttachRequest, recorded: bytes) -> None:
        """A standby goes on from what the conduit knew of the log, and what else it has of it."""
        start = host.live.log_offset
        self.acts(host.origin, hello.fence, "is promoted")
        self.fencing.begins(host.origin, host.replica)
        emitted = host.live.snapshot().emitted
        self._another_history(host, hello, start, emitted, recorded)
        self._goes_live(host, hello, start, emitted, recorded)

    def writes(self, host: OperatorHost, own: Segment | None) -> None:
        """What it is about to save; it may die in the middle."""
        if own is not None:
            self.histories.writes(host, *own)

    def saves(self, host: OperatorHost, own: Segment | None) -> None:
        """What an overtaken replica on another host still writes into its own store is not believed."""
        if host.hello.standby or self._is_overtaken(host):
            return
        self.acts(host.origin, host.hello.fence, "writes its log")
        if own is not None:
            self.truth.extend(host.origin, *own)

    def emits(self, host: OperatorHost, emit: Emit) -> list[list[Tag]]:
        """By reader and row."""
        if self._is_overtaken(host):  # the conduit does not read from this process any more
            tags = [Tag(host.origin.channel, emit.first + at, -1, {}, {}) for at in range(emit.count)]
            return [tags for _ in emit.destinations]
        if emit.log:
            self.truth.extend(host.origin, emit.log_start, emit.log)
        host.depends[host.origin] = log_after(emit.log_start, emit.log)
        if not emit.count:
            return []
        assert isinstance(emit.payload, Rows)
        self.event_time.emits(host.origin, emit.payload)
        self.orphans.emits(host, host.depends)
        return self.outputs.emits(host.origin, emit, dict(host.depends), self.vectors.emits(host, emit))

    def may_act(self, host: OperatorHost, store: LogStore) -> None:
        """It is about to act on the outside."""
        self.orphans.acts(host, store)

    def acted(self, host: OperatorHost, key: str, record: int, draw: int) -> None:
        self.effects.done(host.server_at, host.origin.node, key, record, draw)

    def snapshots(self, host: OperatorHost, snapshot: Snapshot) -> None:
        if self._is_overtaken(host):
            return
        if not self._world.recoveries.repeats(host.origin.node):
            snapshot.rows = self.truth.row_history(host.origin)
            self.event_time.takes_snapshot(host.origin, snapshot)
            self.vectors.takes_snapshot(host, snapshot)
            self.rollbacks.takes_snapshot(host.origin, snapshot)
            if self._world.recoveries.some_repeat:
                self.orphans.takes_checkpoint(host, snapshot)
            return
        self.replays.snapshot(host, snapshot)

    def replica_failed(self, replica: Replica, error: ClonosError) -> None:
        self.detection.failed(replica.name, error)
        self.gaps.failed(replica, error)

    def replica_died(self, replica: Replica) -> None:
        self.fencing.ends(replica)

    # ----------------------------------------------------------- a conduit

    def told(self, task: Task, log_start: LogOffset, log: bytes) -> None:
        if log:
            self.orphans.told(task, log_after(log_start, log))

    def passed_on(self, task: Task, frame: OutputFrame) -> None:
        self.outputs.passed_on(task, frame)
        self.rollbacks.passed_on(task, frame)

    def forgets(self, task: Task, seq: int) -> None:
        """Where no process is replaced, nothing that a conduit keeps is ever sent again."""
        if self._world.recoveries.by_node[task.origin.node].replaces:
            self.truncation.conduit_forgets(task, seq)

    def fails(self, task: Task, error: str, message: str) -> None:
        self.locality.fails(task, error, message)

    def bounded(self, task: Task) -> None:
        self.memory.conduit(task)

    # -------------------------------------------------------------- a sink

    def shows(self, place: SinkPlace, identity: str, row: Row, fence: Fence) -> None:
        tag: Tag = row[3]
        self.fencing.shows(place.origin, fence)
        self.outputs.shows(place.origin, identity, row)
        self.fifo.shows(place.origin, tag)
        if self._world.recoveries.some_repeat:
            self.orphans.shows(place, tag)
        if not self._world.recoveries.all_repeat:
            self.rollbacks.shows(place.origin, tag)
        self.oracle.shows(place.origin, row)
        self._world.trace(f"sink {place.origin}", f"shows {identity}: record {row[1]}", Shown(place.origin))

    def repeats(self, place: SinkPlace, identity: str, row: Row) -> None:
        self.outputs.repeats(place.origin, identity, row)

    def sink_fenced(self, origin: Origin, fence: Fence) -> None:
        self.fencing.sink_raised(origin, fence)

    # -------------------------------------------------- fences and forgetting

    def fence_raised(self, server: str, origin: Origin, fence: Fence) -> None:
        self.fencing.raised(server, origin, fence)

    def acts(self, origin: Origin, fence: Fence, what: str) -> None:
        self.fencing.acts(origin, fence, what)

    @contextmanager
    def truncates(self, store: LogStore) -> Iterator[None]:
        before = self.truncation.store(store)
        yield
        self.truncation.store_truncated(store, before)

    @contextmanager
    def truncates_sink(self, place: SinkPlace) -> Iterator[None]:
        before = self.truncation.sink(place)
        yield
        self.truncation.sink_truncated(place, before)

    @contextmanager
    def forgets_snapshots(self, snapshots: Snapshots) -> Iterator[None]:
        before = set(snapshots.kept)
        yield
        self.truncation.snapshots_forgotten(snapshots, before)

    def given_up(self, lease: HostLease) -> None:
        """The driver goes on without the server that it has under this lease."""
        hosting = self._world.hosting
        if lease is hosting.lease and hosting.server.alive:
            raise Violation("I6", "the driver takes the second server for gone, and it serves")

    # ------------------------------------------------------------- the whole

    def victim(self, origin: Origin | None) -> None:
        """A fault has struck this instance's replica; None: more than one instance."""
        self.locality.struck(origin)

    def everything_is_out(self) -> bool:
        return self.oracle.shown == self.oracle.due

    def at_the_end(self) -> None:
        is_complete = self._world.outcome == "exact"
        self.oracle.at_the_end(complete=is_complete)
        if is_complete and self._world.plan.archives:
            self.archived.at_the_end()

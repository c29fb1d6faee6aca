"""The surroundings of an operator's instance inside a replica: its function, log store, snapshots and conduit, all
simulated. What is done with them, and in which order, is `protocol.roles.operator_session`'s matter."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from clonos.errors import ClonosError, Fenced, LogCorrupt, RecoveryTimeout, StorageUnavailable, Where
from clonos.protocol.destination import NOWHERE, KeyKind, Reader, Router, Routing, route_by_key, route_to
from clonos.protocol.engine.instance import Emit, Instance, InstanceConfig, InstanceSnapshot, Row
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.fence import Fence, Generation
from clonos.protocol.frontier import numbers_of
from clonos.protocol.ids import (
    LOG_BEGIN,
    NO_EPOCH,
    NO_OUTPUT,
    Epoch,
    LogOffset,
    Origin,
    OutputNumber,
    log_after,
    output_after,
)
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.line.recovery_line import RecoveryLine, Resume
from clonos.protocol.line.snapshot_name import Since, SnapshotName
from clonos.protocol.line.unrecorded_commit import UnrecordedCommit
from clonos.protocol.ports import Bundle, InstancePorts
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.longest_prefix import RecoveryState
from clonos.protocol.recovery.causal.own_log import Writer
from clonos.protocol.recovery.causal.retrieval import OpenedLog, Recovered
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.quarantine import CandidateRecord
from clonos.protocol.recovery.rollback.rounds import StoredRound
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.conduit_model import Checkpointed, Output, PassedOver
from clonos.protocol.roles.crash_marks import CrashMarks
from clonos.protocol.roles.death import Death
from clonos.protocol.roles.incarnation_ports import Reached
from clonos.protocol.roles.operator_ports import Moment, OperatorPorts, SnapshotStored
from clonos.protocol.roles.operator_session import OperatorSession
from clonos.protocol.roles.snapshot_candidate import Candidate
from clonos.protocol.roles.snapshot_schedule import SnapshotLimits
from clonos.protocol.topology import Node, NodeKind
from clonos.protocol.versions.programs import Programs
from clonos.sim import holders, values as real
from clonos.sim.archive import Archivist, content_of
from clonos.sim.checkpoint import Snapshot, Snapshots
from clonos.sim.disk import LogStore
from clonos.sim.event_time import event_inputs, watermark_of, watermark_of_output
from clonos.sim.fake_services import Outcomes, Timers
from clonos.sim.frames import OutputFrame
from clonos.sim.kept_deltas import KeptInState
from clonos.sim.kernel import Died, Steps
from clonos.sim.operator import Ledger, Outside, Uses, key_column, routing_key
from clonos.sim.partitions import Place
from clonos.sim.records import Mark, Record, RoundMark, Rows, Tag
from clonos.sim.sent_frames import SentFrames
from clonos.sim.trace import Restored

if TYPE_CHECKING:
    from clonos.sim.replica import Replica
    from clonos.sim.world import World


HOLDERS_WITHIN = 300
"""So often a process looks for what others may bring."""
ALWAYS_DUE = SnapshotLimits(work=0.0, interval=0.0)
"""A snapshot may be taken behind any bundle: which ones, the choices of the run say (`prepare_snapshot`)."""


class OperatorHost(OperatorPorts[Snapshot, Snapshot, OutputFrame]):
    """See the module."""

    def __init__(self, world: World, replica: Replica) -> None:
        self._node = world.plan.dataflow.topology.node(replica.origin.node)
        self._origin = replica.origin
        self._world = world
        self._replica = replica
        self._snapshots = world.checkpoint.snapshots(replica.origin)
        self._stored: SnapshotStored | None = None
        self._waited = 0
        self.state: Any = self._new_state()
        self._sent = SentFrames(lambda: self.session.acked_input)
        self._kept = KeptInState(world.plan.fold_from)
        is_on = world.plan.archives and self._repeats
        self.archivist = Archivist(world, replica, is_on=is_on, size=world.plan.archive_size)
        self.timers = Timers()
        self.event_timers = Timers()
        self.depends: dict[Origin, LogOffset] = {}  # for the checkers alone
        # By records of this incarnation, on their senders' logs
        self.depends_directly: dict[Origin, LogOffset] = {}
        self.checkpoints: dict[Origin, int] = {}  # as `checks.dependency_vectors` has it
        self.consumed: dict[int, int] = {}
        self.disks_restored = world.disks_restored()
        assert world.driver is not None
        marks = replica.server.disk.marks[replica.origin]
        choice = world.policy_choice(replica.origin)
        policy = choice.policy(replica.origin.instance)
        self._snapshots.appends = policy.kind.appends
        self.session: OperatorSession[Snapshot, Snapshot, OutputFrame] = OperatorSession(
            self._node.name,
            replica.origin,
            self,
            policy,
            may_have_moved=world.may_have_moved,
            crash_marks=CrashMarks(marks, start=world.driver.name, pid=replica.number),
            snapshot_limits=ALWAYS_DUE,
            others_keep_logs=choice.others_keep_logs,
        )

    @property
    def _repeats(self) -> bool:
        return self._world.recoveries.repeats(self._origin.node)

    # ----------------------------------------------------- what checkers look at

    @property
    def server_at(self) -> int:
        return self._replica.server.at

    @property
    def live(self) -> Instance:
        return self.session.live

    @property
    def hello(self) -> AttachRequest:
        return self.session.request

    @property
    def origin(self) -> Origin:
        return self._origin

    @property
    def store(self) -> LogStore:
        return self._store

    @property
    def replica(self) -> Replica:
        return self._replica

    # ---------------------------------------------------------------- quarantine

    @property
    def keeps_dead_letters(self) -> bool:
        return True

    def checksum(self, candidate: CandidateRecord) -> int:
        record: int = candidate.row[1]
        return record

    def write_dead_letter(self, candidate: CandidateRecord, where: Where, deaths: Sequence[Death]) -> None:
        self._replica.point("is about to write a letter")
        record, tag = candidate.row[1], candidate.row[3]
        self._world.poison.letter(self._origin, record, tag)
        self._world.trace(self._replica.name, f"passes over record {record}")
        self._replica.point("has written a letter")

    @property
    def in_hand(self) -> int | None:
        """The record that the instance has in hand while it is in quarantine."""
        candidate = self.session.quarantine.in_hand
        return candidate.row[1] if candidate is not None else None

    # ----------------------------------------------- for its beginning

    @property
    def snapshots(self) -> Snapshots:
        return self._snapshots

    def open_snapshots(self, request: AttachRequest) -> None:
        self._reach_storage()
        self._snapshots.open()
        self._world.faults.at_snapshots(self._snapshots)

    def _reach_storage(self) -> None:
        if not self._world.ways.answers(self._replica.server.at, Place.STORAGE):
            raise StorageUnavailable(
                "the checkpoint storage cannot be reached", where=self.session.incarnation.where
            )

    def claim(self, fence: Fence) -> None:
        self._reach_storage()
        self._snapshots.claim(fence)
        self._world.checks.acts(self._origin, fence, "claims its snapshots")

    def discard_from(self, epoch: Epoch) -> None:
        self._snapshots.discard_from(epoch, self.hello.fence)

    def line(self, generation: Generation) -> RecoveryLine:
        line = self._world.checkpoint.lines.get(generation)
        if line is None:
            raise StorageUnavailable(f"the line of start {generation} is not there")
        return line

    def commit_record(self) -> CommitRecord | None:
        raw = self._world.checkpoint.record
        return CommitRecord.from_bytes(raw, "the checkpoint") if raw is not None else None

    def unrecorded_commit(self) -> UnrecordedCommit | None:
        return self._world.checkpoint.unrecorded

    def await_commit(self) -> Steps:
        yield 1_000

    def candidate(self, found: Snapshot) -> Candidate:
        instance = found.instance
        return Candidate(
            found.name,
            instance.log_offset,
            instance.emitted,
            found.acked_input,
            instance.log,
            instance.received,
            instance.live_since,
        )

    def restore_state(self, found: Snapshot | None) -> InstanceSnapshot | None:
        if found is None:
            self.archivist.restored(LOG_BEGIN, NO_EPOCH)
            return None
        self.archivist.restored(found.instance.log_offset, found.instance.epoch)
        state, timers, event_timers, sent, kept = pickle.loads(found.content)
        self._sent = SentFrames(lambda: self.session.acked_input, sent)
        self._kept = KeptInState(self._world.plan.fold_from, kept)
        if self._world.plan.real_values:
            state = real.RealState(self._world.plan.state_cache, state)
        self.state, self.timers, self.event_timers = state, Timers(timers), Timers(event_timers)
        snapshot: InstanceSnapshot = pickle.loads(pickle.dumps(found.instance))
        snapshot.pending += [record for kept in snapshot.channel_state for record in pickle.loads(kept)]
        snapshot.channel_state = []
        return snapshot

    def resume(self, found: Snapshot, resume: Resume) -> Steps:
        if not found.name.begins(self.hello.fence):
            found = found.resumed_under(self.hello.fence, resume)
            yield from self.store_snapshot(found)
            yield from self.reached(Reached.BEGINNING)
        return found

    def open_log(self) -> OpenedLog:
        disk = self._replica.server.disk
        self._world.faults.at_store(disk.store(self._origin))
        self._store = disk.store(self._origin)
        try:
            opened = self._store.open()
        except LogCorrupt:
            damaged, self._store = self._store, disk.put_aside(self._origin)
            self._world.checks.truncation.salvaged(damaged, self._store)
            opened = self._store.open()
        if self._world.may_have_moved and self._store.incarnations is None:
            self._store.incarnations = ()
        return opened

    def log_is_whole(self, since: LogOffset) -> None:
        self._store.is_whole(since)

    def rewrite_log(self, at: LogOffset, pieces: Sequence[Segment], copied_by: Writer | None) -> None:
        self._store.rewrite_own(at, list(pieces), copied_by)

    @property
    def log_end(self) -> LogOffset:
        return self._store.end

    def begin_log(self, writer: Writer) -> None:
        self._store.begin(writer)

    def ask(self, origin: Origin, base: LogOffset) -> Steps:
        return holders.ask(self._world, self._replica, origin, where=self.session.incarnation.where)

    def await_holder(self, origin: Origin) -> Steps:
        self._waited += 1
        if self._waited > HOLDERS_WITHIN:
            raise RecoveryTimeout(f"nothing brings the log of {origin}", where=self.session.incarnation.where)
        yield 1_000

    @property
    def kept_deltas(self) -> KeptInState:
        return self._kept

    @property
    def effects_are_used(self) -> bool:
        return self._world.checkpoint.effects

    def reached(self, how_far: Reached) -> Steps:
        if how_far is not Reached.FUNCTION:
            yield from self._replica.pause(how_far.value)

    def restored(self, found: Snapshot | None, recovered: Recovered) -> None:
        if found is not None:
            self.depends, self.consumed = dict(found.depends), dict(found.reached)
        self._world.checks.restores(self, self.hello, found, recovered)
        start = found.instance.log_offset if found else 0
        self._world.trace(
            self._replica.name,
            f"restores {'the end of epoch' if found and found.name.final else 'inside epoch'} "
            f"{found.name.epoch}, repeats log {start}..{start + len(recovered.recorded)}"
            if found
            else f"begins from nothing, repeats log 0..{len(recovered.recorded)}",
            Restored(self._origin),
        )

    def goes_on(self) -> None:
        self._world.checks.goes_on(self, self.hello)

    def promoted(self, known: LogOffset) -> None:
        self._world.checks.promoted(self, self.hello, self.live.recorded)
        self._world.trace(self._replica.name, f"is the replica from log offset {known} on")

    def let_go(self) -> None:
        self.state, self.timers, self.event_timers = self._new_state(), Timers(), Timers()
        self.depends, self.consumed = {}, {}

    def make_instance(self, ports: InstancePorts) -> Instance:
        plan, node = self._world.plan, self._node
        choice = self._world.policy_choice(self._origin)
        services = CausalServices(
            state=self.state,
            timers=self.timers,
            event_timers=self.event_timers,
            random=random.Random(),
            outcomes=Outcomes(self.archivist.took),
        )
        outside = Outside(
            self._ask,
            self._act,
            self._consumes,
            lambda record: record in self._world.poison.records,
            self._die,
            lambda: self._world.choices.nature.getrandbits(30),
            self._world.choices.nature.randrange,
        )
        impure = plan.impure and node is self._world.impure
        uses = Uses(
            plan.calls,
            plan.effects and self._repeats,
            plan.timers,
            plan.event_time,
            impure,
            plan.lateness,
            plan.per_epoch,
            plan.dataflow.ways_to(node.number),
            bool(self._node.side_outputs),
            plan.calls_at_once,
        )
        operator = self._programs(outside, uses)
        operator.open(services)
        config = InstanceConfig(
            name=node.name,
            origin=self._origin,
            routing=self._routing(),
            keys_of=real.keys_of if plan.real_values else self._keys_of,
            depth=choice.sharing_depth(plan.depth),
            fold_from=plan.fold_from,
            per_epoch=operator.per_epoch,
            event_inputs=event_inputs(plan, node),
            watermark_of=watermark_of if plan.event_time else None,
            programs=operator,
            recording=self._repeats,
            marks_checkpoints=choice.marks_checkpoints,
        )
        lineage = self.archivist.lineage_recorder(services, lambda: self.live.state is RecoveryState.LIVE)
        return Instance(config, operator, services, ports, lineage)

    def _programs(self, outside: Outside, uses: Uses) -> Programs:
        node, deployment = self._node, self._world.deployment
        kind = partial(real.RealLedger, kind=self._kind) if self._world.plan.real_values else Ledger
        run = deployment.program.node(node.number)
        make = {
            version: partial(
                kind,
                node.number,
                self._target.number,
                outside,
                uses,
                version,
                migrates=run.brings_up_to_date(version),
            )
            for version in (run.version, *run.previous)
        }
        return Programs(node.name, deployment.history.schedule(node.number), run.version, make)

    def _keys_of(self, rows: list[Row]) -> list[Row]:
        """A stream that feeds several nodes has the key of the first one in its rows."""
        return [(routing_key(self._node.number, row[1]),) for row in rows]

    def _routing(self) -> Routing:
        readers = self._world.plan.dataflow.topology.downstream(self._node.number)
        return Routing(
            [
                Reader(
                    self._router(reader),
                    reader.parallelism,
                    reader.output_read(self._node.number),
                    has_event_time=self._world.plan.event_time and reader.kind is NodeKind.OPERATOR,
                    watermark_of=watermark_of_output if self._world.plan.seed % 2 else None,
                    waits=0 if self._world.plan.seed % 4 == 3 else None,
                )
                for reader in readers
            ],
            has_side_outputs=bool(self._node.side_outputs),
        )

    def _router(self, reader: Node) -> Router:
        if reader.kind is NodeKind.SINK:
            return route_to(self._origin.instance % reader.parallelism)
        if self._world.plan.real_values:
            return real.router(self._kind, reader.parallelism)
        zone = self._world.deployment.zone
        by_key = route_by_key([key_column(reader.number)], reader.parallelism, zone=zone)
        if reader is self._target:
            return by_key
        return lambda rows: by_key([(routing_key(reader.number, row[1]),) for row in rows])

    @property
    def _target(self) -> Node:
        return self._world.plan.dataflow.topology.downstream(self._node.number)[0]

    @property
    def _kind(self) -> KeyKind:
        return real.key_kind(self._world.plan.seed, self._target.number)

    def _new_state(self) -> Any:
        plan = self._world.plan
        return real.RealState(plan.state_cache) if plan.real_values else {}

    def contents(self) -> dict[Any, Any]:
        """What a snapshot holds of the state."""
        if self._world.plan.real_values:
            self.state.flush()
            return dict(self.state.memory.data)
        return dict(self.state)

    # ------------------------------------------------------------------- conduit

    def at(self, moment: Moment) -> Steps:
        if moment is not Moment.BUNDLE_TAKEN:
            yield from self._replica.pause(moment.value)

    def repeats(self, emit: Emit) -> None:
        self.depends[self._origin] = log_after(emit.log_start, emit.log)

    def frame(self, acked_input: int, emit: Emit, ingested: int | None) -> OutputFrame:
        ingested = self._world.kernel.now if ingested is None else ingested
        tags = self._world.checks.emits(self, emit)
        self._world.trace.emitted(
            self._replica.name, self._origin, emit.first, emit.destinations, len(emit.deltas)
        )
        records: list[tuple[int, Record]] = []
        if emit.count:
            assert isinstance(emit.payload, Rows)
            deltas = dict(emit.deltas)
            for column, of_reader in zip(emit.destinations, tags, strict=True):
                for index, row in enumerate(emit.payload.rows):
                    if column[index] == NOWHERE:
                        continue
                    delta = deltas.pop(column[index], None)
                    record = Record(emit.first + index, (*row, of_reader[index]), delta, ingested=ingested)
                    records.append((column[index], record))
        last = output_after(emit.first, emit.count - 1) if emit.count else NO_OUTPUT
        output = Output(
            acked_input,
            emit.emitted_output,
            emit.log_start,
            emit.log,
            len(records),
            emit.first if emit.count else NO_OUTPUT,
            last,
        )
        marks = tuple((to, Mark(reached)) for to, reached in emit.watermarks.items())
        return OutputFrame(output, tuple(records), marks)

    @property
    def sent_log(self) -> SentFrames:
        return self._sent

    def send(self, frames: Sequence[OutputFrame]) -> Steps:
        for frame in frames:
            yield from self._replica.pause("sends")
            self._replica.send(frame)

    def acknowledge(self, acked_input: int, emitted_output: OutputNumber, log_offset: LogOffset) -> None:
        self._replica.send(
            OutputFrame(Output(acked_input, emitted_output, log_offset, b"", 0, NO_OUTPUT, NO_OUTPUT), ())
        )

    def tell_passed_over(self) -> None:
        self._replica.send(PassedOver())

    def send_checkpointed(self, acked_input: int, log_offset: LogOffset) -> None:
        self._replica.send(Checkpointed(acked_input, log_offset))

    # ------------------------------------------------------- rounds of checkpoints

    def marker_frame(self, round: Round, emitted_output: OutputNumber) -> OutputFrame:
        readers = self._world.plan.dataflow.topology.downstream(self._node.number)
        marks = tuple((to, RoundMark(round)) for to in range(sum(reader.parallelism for reader in readers)))
        acked = self.session.acked_input
        output = Output(acked, emitted_output, self.live.log_offset, b"", 0, NO_OUTPUT, NO_OUTPUT)
        return OutputFrame(output, (), marks)

    def round_stored(self, stored: StoredRound) -> None:
        self._replica.round_stored(stored)

    # ----------------------------------------------------------------- snapshots

    def steady_clock(self) -> float:
        return self._world.kernel.now / 1e6

    def work(self) -> float:
        return 0.0

    def prepare_snapshot(self) -> bool:
        return self._world.choices.schedule.random() < self._world.plan.snapshot_rate

    def begin_snapshot(self, name: SnapshotName, content: InstanceSnapshot, *, covered: int) -> Snapshot:
        snapshot = Snapshot(
            name,
            pickle.loads(pickle.dumps(content)),
            pickle.dumps(
                (
                    self.contents(),
                    self.timers.entries,
                    self.event_timers.entries,
                    self._sent.kept,
                    self._kept.kept,
                )
            ),
            covered,
            dict(self.depends),
            dict(self.consumed),
        )
        self._world.checks.snapshots(self, snapshot)
        self.archivist.cut(self.hello, snapshot, self.session.incarnation.own_from)
        return snapshot

    def kept_records(self, records: Bundle) -> bytes:
        channels, positions = numbers_of(records.channels), numbers_of(records.positions)
        return pickle.dumps(list(zip(channels, positions, records.rows, strict=True)))

    def with_content(self, pending: Snapshot, content: InstanceSnapshot, *, covered: int) -> Snapshot:
        return replace(pending, instance=pickle.loads(pickle.dumps(content)), acked_input=covered)

    def abandon_snapshot(self, pending: Snapshot) -> None:
        """It was in memory alone."""

    def store_snapshot(self, pending: Snapshot) -> Steps:
        """Upload: claim, files, claim again, manifest. The last request may arrive when its sender is dead."""
        self.claim(self.hello.fence)
        self.archivist.write_due()
        yield self._world.choices.schedule.randint(50, 400)
        self.claim(self.hello.fence)
        self._world.checks.acts(self._origin, self.hello.fence, "writes a snapshot")
        self._snapshots.write(pending)

    def store_in_background(self, pending: Snapshot) -> None:
        """It begins with a look at who has claimed the instance."""
        if pending.name.fence < self._snapshots.claimed:
            self._stored = SnapshotStored(Fenced(f"the state of {self._origin} was taken over"))
            self._replica.hear(self._stored)
            return
        self._world.kernel.after(self._world.choices.schedule.randint(100, 3000), self._arrives, pending)

    def _arrives(self, snapshot: Snapshot) -> None:
        """The last request, at the storage. Its sender may be dead; then it may still be under way for a while."""
        rng, world = self._world.choices.schedule, self._world
        if self._replica.alive:
            self._replica.call(self._land, snapshot)
        elif rng.random() < 0.6:
            world.kernel.after(rng.randint(0, rng.choice((300, 50_000))), self._write, snapshot)

    def _write(self, snapshot: Snapshot) -> None:
        self.archivist.write_due()
        self._snapshots.write(snapshot)
        self._world.checks.rollbacks.stored(self._origin)

    def _land(self, snapshot: Snapshot) -> None:
        error: ClonosError | None = None
        try:
            self._reach_storage()
            self._snapshots.claim(snapshot.name.fence)
            self._world.checks.acts(self._origin, snapshot.name.fence, "writes a snapshot")
            self._write(snapshot)
        except ClonosError as problem:
            error = problem
        self._stored = SnapshotStored(error)
        self._replica.hear(self._stored)

    def tell_stored(self, stored: SnapshotStored) -> Steps:
        """Tell the session, unless it has awaited this itself."""
        if stored is self._stored:
            self._stored = None
            yield from self.session.hear_stored(stored)

    def await_stored(self) -> Steps:
        while self._stored is None:
            yield 50
        stored, self._stored = self._stored, None
        return stored

    def forget_snapshots(self, epoch: Epoch, since: Since | None) -> None:
        with self._world.checks.forgets_snapshots(self._snapshots):
            self._snapshots.forget(epoch, self.hello.fence, since)

    # ----------------------------------------------------------------- log store

    def keep_plan(self, epoch: Epoch) -> Steps:
        yield 10
        self._reach_storage()
        self._world.checkpoint.keep_offsets(epoch)

    def write_log(self, deltas: Sequence[bytes], own: Segment | None) -> None:
        self._replica.point("is about to write its log")
        self._world.checks.writes(self, own)
        if own is not None:
            self.archivist.record(*own)
        self._store.append(deltas, own)
        self._world.checks.saves(self, own)
        start, data = own or (LOG_BEGIN, b"")
        self._world.trace.saved(self._replica.name, self._origin, start, data, len(deltas))
        self._replica.point("has written its log")

    def sync_log(self) -> None:
        self._store.acts = True
        self._store.sync()

    def fold_log(self) -> None:
        if not self._store.full:
            self._store.fold()

    def truncate_log(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        with self._world.checks.truncates(self._store):
            self._store.truncate(truncation_points)
        self.archivist.truncate(truncation_points)

    # ------------------------------------------------------------------- effects

    def send_ahead(self, frames: Sequence[OutputFrame]) -> None:
        for frame in frames:
            self._replica.point("sends ahead of an effect")
            self._replica.send(frame)

    def keep_that_effects_are_used(self) -> None:
        self._reach_storage()
        self._world.checkpoint.effects = True

    def show_log(self, log_start: LogOffset, log: bytes) -> None:
        self._replica.flush_log(log_start, log)

    def check_claim(self) -> None:
        self._reach_storage()
        self._snapshots.check(self.hello.fence)
        now, delay = self._world.kernel.now, self._world.choices.schedule.randint(0, 200)
        self._replica.until(lambda: self._world.kernel.now >= now + delay)

    # ------------------------------------------------- the function's outside

    def clock(self) -> int:
        return self._world.clock(self._replica.server.at)

    def entropy(self) -> int:
        return self._world.choices.nature.getrandbits(64)

    def encode(self, rows: list[Row]) -> Rows:
        return real.SentRows(self._kind, rows) if self._world.plan.real_values else Rows(rows)

    def _ask(self) -> int:
        self._replica.point("asks the outside")
        return self._world.ask()

    def _act(self, key: str, record: int, draw: int) -> None:
        self._replica.point("is about to act on the outside")
        self._world.checks.may_act(self, self._store)
        self._world.checks.acted(self, key, record, draw)
        self._replica.point("has acted on the outside")

    def _consumes(self, row: Row, where: Where) -> None:
        self._world.checks.consumed(self, row[3])
        if self._world.plan.archives:
            self._world.checks.archived.consumes(self._origin, self.hello.fence, where, content_of(row))

    def _die(self, record: int, tag: Tag) -> None:
        self._world.checks.victim(self._origin)
        self._replica.signal = self._world.poison.signal(record)
        self._world.trace(self._replica.name, "is killed by a record")
        raise Died

"""An operator's instance inside a replica, as `clonos_standby.replica.operator_host` is one.

Drives `protocol.roles.incarnation` and `protocol.engine.instance`: bundles in, `Persist` to the log store and `Emit`
to the conduit out, in the order given; takes snapshots, between epochs in the background, at an epoch's end in the
foreground.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from clonos.errors import LogCorrupt, StorageUnavailable
from clonos.protocol.destination import KeyKind, Router, route_by_key, route_to
from clonos.protocol.engine.instance import (
    Action,
    Emit,
    Instance,
    InstanceConfig,
    InstanceSnapshot,
    Persist,
    Row,
)
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.line.recovery_line import RecoveryLine, Resume
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.own_log import Writer
from clonos.protocol.recovery.causal.retrieval import OpenedLog, Recovered
from clonos.protocol.recovery.quarantine import CandidateRecord
from clonos.protocol.roles.conduit_model import Follow, Output, Stable
from clonos.protocol.roles.crash_marks import CrashMarks
from clonos.protocol.roles.death import Death
from clonos.protocol.roles.incarnation import AttachRequest, Incarnation, Reached
from clonos.protocol.roles.snapshot_candidate import Candidate
from clonos.protocol.topology import Node, NodeKind
from clonos.protocol.versions.programs import Programs
from clonos.sim import holders, values as real
from clonos.sim.checkpoint import Snapshot, Snapshots
from clonos.sim.disk import LogStore
from clonos.sim.fake_services import Outcomes, Timers
from clonos.sim.frames import BundleFrame, OutputFrame
from clonos.sim.kernel import Died, Steps
from clonos.sim.operator import Ledger, Outside, Uses, key_column, watermark_of
from clonos.sim.partitions import Place
from clonos.sim.records import Record, Rows, Tag
from clonos.sim.trace import Restored

if TYPE_CHECKING:
    from clonos.sim.replica import Replica, Uploaded
    from clonos.sim.world import World


class OperatorHost(Incarnation[Snapshot]):
    """Also the instance's ports."""

    def __init__(self, world: World, replica: Replica) -> None:
        self._node = world.plan.dataflow.topology.node(replica.origin.node)
        super().__init__(self._node.name, replica.origin, alone=not world.plan.standbys)
        self._world = world
        self._replica = replica
        self._snapshots = world.checkpoint.snapshots(replica.origin)
        self._uploading = False
        self._asked = False
        assert world.driver is not None
        kept = replica.server.disk.marks[replica.origin]
        self._marks = CrashMarks(kept, start=world.driver.name, pid=replica.number)
        self.in_hand: int | None = None  # for the checkers alone
        self._landed: Uploaded | None = None
        self.state: Any = self._new_state()
        self.timers = Timers()
        self.event_timers = Timers()
        self.depends: dict[Origin, int] = {}  # for the checkers alone
        self.consumed: dict[int, int] = {}

    # ------------------------------------------------------------------ life

    @property
    def server_at(self) -> int:
        return self._replica.server.at

    @property
    def running(self) -> bool:
        return self._instance is not None

    @property
    def progress(self) -> int:
        return self._instance.processed if self._instance is not None else 0

    def open(self, hello: AttachRequest) -> Steps:
        yield from self.serve(hello)
        self.live.care, self._asked = (self if self._marks.careful else None), False

    def warn(self, hello: AttachRequest, previous: Death | None) -> None:
        """Only where there is poison: elsewhere nobody goes carefully, and no seed has its steps apart."""
        self.in_hand = None
        if self._world.plan.poison:
            self._marks.warn(Fence(hello.fence), fresh=hello.fresh, previous=previous)

    def may_run(self, doubt: CandidateRecord) -> bool:
        """For the core (`Care`)."""
        self._asked = True
        record, tag = doubt.row[1], doubt.row[3]
        where = replace(self.where, channel=doubt.channel, position=doubt.position)
        if self._marks.about_to_run(where, record):
            self.in_hand = record
            return True
        self._replica.point("is about to write a letter")
        self._world.poison.letter(self._origin, record, tag)
        self._world.trace(self._replica.name, f"passes over record {record}")
        self._replica.point("has written a letter")
        return False

    def start(self) -> Steps:
        yield from self.open_epoch()

    def follow(self, frame: Follow) -> Steps:
        yield from self.perform(self.live.follow(frame.log_start, frame.log))

    # ----------------------------------------------- for the core's incarnation

    @property
    def snapshots(self) -> Snapshots:
        return self._snapshots

    def open_snapshots(self) -> None:
        self._reach_storage()

    def _reach_storage(self) -> None:
        if not self._world.ways.answers(self._replica.server.at, Place.STORAGE):
            raise StorageUnavailable("the checkpoint storage cannot be reached", where=self.where)

    def claim(self) -> None:
        self._reach_storage()
        self._snapshots.claim(self._hello.fence)
        self._world.checks.acts(self._origin, self._hello.fence, "claims its snapshots")

    def discard_from(self, epoch: int) -> None:
        self._snapshots.discard_from(epoch, self._hello.fence)

    def line(self, generation: int) -> RecoveryLine:
        line = self._world.checkpoint.lines.get(generation)
        if line is None:
            raise StorageUnavailable(f"the line of start {generation} is not there")
        return line

    def commit_record(self) -> CommitRecord | None:
        raw = self._world.checkpoint.record
        return CommitRecord.from_bytes(raw, "the checkpoint") if raw is not None else None

    def await_commit(self) -> Steps:
        yield 1_000

    def keep_plan(self, epoch: int) -> Steps:
        yield 10
        self._reach_storage()
        self._world.checkpoint.keep_offsets(epoch)

    def candidate(self, found: Snapshot) -> Candidate:
        instance = found.instance
        return Candidate(
            found.name,
            instance.log_offset,
            instance.emitted,
            found.taken,
            instance.log,
            instance.received,
            instance.live_since,
        )

    def _choose(self, resume: Resume | None) -> Snapshot | None:
        self._world.faults.at_snapshots(self._snapshots)
        return super()._choose(resume)

    def restore_state(self, found: Snapshot | None) -> InstanceSnapshot | None:
        if found is None:
            return None
        state, timers, event_timers = pickle.loads(found.content)
        if self._world.plan.real_values:
            state = real.RealState(self._world.plan.state_cache, state)
        self.state, self.timers, self.event_timers = state, Timers(timers), Timers(event_timers)
        snapshot: InstanceSnapshot = pickle.loads(pickle.dumps(found.instance))
        return snapshot

    def resume(self, found: Snapshot, owed: Resume) -> Steps:
        if not found.name.begins(self._hello.fence):
            found = found.resumed_under(self._hello.fence, owed)
            yield from self._finish(found)
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
        if not self._alone and self._store.incarnations is None:
            self._store.incarnations = ()
        return opened

    def log_is_whole(self, since: int) -> None:
        self._store.is_whole(since)

    def rewrite_log(self, at: int, pieces: Sequence[Segment]) -> None:
        self._store.rewrite_own(at, list(pieces))

    @property
    def log_end(self) -> int:
        return self._store.end

    def begin_log(self, writer: Writer) -> None:
        self._store.begin(writer)

    def ask(self, origin: Origin, base: int) -> Steps:
        return holders.ask(self._world, self._replica, origin, where=self.where)

    @property
    def effects_are_used(self) -> bool:
        return self._world.checkpoint.effects

    def reached(self, how_far: Reached) -> Steps:
        if how_far is not Reached.FUNCTION:
            yield from self._replica.pause(how_far.value)

    def restored(self, found: Snapshot | None, recovered: Recovered) -> None:
        if found is not None:
            self.depends, self.consumed = dict(found.depends), dict(found.reached)
        self._world.checks.restores(self, self._hello, found, recovered)
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
        if not self.live.following:
            self._world.checks.goes_on(self, self._hello)

    def promoted(self, known: int) -> None:
        self._world.checks.promoted(self, self._hello, self.live.recorded)
        self._world.trace(self._replica.name, f"is the replica from log offset {known} on")

    def let_go(self) -> None:
        self._instance = None
        self.state, self.timers, self.event_timers = self._new_state(), Timers(), Timers()
        self.depends, self.consumed = {}, {}

    def make_instance(self) -> Instance:
        plan, node = self._world.plan, self._node
        services = CausalServices(
            state=self.state,
            timers=self.timers,
            event_timers=self.event_timers,
            random=random.Random(),
            outcomes=Outcomes(),
        )
        outside = Outside(
            self._ask,
            self._act,
            self._consumes,
            lambda record: record in self._world.poison.records,
            self._die,
            lambda: self._world.choices.nature.getrandbits(30),
        )
        impure = plan.impure and node is plan.dataflow.operators[0]
        uses = Uses(
            plan.calls, plan.effects, plan.timers, plan.event_time, impure, plan.lateness, plan.per_epoch
        )
        operator = self._programs(outside, uses)
        operator.open(services)
        config = InstanceConfig(
            name=node.name,
            origin=self._origin,
            router=self._router(),
            keys_of=real.keys_of if plan.real_values else lambda rows: [(row[0],) for row in rows],
            depth=plan.depth,
            fold_from=plan.fold_from,
            record_at_a_time=operator.record_at_a_time,
            per_epoch=operator.per_epoch,
            watermark_of=watermark_of if plan.event_time else None,
            programs=operator,
        )
        return Instance(config, operator, services, self)

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

    def _router(self) -> Router:
        target = self._target
        if target.kind is NodeKind.SINK:
            return route_to(self._origin.instance % target.parallelism)
        if self._world.plan.real_values:
            return real.router(self._kind, target.parallelism)
        return route_by_key([key_column(target.number)], target.parallelism, zone=self._world.deployment.zone)

    @property
    def _target(self) -> Node:
        return self._world.plan.dataflow.target(self._node.number)

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

    # ---------------------------------------------------------------- frames

    def bundle(self, frame: BundleFrame) -> Steps:
        bundle = frame.bundle
        self._covered.take(frame.seq, self.where)
        self._world.trace.took(self._replica.name, self._origin, frame.seq, bundle.channels, bundle.positions)
        actions = self.live.take(bundle)
        self._taken = frame.seq
        yield from self.perform(actions)
        if self._asked:
            self._marks.passed()
            self.live.care, self._asked, self.in_hand = None, False, None
        if self._hello.standby or not any(isinstance(action, Emit) for action in actions):
            self._replica.send(
                OutputFrame(Output(self._taken, self.live.passed, self.live.log_offset, b"", 0, 0, 0), ())
            )
        if not self._hello.standby:
            yield from self._snapshot_if_due()

    def tick(self) -> Steps:
        yield from self.perform(self.live.tick(self.clock()))
        yield from self._snapshot_if_due()

    def end(self, last: int) -> Steps:
        yield from self._replica.pause("is at the end of its input")
        self._covered.end(last, self.where)
        yield from self.perform(self.live.end_epoch())
        while self._uploading:  # joined: what is under way must not be overtaken
            if self._landed is not None:
                self.uploaded(self._landed)
            yield 50
        pending = self._begin_snapshot(final=True)
        yield from self._replica.pause("has begun its last snapshot")
        yield from self._finish(pending)
        self._ended = pending.name
        yield from self._replica.pause("has finished its last snapshot")
        return self.live.passed

    def perform(self, actions: Iterable[Action]) -> Steps:
        """All rows of one call go out in one write, after what must be saved before them."""
        frames = []
        for action in actions:
            yield from self._replica.pause(
                "is about to save" if isinstance(action, Persist) else "is about to emit"
            )
            if isinstance(action, Persist):
                self.persist(action, durable=False)
            elif self._hello.standby:
                self.depends[self._origin] = action.log_start + len(action.log)
            else:
                frames.append(self._output(action))
        for frame in frames:
            yield from self._replica.pause("sends")
            self._replica.send(frame)

    def _output(self, emit: Emit) -> OutputFrame:
        tags = self._world.checks.emits(self, emit)
        self._world.trace.emitted(
            self._replica.name, self._origin, emit.first, emit.destinations, len(emit.deltas)
        )
        records: list[tuple[int, Record]] = []
        if emit.count:
            assert isinstance(emit.payload, Rows)
            for index, row in enumerate(emit.payload.rows):
                record = Record(emit.first + index, (*row, tags[index]), emit.deltas.get(index))
                records.append((emit.destinations[index], record))
        last = emit.first + emit.count - 1 if emit.count else 0
        output = Output(
            self._taken,
            emit.passed,
            emit.log_start,
            emit.log,
            emit.count,
            emit.first if emit.count else 0,
            last,
        )
        return OutputFrame(output, tuple(records))

    # ------------------------------------------------------------- snapshots

    def _begin_snapshot(self, *, final: bool) -> Snapshot:
        if not self._store.full:
            self._store.fold()
        name = SnapshotName(self._hello.epoch, self._hello.fence, self._sequence, final)
        self._sequence += 1
        snapshot = Snapshot(
            name,
            pickle.loads(pickle.dumps(self.epoch_end() if final else self.live.snapshot())),
            pickle.dumps((self.contents(), self.timers.entries, self.event_timers.entries)),
            self._covered.upto,
            dict(self.depends),
            dict(self.consumed),
        )
        self._world.checks.snapshots(self, snapshot)
        return snapshot

    def _finish(self, snapshot: Snapshot) -> Steps:
        """Upload: claim, files, claim again, manifest. The last request may arrive when its sender is dead."""
        self.claim()
        yield self._world.choices.schedule.randint(50, 400)
        self.claim()
        self._world.checks.acts(self._origin, self._hello.fence, "writes a snapshot")
        self._snapshots.write(snapshot)

    def _snapshot_if_due(self) -> Steps:
        rng = self._world.choices.schedule
        if self._uploading or rng.random() >= self._world.plan.snapshot_rate or self.live.holds:
            return
        yield from self._replica.pause("begins a snapshot")
        # A conduit that is told to forget the log up to here believes that it, and the standby, have had it.
        yield from self.perform(self.live.flush())
        snapshot = self._begin_snapshot(final=False)
        self._uploading = True
        reached = (self._taken, self.live.log_offset)
        self._world.kernel.after(rng.randint(100, 3000), self._arrives, snapshot, reached)

    def _arrives(self, snapshot: Snapshot, reached: tuple[int, int]) -> None:
        """The last request, at the storage. Its sender may be dead; then it may still be under way for a while."""
        rng, world = self._world.choices.schedule, self._world
        if self._replica.alive:
            self._replica.call(self._land, snapshot, reached)
        elif rng.random() < 0.6:
            world.kernel.after(rng.randint(0, rng.choice((300, 50_000))), self._snapshots.write, snapshot)

    def _land(self, snapshot: Snapshot, reached: tuple[int, int]) -> None:
        from clonos.errors import ClonosError
        from clonos.sim.replica import Uploaded

        error: ClonosError | None = None
        try:
            self._reach_storage()
            self._snapshots.claim(snapshot.name.fence)
            self._world.checks.acts(self._origin, snapshot.name.fence, "writes a snapshot")
            self._snapshots.write(snapshot)
        except ClonosError as problem:
            error = problem
        self._landed = Uploaded(*reached, error)
        self._replica.hear(self._landed)

    def uploaded(self, word: Uploaded) -> None:
        if word is not self._landed:
            return
        self._uploading, self._landed = False, None
        if word.error is not None:
            raise word.error
        self._replica.send(Stable(word.seq, word.log_offset))

    def commit(self, epoch: int, stable: Mapping[Origin, int]) -> None:
        if self._instance is None:
            return
        self._instance.truncate(stable)
        with self._world.checks.truncates(self._store):
            self._store.truncate(stable)
        if not self._hello.standby:
            with self._world.checks.forgets_snapshots(self._snapshots):
                self._snapshots.forget(epoch, self._hello.fence, self.begun)

    # -------------------------------------------- InstancePorts, for the core

    def clock(self) -> int:
        return self._world.clock(self._replica.server.at)

    def entropy(self) -> int:
        return self._world.choices.nature.getrandbits(64)

    def encode(self, rows: list[Row]) -> Rows:
        return real.SentRows(self._kind, rows) if self._world.plan.real_values else Rows(rows)

    def persist(self, persist: Persist, *, durable: bool) -> None:
        self._replica.point("is about to write its log")
        own = (persist.own_start, b"".join(persist.own)) if persist.own else None
        if own is not None or persist.deltas:
            self._world.checks.writes(self, persist)
            self._store.append(persist.deltas, own)
            self._world.checks.saves(self, persist)
            start, data = own or (0, b"")
            self._world.trace.saved(self._replica.name, self._origin, start, data, len(persist.deltas))
        if durable:
            self._store.acts = True
            self._store.sync()
        self._replica.point("has written its log")

    def send_ahead(self, due: Sequence[Emit]) -> None:
        for emit in due:
            self._replica.point("sends ahead of an effect")
            self._replica.send(self._output(emit))

    def keep_that_effects_are_used(self) -> None:
        self._reach_storage()
        self._world.checkpoint.effects = True

    def show_log(self, log_start: int, log: bytes) -> None:
        self._replica.secure(log_start, log)

    def check_claim(self) -> None:
        self._reach_storage()
        self._snapshots.check(self._hello.fence)
        now, delay = self._world.kernel.now, self._world.choices.schedule.randint(0, 200)
        self._replica.until(lambda: self._world.kernel.now >= now + delay)

    # ------------------------------------------------- the function's outside

    def _ask(self) -> int:
        self._replica.point("asks the outside")
        return self._world.ask()

    def _act(self, key: str, record: int, draw: int) -> None:
        self._replica.point("is about to act on the outside")
        self._world.checks.effects(self, self._store)
        self._world.act(self._origin.node, key, record, draw)
        self._replica.point("has acted on the outside")

    def _consumes(self, tag: Tag) -> None:
        self._world.checks.consumed(self, tag)

    def _die(self, record: int, tag: Tag) -> None:
        self._world.checks.victim(self._origin)
        self._replica.signal = self._world.poison.signal(record)
        self._world.trace(self._replica.name, "is killed by a record")
        raise Died

    @property
    def origin(self) -> Origin:
        return self._origin

    @property
    def store(self) -> LogStore:
        return self._store

    @property
    def replica(self) -> Replica:
        return self._replica

    @property
    def hello(self) -> AttachRequest:
        return self._hello

"""An operator's instance inside a replica. Mirrors `standby.operator_host`, call for call.

Drives `core.instance`: bundles in, `Persist` to the log store and `Emit` to the conduit out, in the order given;
restores a snapshot and the log; takes snapshots, between epochs in the background, at an epoch's end in the
foreground.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clonos.core.care import Doubt
from clonos.core.conduit import Follow, Output, Stable
from clonos.core.destination import Router, route_by_key, route_to
from clonos.core.identity import Origin
from clonos.core.instance import (
    Action,
    Emit,
    Instance,
    InstanceConfig,
    InstanceSnapshot,
    Persist,
    Row,
)
from clonos.core.operator import Operator
from clonos.core.own_log import OwnLog
from clonos.core.recovery_line import Resume
from clonos.core.replacement import Known, of_same_attempt
from clonos.core.resumption import check_resumable, resume_failed
from clonos.core.retrieval import retrieve
from clonos.core.sequence import BundlesTaken
from clonos.core.services import CausalServices
from clonos.core.snapshot_name import SnapshotName
from clonos.core.topology import NodeKind
from clonos.errors import LogCorrupt, ReplicaLost, Where
from clonos.sim import holders
from clonos.sim.checkpoint import Snapshot
from clonos.sim.disk import LogStore
from clonos.sim.frames import BundleFrame, Hello, OutputFrame
from clonos.sim.furniture import Outcomes, Timers
from clonos.sim.kernel import Died, Steps
from clonos.sim.operator import Ledger, Outside, Uses, watermark_of
from clonos.sim.records import Record, Rows, Tag
from clonos.sim.trace import Restored

if TYPE_CHECKING:
    from clonos.sim.replica import Replica, Uploaded
    from clonos.sim.world import World


class OperatorHost:
    """Also the instance's ports."""

    def __init__(self, world: World, replica: Replica) -> None:
        self._world = world
        self._replica = replica
        self._origin = replica.origin
        self._node = world.plan.dataflow.topology.node(replica.origin.node)
        self._snapshots = world.checkpoint.snapshots(replica.origin)
        self._instance: Instance | None = None
        self._taken = 0
        self._covered = BundlesTaken()
        self._sequence = 0
        self._uploading = False
        self._asked = False
        self._landed: Uploaded | None = None
        self._ended: SnapshotName | None = None
        self._since = 0  # the log offset from which on this incarnation goes its own way
        self.state: dict[Any, Any] = {}
        self.timers = Timers()
        self.event_timers = Timers()
        self.depends: dict[Origin, int] = {}  # for the checkers alone
        self.reached: dict[int, int] = {}

    # ------------------------------------------------------------------ life

    @property
    def live(self) -> Instance:
        assert self._instance is not None
        return self._instance

    @property
    def recovered_end(self) -> int:
        return self.live.log_offset + len(self.live.recorded)

    @property
    def running(self) -> bool:
        return self._instance is not None

    @property
    def progress(self) -> int:
        return self._instance.processed if self._instance is not None else 0

    def open(self, hello: Hello) -> Steps:
        self._hello = hello
        self._taken = 0
        self._covered = BundlesTaken()
        if self._instance is not None:
            self._snapshots.claim(hello.fence)
            self._world.checks.acts(self._origin, hello.fence, "claims its snapshots")
            self._check_newest(hello)
            if not self.live.following:
                self._world.checks.goes_on(self, hello)
            self._lead(self.recovered_end if self.live.following else self._since)
        else:
            yield from self._restore(hello)
        self.live.care = self if self._world.poison.is_careful(self._origin) else None
        self._asked = False

    def may_run(self, doubt: Doubt) -> bool:
        """For the core (`Care`)."""
        self._asked = True
        record, tag = doubt.row[1], doubt.row[3]
        if self._world.poison.may_run(self._origin, record, tag):
            return True
        self._replica.point("is about to write a letter")
        self._world.poison.letter(self._origin, record, tag)
        self._world.trace(self._replica.name, f"passes over record {record}")
        self._replica.point("has written a letter")
        return False

    def open_standby(self, hello: Hello) -> Steps:
        """Restored like a replacement, or, where it stands at the end of an epoch, as it is in memory; then it
        follows. In the middle of one it is told to begin again, from a newer snapshot."""
        self._hello = hello
        self._taken = 0
        self._covered = BundlesTaken()
        if self._instance is not None and self._ended is not None:
            self._check_newest(hello)
        else:
            self._let_go()
            yield from self._restore(hello)
        self._ended = None
        self.live.begin_following()
        yield from self._perform(self.live.open_epoch(hello.epoch, ends_at=self._ends_at))
        yield from self._perform(self.live.follow(hello.log_start, hello.log))

    def follow(self, frame: Follow) -> Steps:
        yield from self._perform(self.live.follow(frame.log_start, frame.log))

    def promote(self, hello: Hello) -> Steps:
        """It is the replica. What its predecessor did beyond this log never happened."""
        self._hello = hello
        self._snapshots.claim(hello.fence)
        known = max(self.live.followed, hello.recovered)
        self._since = known
        self._store.begin(hello.fence, known)
        self._world.checks.promoted(self, hello, known, self.live.recorded)
        self._world.trace(self._replica.name, f"is the replica from log offset {known} on")
        yield from self._perform(self.live.go_live(hello.passed))

    def end_standby(self, last: int) -> None:
        """The replica has ended the epoch, and so has its standby, if it has got as far; else it restores in the next
        one."""
        newest = self._snapshots.final(self._hello.epoch)
        if newest is None or self._covered.upto < last or newest.instance.log_offset != self.live.log_offset:
            self._let_go()
        else:
            self._ended = newest.name

    def _let_go(self) -> None:
        """Of what is in memory, if anything is."""
        self._instance = None
        self.state, self.timers, self.event_timers = {}, Timers(), Timers()
        self.depends, self.reached = {}, {}

    def _check_newest(self, hello: Hello) -> None:
        """What it holds in memory must still be the newest there is."""
        if self._ended is None or self._ended.epoch == hello.epoch - 1:
            return
        newest = self._snapshots.final(hello.epoch - 1)
        if newest is None or newest.name != self._ended:
            raise ReplicaLost(
                "this process has missed an epoch that another one ran", where=self._where(hello)
            )

    @property
    def _ends_at(self) -> int | None:
        """The log offset at which an earlier attempt has ended the epoch, where this one has to end alike."""
        hello = self._hello
        ended = self._snapshots.binding(hello.epoch, hello.fence) if hello.again else None
        return ended.instance.log_offset if ended is not None else None

    def start(self) -> Steps:
        hello = self._hello
        yield from self._perform(
            self.live.open_epoch(hello.epoch, passed=hello.passed, ends_at=self._ends_at)
        )
        yield from self._perform(self.live.tick(self.clock()))

    def _lead(self, since: int) -> None:
        """It is the one that writes the log from here on."""
        self.live.lead()
        self._since = since
        self._store.begin(self._hello.fence, since)

    def _restore(self, hello: Hello) -> Steps:
        if not hello.standby:
            self._snapshots.claim(hello.fence)
            self._world.checks.acts(self._origin, hello.fence, "claims its snapshots")
        resume = None
        if hello.fresh and not hello.standby:
            line = self._world.checkpoint.line
            resume = line.resume(self._origin, generation=hello.generation, epoch=hello.epoch)
            if resume is None:
                self._snapshots.discard_from(hello.epoch, hello.fence)
        self._world.faults.at_snapshots(self._snapshots)
        known = Known(
            hello.fence, hello.passed, hello.log_start, hello.log_start + len(hello.log), hello.moves
        )
        found = self._latest(hello, known) if resume is None else self._resume_from(resume)
        snapshot: InstanceSnapshot | None = None
        if found is not None:
            state, timers, event_timers = pickle.loads(found.content)
            self.state, self.timers, self.event_timers = state, Timers(timers), Timers(event_timers)
            snapshot = pickle.loads(pickle.dumps(found.instance))
            self._sequence = found.name.sequence + 1
            if found.name.epoch == hello.epoch:
                self._covered = BundlesTaken(found.taken)
            if resume is None:
                self.depends, self.reached = dict(found.depends), dict(found.reached)
        yield from self._replica.pause("has restored its state")
        own, held = self._open_log()
        recovered = yield from self._recover(hello, known, snapshot, own)
        yield from self._replica.pause("knows its log")
        if resume is not None and found is not None and snapshot is not None:
            check_resumable(
                snapshot,
                recovered.before,
                [*held, *recovered.received],
                self._world.checkpoint.line.stable,
                where=self._where(hello),
            )
            found = yield from self._begin_at(found, resume)
            snapshot = pickle.loads(pickle.dumps(found.instance))
            self.depends, self.reached = dict(found.depends), dict(found.reached)  # only now it does
        self._instance = self._make_instance()
        self._world.checks.restores(self, hello, found, recovered)
        self._instance.restore(
            snapshot,
            own_before=recovered.before,
            recorded=recovered.recorded,
            held=held,
            received=recovered.received,
        )
        if not hello.standby:
            self._lead(self.recovered_end)
        reaches = snapshot.log_offset if snapshot else 0
        self._world.trace(
            self._replica.name,
            f"restores {'the end of epoch' if found and found.name.final else 'inside epoch'} "
            f"{found.name.epoch}, repeats log {reaches}..{reaches + len(recovered.recorded)}"
            if found
            else f"begins from nothing, repeats log 0..{len(recovered.recorded)}",
            Restored(self._origin),
        )

    def _latest(self, hello: Hello, known: Known) -> Snapshot | None:
        return self._snapshots.latest(
            epoch=hello.epoch,
            fence=hello.fence,
            final_only=hello.fresh,
            usable=lambda one: known.allows(
                fence=one.name.fence,
                log_offset=one.instance.log_offset,
                emitted=one.instance.emitted,
                before=lambda: self._emitted_before(hello),
            ),
        )

    def _resume_from(self, resume: Resume) -> Snapshot:
        """An attempt that lost its first replica before it was welcomed may have begun already."""
        hello = self._hello
        found = self._snapshots.resumed(hello.epoch, hello.fence) or self._snapshots.named(resume.name)
        if found is None:
            raise resume_failed("it is not there any more", self._where(hello))
        return found

    def _begin_at(self, found: Snapshot, resume: Resume) -> Steps:
        """From now on this attempt's own; what else was left of the epoch may go."""
        hello = self._hello
        if not (found.name.resumed and of_same_attempt(found.name.fence, hello.fence)):
            found = found.resumed_under(hello.fence, resume)
            yield from self._finish(found)
            yield from self._replica.pause("has begun where it resumes")
        self._snapshots.discard_from(hello.epoch, hello.fence)
        return found

    def _emitted_before(self, hello: Hello) -> int:
        snapshot = self._snapshots.beginning(hello.epoch, hello.fence)
        return snapshot.instance.emitted if snapshot is not None else 0

    def _open_log(self) -> tuple[OwnLog | None, list[bytes]]:
        disk = self._replica.server.disk
        self._world.faults.at_store(disk.store(self._origin))
        self._store = disk.store(self._origin)
        try:
            return self._store.open()
        except LogCorrupt:
            self._store = disk.put_aside(self._origin)
            return None, []

    def _recover(
        self, hello: Hello, known: Known, snapshot: InstanceSnapshot | None, own: OwnLog | None
    ) -> Steps:
        """The own log from the snapshot on, from whoever may know it."""
        offset = snapshot.log_offset if snapshot is not None else 0
        where = self._where(hello)
        retrieval = retrieve(
            self._origin,
            offset,
            own,
            hello.log,
            known=known,
            fresh=hello.fresh,
            where=where,
            alone=not self._world.plan.standbys,
            since=snapshot.epoch_log_offset
            if snapshot is not None and snapshot.epoch == hello.epoch
            else None,
        )
        answers = []
        if retrieval.ask_others or hello.standby:
            answers = yield from holders.ask(self._world, self._replica, self._origin, where=where)
        recovered = retrieval.put_together(answers, where=where)
        at, pieces = recovered.missing(own)
        if pieces or at < self._store.end:
            self._store.rewrite_own(at, pieces)
        return recovered

    def _make_instance(self) -> Instance:
        plan, node = self._world.plan, self._node
        target = plan.dataflow.target(node.number)
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
            self._consumed,
            lambda record: record in self._world.poison.records,
            self._die,
            lambda: self._world.choices.nature.getrandbits(30),
        )
        impure = plan.impure and node is plan.dataflow.operators[0]
        uses = Uses(plan.calls, plan.effects, plan.timers, plan.event_time, impure)
        operator: Operator = Ledger(node.number, target.number, outside, uses)
        operator.open(services)
        router: Router = (
            route_to(self._origin.instance % target.parallelism)
            if target.kind is NodeKind.SINK
            else route_by_key([0], target.parallelism)
        )
        config = InstanceConfig(
            name=node.name,
            origin=self._origin,
            router=router,
            keys_of=lambda rows: [(row[0],) for row in rows],
            depth=plan.depth,
            fold_from=plan.fold_from,
            record_at_a_time=operator.record_at_a_time,
            watermark_of=watermark_of if plan.event_time else None,
        )
        return Instance(config, operator, services, self)

    # ---------------------------------------------------------------- frames

    def bundle(self, frame: BundleFrame) -> Steps:
        bundle = frame.bundle
        self._covered.take(frame.seq, self._where(self._hello))
        self._world.trace.took(self._replica.name, self._origin, frame.seq, bundle.channels, bundle.positions)
        actions = self.live.take(bundle)
        if self._asked:
            self.live.care, self._asked = None, False
            self._world.poison.passed(self._origin)
        self._taken = frame.seq
        yield from self._perform(actions)
        if self._hello.standby or not any(isinstance(action, Emit) for action in actions):
            self._replica.send(
                OutputFrame(Output(self._taken, self.live.passed, self.live.log_offset, b"", 0, 0, 0), ())
            )
        if not self._hello.standby:
            yield from self._snapshot_if_due()

    def tick(self) -> Steps:
        yield from self._perform(self.live.tick(self.clock()))
        yield from self._snapshot_if_due()

    def end(self, last: int) -> Steps:
        yield from self._replica.pause("is at the end of its input")
        self._covered.end(last, self._where(self._hello))
        yield from self._perform(self.live.end_epoch())
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

    def _perform(self, actions: Iterable[Action]) -> Steps:
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
            pickle.loads(pickle.dumps(self.live.snapshot())),
            pickle.dumps((self.state, self.timers.entries, self.event_timers.entries)),
            self._covered.upto,
            dict(self.depends),
            dict(self.reached),
        )
        self._world.checks.snapshots(self, snapshot)
        return snapshot

    def _finish(self, snapshot: Snapshot) -> Steps:
        """Upload: claim, files, claim again, manifest. The last request may arrive when its sender is dead."""
        self._snapshots.claim(self._hello.fence)
        yield self._world.choices.schedule.randint(50, 400)
        self._snapshots.claim(self._hello.fence)
        self._world.checks.acts(self._origin, self._hello.fence, "writes a snapshot")
        self._snapshots.write(snapshot)

    def _snapshot_if_due(self) -> Steps:
        rng = self._world.choices.schedule
        if self._uploading or rng.random() >= self._world.plan.snapshot_rate:
            return
        yield from self._replica.pause("begins a snapshot")
        # A conduit that is told to forget the log up to here believes that it, and the standby, have had it.
        yield from self._perform(self.live.flush())
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
                self._snapshots.forget(epoch, self._hello.fence)

    # -------------------------------------------- InstancePorts, for the core

    def clock(self) -> int:
        return self._world.clock()

    def entropy(self) -> int:
        return self._world.choices.nature.getrandbits(64)

    def encode(self, rows: list[Row]) -> Rows:
        return Rows(rows)

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
            self._store.sync()
        self._replica.point("has written its log")

    def secure(self, due: Sequence[Emit], log_start: int, log: bytes) -> None:
        for emit in due:
            self._replica.point("sends ahead of an effect")
            self._replica.send(self._output(emit))
        if not self._world.plan.standbys:
            return  # the store here is where whoever takes over looks
        self._replica.secure(log_start, log)
        # Whoever has claimed the instance since then has asked this store, and knows of the effect.
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

    def _consumed(self, tag: Tag) -> None:
        self._world.checks.consumed(self, tag)

    def _die(self, record: int, tag: Tag) -> None:
        self._world.checks.victim(self._origin)
        self._world.poison.died(self._origin, record, tag)
        self._world.trace(self._replica.name, "is killed by a record")
        raise Died

    def _where(self, hello: Hello) -> Where:
        return Where(self._node.name, self._origin.instance, hello.epoch)

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
    def hello(self) -> Hello:
        return self._hello

"""An operator's instance inside a replica process.

Drives `protocol.roles.incarnation`, which says how it begins, and `protocol.engine.instance`: bundles in, `Persist`
to the log store and `Emit` to the conduit out, in the order given. Keeps keyed state and takes snapshots: between
epochs in the background, so that only the hard links are made in the instance's thread; at an epoch's end in the
foreground, since the stage may only return when it is durable.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from clonos.errors import LogCorrupt, ProtocolError, RecoveryTimeout, Where
from clonos.protocol.engine.instance import (
    Action,
    Bundle as Records,
    Emit,
    Instance,
    InstanceSnapshot,
    Persist,
    Row,
)
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.ids import Origin
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.line.recovery_line import RecoveryLine, Resume as Resumption
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.delta import still_needed
from clonos.protocol.recovery.causal.delta_journal import fold_deltas
from clonos.protocol.recovery.causal.holding import Damage
from clonos.protocol.recovery.causal.longest_prefix import RecoveryState
from clonos.protocol.recovery.causal.own_log import OwnLog, Writer
from clonos.protocol.recovery.causal.retrieval import OpenedLog, Recovered
from clonos.protocol.recovery.quarantine import CandidateRecord
from clonos.protocol.roles.crash_marks import CrashMarks
from clonos.protocol.roles.death import Death
from clonos.protocol.roles.incarnation import AttachRequest, Incarnation, Reached, Steps, carry_out
from clonos.protocol.roles.snapshot_candidate import Candidate
from clonos.protocol.versions.programs import Programs
from clonos.protocol.versions.upgrade import Schedule
from clonos.storage import salvage
from clonos.storage.boot import boot_id
from clonos.storage.commit_files import newest_commit
from clonos.storage.effects_mark import EffectsMark
from clonos.storage.epoch_plan import keep_plan
from clonos.storage.keyed_state import KeyedState
from clonos.storage.log_store import LogStore
from clonos.storage.manifest import Manifest
from clonos.storage.recovery_line_file import read_line
from clonos.storage.snapshots import PendingSnapshot, SnapshotStore
from clonos.storage.timers import EVENT_TIME, PROCESSING_TIME, TimerQueue
from clonos.testing.faults import FaultInjector, Point
from clonos.wire.framing import FrameType, Packed, to_bytes
from clonos.wire.messages import (
    Bundle,
    Follow,
    Hello,
    Resume,
    Secured,
    pack_error,
    pack_output,
    pack_secure,
    pack_stable,
    parse,
)
from clonos_standby.cluster.spec import NodeSpec, QuerySpec
from clonos_standby.replica import holders, snapshot_metadata as metadata
from clonos_standby.replica.batches import BundleReader, EncodedRows, OutputWriter
from clonos_standby.replica.connection import ConduitGone, Connection
from clonos_standby.replica.dead_letters import Letters
from clonos_standby.replica.instance_config import instance_config, keys_of
from clonos_standby.replica.outcomes import Outcomes
from clonos_standby.replica.progress import Recovery
from clonos_standby.replica.snapshot_upload import Upload
from clonos_standby.replica.watchdog import Watchdog
from clonos_standby.server.crash_mark_file import CrashMarkFile
from clonos_standby.server.log import log

_COMMIT_POLL_SECONDS = 0.05

PARTS = {Reached.STATE: "state", Reached.LOG: "log", Reached.FUNCTION: "function"}
SNAPSHOT_SHARE = 30
"""Work between two snapshots, as a multiple of what the last one took."""


class OperatorHost(Incarnation[Manifest]):
    """See the module. One per process; single-threaded but for the upload of snapshots."""

    def __init__(self, query: QuerySpec, node: NodeSpec, instance: int, faults: FaultInjector) -> None:
        assert node.output is not None and node.operator is not None
        super().__init__(
            node.name,
            Origin(node.number, instance),
            alone=not node.standbys,
            numbers_from=query.numbers_from,
            damage_accepted=query.damage_accepted,
        )
        self._query = query
        self._node = node
        self._faults = faults
        self._reader = BundleReader(node.input, node.zone)
        self._writer = OutputWriter(node.output, node.zone, node.name, self._origin)
        place = f"{node.number}/{instance}"
        self._log_path = os.path.join(query.data, "logs", place)
        self._state_path = os.path.join(query.data, "state", place)
        self._pending_path = os.path.join(query.data, "pending", place)
        self._snapshot_root = f"{query.checkpoint.rstrip('/')}/clonos/state/{place}"
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._last_snapshot = time.monotonic()
        self._work_snapped = time.thread_time()
        self._preparing = 0.0
        self._snapshot_cost = 0.0
        self._reading: SnapshotStore | None = None
        self._upload: Upload | None = None
        self._recovery: Recovery | None = None
        self.recovered: dict[str, Any] | None = None
        self._snapshot_began = 0.0
        self._snapshots_taken = 0
        self._snapshot_seconds = 0.0
        self._output_bytes = 0
        self._delta_bytes = 0
        self._to_repeat = 0
        self._processed_before = 0
        start = hashlib.blake2b(query.token.encode(), digest_size=8).hexdigest()
        path = Path(query.data, "replicas", f"{node.number}-{instance}.suspect")
        self._suspect = CrashMarks(CrashMarkFile(path), start=start, pid=os.getpid())
        self._watchdog = Watchdog(query.settings.function_deadline)
        self._watchdog.on_event_timers = self._suspect.timers_fire
        self._asked = False
        self._acts = False

    # ------------------------------------------------------------------ life

    @property
    def progress(self) -> int:
        return self._instance.processed if self._instance is not None else 0

    def figures(self) -> dict[str, float]:
        return {
            "records": self.progress,
            "log_bytes": self.live.log_offset,
            "snapshots": self._snapshots_taken,
            "snapshot_seconds": self._snapshot_seconds,
            "output_bytes": self._output_bytes,
            "delta_bytes": self._delta_bytes,
        }

    def open(self, hello: Hello, resume: Resume, connection: Connection) -> None:
        self._connection = connection
        anew = self._instance is None
        carry_out(self.serve(_greeting(self._origin, hello, resume)))
        if anew and self._recovery is not None:
            self._faults.reached(Point.RECOVERY, hello.epoch)
        self.live.care, self._asked = (self if self._suspect.careful else None), False

    def start(self) -> None:
        carry_out(self.open_epoch())

    def open_standby(self, hello: Hello, resume: Resume, connection: Connection) -> None:
        self._connection = connection
        carry_out(self.stand_by(_greeting(self._origin, hello, resume)))
        self._recovery = None

    def follow(self, follow: Follow) -> None:
        self._perform(self.live.follow(follow.log_start, bytes(follow.log)))

    def promote(self, hello: Hello, passed: int) -> None:
        self._recovery = Recovery(hello.epoch, fresh=False, promoted=True)
        self._to_repeat = len(self.live.recorded)
        self._processed_before = self.live.processed
        self._reading = None
        standing = replace(self._hello, fence=hello.fence, standby=False)
        carry_out(self.take_over(replace(standing, passed=passed, recovered=hello.recovered)))

    # ----------------------------------------------- for the core's incarnation

    @property
    def snapshots(self) -> SnapshotStore:
        return self._snapshots

    def open_snapshots(self) -> None:
        hello = self._hello
        self._recovery = Recovery(hello.epoch, fresh=hello.fresh)
        self._before = _set_aside(self._state_path)
        if hello.standby:
            self._snapshots = self._reading = self._reading or self._store_under(0)
        else:
            self._snapshots = self._store_under(hello.fence)

    def _store_under(self, fence: int) -> SnapshotStore:
        """With fence 0 to read only, as standbys do."""
        return SnapshotStore(self._snapshot_root, fence=fence, pending=self._pending_path)

    def claim(self) -> None:
        self._snapshots.claim(self._hello.fence)

    def discard_from(self, epoch: int) -> None:
        self._snapshots.discard_from(epoch)

    def line(self, generation: int) -> RecoveryLine:
        return read_line(self._query.checkpoint, generation)

    def commit_record(self) -> CommitRecord | None:
        return newest_commit(self._query.checkpoint)

    def await_commit(self) -> Steps:
        deadline = self._query.settings.recovery_deadline
        if self._recovery is not None and self._recovery.seconds > deadline:
            raise RecoveryTimeout(
                f"the commit of epoch {self._hello.epoch - 1} has not been recorded within {deadline:g} s",
                where=self.where,
                hint=f"Spark writes {self._query.checkpoint}/commits, and the driver records a commit when it finds it "
                "there: its log says whether it cannot read that folder, or write to the checkpoint or the sink",
            )
        time.sleep(_COMMIT_POLL_SECONDS)
        yield from ()

    def keep_plan(self, epoch: int) -> Steps:
        keep_plan(self._query.checkpoint, epoch)
        yield from ()

    def candidate(self, found: Manifest) -> Candidate:
        return metadata.candidate(found)

    def restore_state(self, found: Manifest | None) -> InstanceSnapshot | None:
        snapshot: InstanceSnapshot | None = None
        if found is not None:
            self._snapshots.restore(found, self._state_path, beside=self._before)
            snapshot = metadata.decode(found.meta, self._reader.row_class)
        shutil.rmtree(self._before, ignore_errors=True)
        self._state = KeyedState(self._state_path, cache_entries=self._query.settings.state_cache)
        return snapshot

    def resume(self, found: Manifest, owed: Resumption) -> Steps:
        if self._recovery is not None:
            snapshot = metadata.decode(found.meta, self._reader.row_class)
            self._recovery.resumed = snapshot.log_offset - snapshot.epoch_log_offset
        yield from ()
        return self._snapshots.resume(found, metadata.resumed(found.meta, owed.owed))

    def open_log(self) -> OpenedLog:
        """A damaged store is not written on: what can be read of it is put in its place."""
        salvage.finish(self._log_path)
        os.makedirs(self._log_path, exist_ok=True)
        try:
            return self._opened_log()
        except LogCorrupt as error:
            aside = os.path.join(
                self._query.data,
                "damaged",
                f"{self._origin.node}-{self._origin.instance}-{self._hello.fence}",
            )
            salvage.salvage(self._log_path, aside)
            log(
                "log_damaged",
                f"the causal log is damaged and was moved to {aside}; what can be read of it is kept, and the other "
                f"holders are asked: {error}",
            )
            return self._opened_log()

    def _opened_log(self) -> OpenedLog:
        self._log = LogStore(self._log_path)
        try:
            if self._node.standbys and self._log.incarnations() is None:
                self._log.begin(None)
            own = OwnLog(list(self._log.own()), self._log.incarnations() or ())
            held = list(self._log.deltas())
            whole_since, before = self._log.whole_since(boot_id()), self._log.damaged_before
        except LogCorrupt:
            self._log.close()
            raise
        self._acts = salvage.acts(self._log_path)
        damaged = (Damage(before, self._origin, self._acts),) if before else ()
        return OpenedLog(own, held, damaged, whole_since)

    def log_is_whole(self, since: int) -> None:
        self._log.is_whole(since, boot_id())

    def rewrite_log(self, at: int, pieces: Sequence[Segment]) -> None:
        self._log.rewrite_own(at, list(pieces))

    @property
    def log_end(self) -> int:
        return self._log.end

    def begin_log(self, writer: Writer) -> None:
        self._log.begin(writer)

    @property
    def effects_are_used(self) -> bool:
        return self._effects.is_there

    @cached_property
    def _effects(self) -> EffectsMark:
        """Most replicas never look."""
        return EffectsMark(self._query.checkpoint, tag=f"effects-{uuid4().hex}")

    def log_too_short(self) -> None:
        # Damage to the length of a record in a write-ahead log shows in no other way: it looks like an append that
        # never ended, and RocksDB takes what lies before it for everything.
        log(
            "log_too_short",
            f"the causal log in {self._log_path} lacks what its conduit has seen: the other holders are asked",
        )

    def ask(self, origin: Origin, base: int) -> Steps:
        yield from ()
        return holders.ask(self._query, origin, base, where=self.where)

    def perform(self, actions: Iterable[Action]) -> Steps:
        self._perform(actions)
        yield from ()

    def reached(self, how_far: Reached) -> Steps:
        if self._recovery is not None and how_far in PARTS:
            self._recovery.done(PARTS[how_far])
        yield from ()

    def restored(self, found: Manifest | None, recovered: Recovered) -> None:
        self._to_repeat, self._processed_before = len(recovered.recorded), 0
        if found is None and not recovered.recorded:
            self._recovery = None

    def promoted(self, known: int) -> None:
        self._last_snapshot, self._work_snapped = time.monotonic(), time.thread_time()
        if self._recovery is not None:
            self._recovery.done("fence")

    def make_instance(self) -> Instance:
        node = self._node
        assert node.operator is not None
        services = self._services = CausalServices(
            state=self._state,
            timers=TimerQueue(self._state, PROCESSING_TIME),
            event_timers=TimerQueue(self._state, EVENT_TIME),
            random=random.Random(),
            outcomes=Outcomes(),
        )
        self._letters = Letters(node, self._origin, self._query.checkpoint, self._hello.fence)
        schedule = node.schedule or Schedule(((0, node.version),))
        make = {**node.previous, node.version: node.operator}
        self._operator = Programs(node.name, schedule, node.version, make)
        operator = self._watchdog.watch(self._operator)
        self._watchdog.on_stuck = lambda row, why: self._stuck(services.where(row), why, row is not None)
        operator.open(services)
        config = instance_config(node, self._origin, self._operator, tells_folds=self._state.tells_folds)
        return Instance(config, operator, services, self)

    def close(self) -> None:
        if self._upload is not None:
            self._upload.join()
        self.let_go()

    def let_go(self) -> None:
        if self._instance is not None:
            self._operator.close()
            self._log.close()
            self._state.close()
            self._instance = None

    # ---------------------------------------------------------------- frames

    def warn(self, hello: Hello, previous: Mapping[str, Any] | None) -> None:
        died = Death(**previous) if previous is not None else None
        self._suspect.warn(hello.fence, fresh=hello.fresh, previous=died)

    def look(self) -> None:
        self._watchdog.look()

    def _stuck(self, where: Where, why: str, known: bool) -> None:
        """The process is about to end itself."""
        if known:
            self._suspect.blame(where)
        with contextlib.suppress(ConduitGone):
            self._connection.send(pack_error("ReplicaLost", f"{why} ({where})", retryable=True))

    def bundle(self, bundle: Bundle) -> None:
        self._covered.take(bundle.seq, self.where)
        records = self._reader.read(bundle.batch)
        actions = self._carefully(records) if self.live.care is not None else self.live.take(records)
        self._taken = bundle.seq
        self._perform(actions)
        if self._hello.standby:
            self._connection.send(self.where_it_is())
            return
        if not any(isinstance(action, Emit) for action in actions):
            self._connection.send(self.where_it_is())
        if self._faults.active:
            self._faults.reached(Point.INPUT, self._hello.epoch, self.live.processed)
        self._snapshot_if_due()

    def where_it_is(self) -> Packed:
        """An OUTPUT frame without rows."""
        return pack_output(self._taken, self.live.passed, self.live.log_offset)

    def _carefully(self, records: Records) -> list[Action]:
        """One record at a time, each written down before it is run, until the first bundle that nobody finished."""
        for at, row in enumerate(records.rows):
            channel, position = int(records.channels[at]), int(records.positions[at])
            one = Records([channel], [position], [row], records.deltas if at == 0 else ())
            self._perform(self.live.take(one))
        if self._asked:
            self._suspect.passed()
            self.live.care, self._asked = None, False
        return []

    def may_run(self, doubt: CandidateRecord) -> bool:
        """For the core (`Care`): what kills every process ends the query, or is kept in a letter and passed over."""
        self._asked = True
        where = replace(self.where, channel=doubt.channel, position=doubt.position)
        if self._suspect.about_to_run(where, zlib.crc32(repr(doubt.row).encode("utf-8", "surrogatepass"))):
            return True
        if not self._node.dead_letters:
            raise self._suspect.poison(where)
        if not doubt.alone or not self._suspect.by_itself(where):
            why = "timers after it" if doubt.alone else "its bundle, of which a part is recorded,"
            raise self._suspect.poison(
                where, f"No letter can help, since {why} may be what kills: mend the function"
            )
        (key,) = keys_of(self._node, self._state.tells_folds)([doubt.row])
        place = self._letters.write(
            doubt, key, self._operator, self._services, self._hello.epoch, self._suspect.deaths(where)
        )
        log(
            "record_passed_over",
            f"a record that ended every process was passed over ({where}); it is kept in {place}",
        )
        return False

    def tick(self) -> None:
        self._perform(self.live.tick(self.clock()))
        self._snapshot_if_due()

    def end(self, seq: int) -> int:
        self._faults.reached(Point.BEFORE_SNAPSHOT, self._hello.epoch)
        self._covered.end(seq, self.where)
        self._perform(self.live.end_epoch())
        if self._upload is not None:
            self._upload.join()
            self.finished()
        pending = self._begin_snapshot(final=True)
        self._snapshots.finish(pending)
        self._ended = pending.name
        self._snapshot_taken()
        self._faults.reached(Point.AFTER_SNAPSHOT, self._hello.epoch)
        return self.live.passed

    def _perform(self, actions: Iterable[Action]) -> None:
        if self._recovery is not None and self.live.state is RecoveryState.LIVE:
            records = self.live.processed - self._processed_before
            self.recovered = self._recovery.live(self._to_repeat, records)
            self._recovery = None
        frames: list[Packed] = []
        for action in actions:
            if isinstance(action, Persist):
                self.persist(action, durable=False)
            elif not self._hello.standby:
                frames.append(self._output(action))
        if frames:
            if self._faults.active and self._faults.armed(
                Point.OUTPUT, self._hello.epoch, self.live.processed
            ):
                half = to_bytes(frames[-1])
                self._connection.send(*frames[:-1], [half[: len(half) // 2]])
                try:
                    self._faults.reached(Point.OUTPUT, self._hello.epoch, self.live.processed)
                finally:  # a task's failure is told in a frame of its own
                    self._connection.send([half[len(half) // 2 :]])
            else:
                self._connection.send(*frames)

    def _output(self, emit: Emit) -> Packed:
        batch = self._writer.batch(emit) if emit.count else None
        if batch is not None:
            self._output_bytes += batch.size
            self._delta_bytes += sum(map(len, emit.deltas.values()))
        return pack_output(self._taken, emit.passed, emit.log_start, emit.log, emit.count, batch)

    # ------------------------------------------------------------- snapshots

    def _begin_snapshot(self, *, final: bool) -> PendingSnapshot:
        self._snapshot_began = time.monotonic()
        self._log.fold(fold_deltas)
        pending = self._snapshots.begin(
            self._state,
            metadata.encode(self.epoch_end() if final else self.live.snapshot(), taken=self._covered.upto),
            epoch=self._hello.epoch,
            sequence=self._sequence,
            final=final,
        )
        self._sequence += 1
        self._last_snapshot = time.monotonic()
        self._work_snapped = time.thread_time()
        return pending

    def _snapshot_taken(self) -> None:
        self._snapshots_taken += 1
        self._snapshot_seconds += time.monotonic() - self._snapshot_began

    def _snapshot_if_due(self) -> None:
        """Work done since the last snapshot is what a recovery repeats, so it is work that makes one due, as long as
        taking them is a small part of it; time makes it due for the conduit's sake, which keeps what came since."""
        if self._upload is not None or self.live.holds:
            return
        settings = self._query.settings
        now = time.thread_time()
        enough = max(settings.snapshot_work, SNAPSHOT_SHARE * self._snapshot_cost)
        worked = now - self._work_snapped >= enough
        if worked or time.monotonic() - self._last_snapshot >= settings.snapshot_interval:
            prepared = self._state.prepare()
            if prepared:
                # A conduit that is told to forget the log up to here believes that it, and the standby, have had it.
                self._perform(self.live.flush())
                reached = (self._taken, self.live.log_offset)
                pending = self._begin_snapshot(final=False)
                self._upload = Upload(self._snapshots, pending, reached, self._wake_write)
            self._preparing += time.thread_time() - now
            if prepared:
                self._snapshot_cost, self._preparing = self._preparing, 0.0

    def wakeups(self) -> int:
        return self._wake_read

    def finished(self) -> None:
        try:
            os.read(self._wake_read, 64)
        except BlockingIOError:
            return
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.join()
            if upload.error is not None:
                raise upload.error
            self._snapshot_cost += upload.cost
            self._snapshot_taken()
            self._connection.send(pack_stable(*upload.reached))

    def commit(self, epoch: int, stable: Mapping[tuple[int, int], int]) -> None:
        if self._instance is None:
            return
        self._instance.truncate({Origin(*origin): offset for origin, offset in stable.items()})
        own = stable.get(self._origin)
        if own is not None:
            self._log.truncate_own(own)
        self._log.truncate_deltas(lambda raw: still_needed(raw, stable))
        if not self._hello.standby:
            self._snapshots.forget(before_epoch=epoch, since=self.begun)

    # -------------------------------------------- InstancePorts, for the core

    def clock(self) -> int:
        return time.time_ns() // 1000

    def entropy(self) -> int:
        return random.SystemRandom().getrandbits(64)

    def encode(self, rows: list[Row]) -> EncodedRows:
        # What is repeated has fitted the schema once, and is seldom handed on again.
        return self._writer.encode(rows, lazily=self.live.state is RecoveryState.REPLAYING)

    def persist(self, persist: Persist, *, durable: bool) -> None:
        own = (persist.own_start, b"".join(persist.own)) if persist.own else None
        if own is not None or persist.deltas:
            self._log.append(persist.deltas, own)
        if durable:
            if not self._acts:
                salvage.note_that_it_acts(self._log_path)
                self._acts = True
            self._log.sync()

    def send_ahead(self, due: Sequence[Emit]) -> None:
        self._perform(due)

    def keep_that_effects_are_used(self) -> None:
        with self._watchdog.waiting():
            self._effects.leave()

    def show_log(self, log_start: int, log: bytes) -> None:
        with self._watchdog.waiting():
            self._connection.send(pack_secure(log_start, log))
            said = parse(self._connection.next_of(FrameType.SECURED))
            if not isinstance(said, Secured) or said.log_end < log_start + len(log):
                raise ProtocolError(f"SECURE up to {log_start + len(log)} was answered with {said}")

    def check_claim(self) -> None:
        with self._watchdog.waiting():
            self._snapshots.check()


def _greeting(origin: Origin, hello: Hello, resume: Resume) -> AttachRequest:
    return AttachRequest(
        origin=origin,
        epoch=hello.epoch,
        fence=hello.fence,
        fresh=hello.fresh,
        again=hello.again,
        passed=resume.passed,
        log_start=resume.log_start,
        log=bytes(resume.log),
        standby=hello.standby,
        moves=hello.moves,
        recovered=hello.recovered,
        realtime=hello.mode == "realtime",
    )


def _set_aside(state: str) -> str:
    """Where the state has gone that was here: most of a snapshot is in the one that a standby was at."""
    before = f"{state}.before"
    shutil.rmtree(before, ignore_errors=True)
    os.makedirs(os.path.dirname(before), exist_ok=True)
    if os.path.exists(state):
        os.rename(state, before)
    return before

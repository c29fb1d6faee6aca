"""An operator's instance inside a replica process.

Drives `core.instance`: bundles in, `Persist` to the log store and `Emit` to the conduit out, in the order given. Keeps
keyed state and takes snapshots: between epochs in the background, so that only the hard links are made in the
instance's thread; at an epoch's end in the foreground, since the stage may only return when it is durable.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import random
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clonos.core.care import Doubt
from clonos.core.delta import still_needed
from clonos.core.destination import Router, route_by_key, route_to
from clonos.core.identity import Origin
from clonos.core.instance import (
    Action,
    Bundle as Records,
    Emit,
    Instance,
    InstanceConfig,
    InstanceSnapshot,
    Persist,
    Row,
)
from clonos.core.own_log import OwnLog
from clonos.core.recovery import RecoveryState
from clonos.core.replacement import Known
from clonos.core.retrieval import Recovered, retrieve
from clonos.core.sequence import BundlesTaken
from clonos.core.services import CausalServices
from clonos.core.sharing import fold_deltas
from clonos.core.snapshot_name import SnapshotName
from clonos.errors import LogCorrupt, ProtocolError, ReplicaLost, Where
from clonos.faults import FaultInjector, Point
from clonos.store.keyed_state import KeyedState
from clonos.store.log_store import LogStore
from clonos.store.snapshots import PendingSnapshot, SnapshotStore
from clonos.store.timers import EVENT_TIME, PROCESSING_TIME, TimerQueue
from clonos.surface.rows import zone_of
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
from standby import holders, metadata
from standby.batches import BundleReader, EncodedRows, OutputWriter
from standby.connection import ConduitGone, Connection
from standby.letters import Letters
from standby.log import log
from standby.outcomes import Outcomes
from standby.progress import Recovery
from standby.resuming import Resuming, begin_epoch, restore_state, set_aside
from standby.spec import NodeSpec, QuerySpec, RouteKind
from standby.suspect import Suspect
from standby.upload import Upload
from standby.watchdog import Watchdog

SNAPSHOT_SHARE = 30
"""Work between two snapshots, as a multiple of what the last one took."""


class OperatorHost:
    """See the module. One per process; single-threaded but for the upload of snapshots."""

    def __init__(self, query: QuerySpec, node: NodeSpec, instance: int, faults: FaultInjector) -> None:
        assert node.output is not None and node.operator is not None
        self._query = query
        self._node = node
        self._origin = Origin(node.number, instance)
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
        self._instance: Instance | None = None
        self._taken = 0
        self._covered = BundlesTaken()
        self._sequence = 0
        self._last_snapshot = time.monotonic()
        self._work_snapped = time.thread_time()
        self._preparing = 0.0
        self._snapshot_cost = 0.0
        self._reading: SnapshotStore | None = None
        self._upload: Upload | None = None
        self._ended: SnapshotName | None = None
        self._since = 0
        self._recovery: Recovery | None = None
        self.recovered: dict[str, Any] | None = None
        self._snapshot_began = 0.0
        self._snapshots_taken = 0
        self._snapshot_seconds = 0.0
        self._output_bytes = 0
        self._delta_bytes = 0
        self._to_repeat = 0
        start = hashlib.blake2b(query.token.encode(), digest_size=8).hexdigest()
        path = Path(query.data, "replicas", f"{node.number}-{instance}.suspect")
        self._suspect = Suspect(path, start)
        self._watchdog = Watchdog(query.settings.function_deadline)
        self._watchdog.on_event_timers = self._suspect.timers_fire
        self._asked = False

    # ------------------------------------------------------------------ life

    @property
    def progress(self) -> int:
        return self._instance.processed if self._instance is not None else 0

    def figures(self) -> dict[str, float]:
        return {
            "records": self.progress,
            "log_bytes": self._live.log_offset,
            "snapshots": self._snapshots_taken,
            "snapshot_seconds": self._snapshot_seconds,
            "output_bytes": self._output_bytes,
            "delta_bytes": self._delta_bytes,
        }

    def open(self, hello: Hello, resume: Resume, connection: Connection) -> None:
        self._hello = hello
        self._connection = connection
        self._resume_passed = resume.passed
        self._taken = 0
        self._covered = BundlesTaken()
        if self._instance is not None:
            self._snapshots.claim(hello.fence)
            self._check_newest(hello)
            self._lead(self.recovered_end if self._live.following else self._since)
        elif self._restore(hello, resume):
            self._faults.reached(Point.RECOVERY, hello.epoch)
        self._live.care, self._asked = (self if self._suspect.careful else None), False

    def open_standby(self, hello: Hello, resume: Resume, connection: Connection) -> None:
        """Restored like a replacement, or, where it stands at the end of an epoch, as it is in memory; from then on it
        follows. In the middle of one it is told to begin again, from a newer snapshot."""
        self._hello = hello
        self._connection = connection
        self._taken = 0
        self._covered = BundlesTaken()
        if self._instance is not None and self._ended is not None:
            self._check_newest(hello)
        else:
            self._let_go()
            self._restore(hello, resume)
        self._ended = self._recovery = None
        self._live.begin_following()
        self._perform(self._live.open_epoch(hello.epoch, ends_at=self._ends_at))
        self._perform(self._live.follow(resume.log_start, bytes(resume.log)))

    def follow(self, follow: Follow) -> None:
        self._perform(self._live.follow(follow.log_start, bytes(follow.log)))

    def promote(self, hello: Hello, passed: int) -> None:
        """The primary is lost, and this is the replica. What that did beyond the log that it had recovered, and that
        the conduit knows, never happened."""
        self._recovery = Recovery(hello.epoch, fresh=False, promoted=True)
        self._to_repeat = len(self._live.recorded)
        self._hello = hello
        self._snapshots.claim(hello.fence)
        self._reading = None
        self._lead(max(self._live.followed, hello.recovered))
        self._last_snapshot, self._work_snapped = time.monotonic(), time.thread_time()
        self._recovery.done("fence")
        self._perform(self._live.go_live(passed))

    def _lead(self, since: int) -> None:
        """From this offset on the log is what this incarnation writes."""
        self._live.lead()
        self._since = since
        if self._node.standbys:
            self._log.begin((self._hello.fence, since))

    @property
    def recovered_end(self) -> int:
        return self._live.log_offset + len(self._live.recorded)

    def end_standby(self, seq: int) -> None:
        """The primary has ended the epoch, and so has its standby, if it has come as far; else it restores in the next
        one."""
        newest = self._snapshots.final(self._hello.epoch)
        if (
            newest is None
            or self._covered.upto < seq
            or metadata.log_offset(newest.meta) != self._live.log_offset
        ):
            self._let_go()
        else:
            self._ended = newest.name

    def _check_newest(self, hello: Hello) -> None:
        """An instance may not have run for some epochs; what it holds in memory must still be the newest there is."""
        if self._ended is None or self._ended.epoch == hello.epoch - 1:
            return
        newest = self._snapshots.final(hello.epoch - 1)
        if newest is None or newest.name != self._ended:
            raise ReplicaLost(
                "this process has missed an epoch that another one ran",
                where=self._here,
                hint="A new one starts from the snapshot",
            )

    @property
    def _ends_at(self) -> int | None:
        """The log offset at which an earlier attempt has ended the epoch, where this one has to end alike."""
        hello = self._hello
        if not (hello.stage_attempt or hello.task_attempt):
            return None
        ended = self._snapshots.binding(hello.epoch, hello.fence)
        return metadata.log_offset(ended.meta) if ended is not None else None

    def start(self) -> None:
        self._perform(
            self._live.open_epoch(self._hello.epoch, passed=self._resume_passed, ends_at=self._ends_at)
        )
        self._perform(self._live.tick(self.clock()))  # an epoch may be over before the conduit's first tick

    def _restore(self, hello: Hello, resume: Resume) -> bool:
        """Whether there was anything to return to."""
        recovery = Recovery(hello.epoch, fresh=hello.fresh)
        before = set_aside(self._state_path)
        resuming: Resuming | None = None
        if hello.standby:
            self._snapshots = self._reading = self._reading or self._open_snapshots(0)
        else:
            self._snapshots = self._open_snapshots(hello.fence)
            if hello.fresh:
                resuming = begin_epoch(
                    self._query.checkpoint, self._snapshots, self._origin, hello, self._here
                )
        known = Known(
            hello.fence, resume.passed, resume.log_start, resume.log_start + len(resume.log), hello.moves
        )
        manifest = (
            resuming.find(hello)
            if resuming is not None
            else self._snapshots.latest(
                epoch=hello.epoch,
                fence=hello.fence,
                final_only=hello.fresh,
                usable=lambda found: known.allows(
                    fence=found.fence,
                    log_offset=metadata.log_offset(found.meta),
                    emitted=metadata.emitted(found.meta),
                    before=lambda: self._emitted_before(hello),
                ),
            )
        )
        snapshot: InstanceSnapshot | None = None
        if manifest is not None:
            inside = manifest.epoch == hello.epoch
            restore_state(self._snapshots, manifest, self._state_path, before, self._here if inside else None)
            snapshot = metadata.decode(manifest.meta, self._reader.row_class)
            if inside and resuming is None:
                self._covered = BundlesTaken(metadata.taken(manifest.meta))
            self._sequence = manifest.sequence + 1
        shutil.rmtree(before, ignore_errors=True)
        self._state = KeyedState(self._state_path, cache_entries=self._query.settings.state_cache)
        recovery.done("state")
        own, held = self._open_log(hello)
        recovered = self._recover(hello, resume, known, snapshot, own)
        if resuming is not None and manifest is not None and snapshot is not None:
            resuming.begin(manifest, snapshot, recovered, held)
            recovery.resumed = snapshot.log_offset - snapshot.epoch_log_offset
        recovery.done("log")
        self._instance = self._make_instance()
        self._instance.restore(
            snapshot,
            own_before=recovered.before,
            recorded=recovered.recorded,
            held=held,
            received=recovered.received,
            numbers_from=self._query.numbers_from,
        )
        if not hello.standby:
            self._lead(self.recovered_end)
        recovery.done("function")
        if snapshot is None and not recovered.recorded:
            return False
        self._recovery = recovery
        self._to_repeat = len(recovered.recorded)
        return True

    def _open_snapshots(self, fence: int) -> SnapshotStore:
        """With fence 0 to read only, as standbys do."""
        return SnapshotStore(self._snapshot_root, fence=fence, pending=self._pending_path)

    def _emitted_before(self, hello: Hello) -> int:
        """The number of the last row of the epochs before."""
        manifest = self._snapshots.beginning(hello.epoch, hello.fence)
        return max(self._query.numbers_from, metadata.emitted(manifest.meta) if manifest is not None else 0)

    def _open_log(self, hello: Hello) -> tuple[OwnLog | None, list[bytes]]:
        """The own log and the received deltas that this host has kept. A damaged store is set aside, not trusted in
        part: the others are asked for what it held (None)."""
        os.makedirs(self._log_path, exist_ok=True)
        try:
            self._log = LogStore(self._log_path)
            try:
                if self._node.standbys and self._log.incarnations() is None:
                    self._log.begin(None)
                own = OwnLog(list(self._log.own()), self._log.incarnations() or ())
                return own, list(self._log.deltas())
            except LogCorrupt:
                self._log.close()
                raise
        except LogCorrupt as error:
            aside = os.path.join(
                self._query.data, "damaged", f"{self._origin.node}-{self._origin.instance}-{hello.fence}"
            )
            os.makedirs(os.path.dirname(aside), exist_ok=True)
            os.rename(self._log_path, aside)
            log(
                "log_damaged",
                f"the causal log is damaged and was moved to {aside}; the other holders are asked: {error}",
            )
            os.makedirs(self._log_path)
            self._log = LogStore(self._log_path)
            if self._node.standbys:
                self._log.begin(None)
            return None, []

    def _recover(
        self,
        hello: Hello,
        resume: Resume,
        known: Known,
        snapshot: InstanceSnapshot | None,
        own: OwnLog | None,
    ) -> Recovered:
        """The own log from the snapshot on, from whoever may know it."""
        offset = snapshot.log_offset if snapshot is not None else 0
        kept = bytes(resume.log)
        retrieval = retrieve(
            self._origin,
            offset,
            own,
            kept,
            known=known,
            fresh=hello.fresh,
            where=self._here,
            alone=not self._node.standbys,
            since=snapshot.epoch_log_offset
            if snapshot is not None and snapshot.epoch == hello.epoch
            else None,
        )
        if retrieval.too_early and not hello.fresh:
            # Damage to the length of a record in a write-ahead log shows in no other way: it looks like an append that
            # never ended, and RocksDB takes what lies before it for everything.
            log(
                "log_too_short",
                f"the causal log in {self._log_path} lacks what its conduit has seen: the other holders are asked",
            )
        answers = []
        if retrieval.ask_others or hello.standby:
            answers = holders.ask(self._query, self._origin, retrieval.base, where=self._here)
        recovered = retrieval.put_together(answers, where=self._here)
        at, pieces = recovered.missing(own)
        if pieces or at < self._log.end:
            self._log.rewrite_own(at, pieces)
        return recovered

    def _make_instance(self) -> Instance:
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
        self._operator = node.operator()
        operator = self._watchdog.watch(self._operator)
        self._watchdog.on_stuck = lambda row, why: self._stuck(services.where(row), why, row is not None)
        operator.open(services)
        config = InstanceConfig(
            name=node.name,
            origin=self._origin,
            router=_router(node, self._origin.instance),
            keys_of=_keys_of(node.key),
            depth=node.depth,
            recording=node.recording,
            record_at_a_time=self._operator.record_at_a_time,
            watermark_of=_watermark_of(node.event_time, node.zone),
        )
        return Instance(config, operator, services, self)

    def close(self) -> None:
        if self._upload is not None:
            self._upload.join()
        self._let_go()

    def _let_go(self) -> None:
        """Of what is in memory, if anything is."""
        if self._instance is not None:
            self._operator.close()
            self._log.close()
            self._state.close()
            self._instance = None

    # ---------------------------------------------------------------- frames

    @property
    def _live(self) -> Instance:
        assert self._instance is not None
        return self._instance

    @property
    def _here(self) -> Where:
        return Where(self._node.name, self._origin.instance, self._hello.epoch)

    def warn(self, hello: Hello, previous: Mapping[str, Any] | None) -> None:
        self._suspect.warn(hello, previous)

    def look(self) -> None:
        self._watchdog.look()

    def _stuck(self, where: Where, why: str, known: bool) -> None:
        """The process is about to end itself."""
        if known:
            self._suspect.blame(where)
        with contextlib.suppress(ConduitGone):
            self._connection.send(pack_error("ReplicaLost", f"{why} ({where})", retryable=True))

    def bundle(self, bundle: Bundle) -> None:
        self._covered.take(bundle.seq, self._here)
        records = self._reader.read(bundle.batch)
        actions = self._carefully(records) if self._live.care is not None else self._live.take(records)
        self._taken = bundle.seq
        self._perform(actions)
        if self._hello.standby:
            self._connection.send(self.where_it_is())
            return
        if not any(isinstance(action, Emit) for action in actions):
            self._connection.send(self.where_it_is())
        if self._faults.active:
            self._faults.reached(Point.INPUT, self._hello.epoch, self._live.processed)
        self._snapshot_if_due()

    def where_it_is(self) -> Packed:
        """An OUTPUT frame without rows."""
        return pack_output(self._taken, self._live.passed, self._live.log_offset)

    def _carefully(self, records: Records) -> list[Action]:
        """One record at a time, each written down before it is run, until the first bundle that nobody finished."""
        for at, row in enumerate(records.rows):
            channel, position = int(records.channels[at]), int(records.positions[at])
            one = Records([channel], [position], [row], records.deltas if at == 0 else ())
            self._perform(self._live.take(one))
        if self._asked:
            self._suspect.passed()
            self._live.care, self._asked = None, False
        return []

    def may_run(self, doubt: Doubt) -> bool:
        """For the core (`Care`): what kills every process ends the query, or is kept in a letter and passed over."""
        self._asked = True
        where = replace(self._here, channel=doubt.channel, position=doubt.position)
        if self._suspect.about_to_run(where, zlib.crc32(repr(doubt.row).encode("utf-8", "surrogatepass"))):
            return True
        if not self._node.dead_letters:
            raise self._suspect.poison(where)
        if not doubt.alone or not self._suspect.by_itself(where):
            why = "timers after it" if doubt.alone else "its bundle, of which a part is recorded,"
            raise self._suspect.poison(
                where, f"No letter can help, since {why} may be what kills: mend the function"
            )
        (key,) = _keys_of(self._node.key)([doubt.row])
        place = self._letters.write(
            doubt, key, self._operator, self._services, self._hello.epoch, self._suspect.deaths(where)
        )
        log(
            "record_passed_over",
            f"a record that ended every process was passed over ({where}); it is kept in {place}",
        )
        return False

    def tick(self) -> None:
        self._perform(self._live.tick(self.clock()))
        self._snapshot_if_due()

    def end(self, seq: int) -> int:
        self._faults.reached(Point.BEFORE_SNAPSHOT, self._hello.epoch)
        self._covered.end(seq, self._here)
        self._perform(self._live.end_epoch())
        if self._upload is not None:
            self._upload.join()
            self.finished()
        pending = self._begin_snapshot(final=True)
        self._snapshots.finish(pending)
        self._ended = pending.name
        self._snapshot_taken()
        self._faults.reached(Point.AFTER_SNAPSHOT, self._hello.epoch)
        return self._live.passed

    def _perform(self, actions: Iterable[Action]) -> None:
        if self._recovery is not None and self._live.state is RecoveryState.LIVE:
            self.recovered = self._recovery.live(self._to_repeat)
            self._recovery = None
        frames: list[Packed] = []
        for action in actions:
            if isinstance(action, Persist):
                self.persist(action, durable=False)
            elif not self._hello.standby:
                frames.append(self._output(action))
        if frames:
            if self._faults.active and self._faults.armed(
                Point.OUTPUT, self._hello.epoch, self._live.processed
            ):
                half = to_bytes(frames[-1])
                self._connection.send(*frames[:-1], [half[: len(half) // 2]])
                try:
                    self._faults.reached(Point.OUTPUT, self._hello.epoch, self._live.processed)
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
            metadata.encode(self._live.snapshot(), taken=self._covered.upto),
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
        if self._upload is not None:
            return
        settings = self._query.settings
        now = time.thread_time()
        enough = max(settings.snapshot_work, SNAPSHOT_SHARE * self._snapshot_cost)
        worked = now - self._work_snapped >= enough
        if worked or time.monotonic() - self._last_snapshot >= settings.snapshot_interval:
            prepared = self._state.prepare()
            if prepared:
                # A conduit that is told to forget the log up to here believes that it, and the standby, have had it.
                self._perform(self._live.flush())
                reached = (self._taken, self._live.log_offset)
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
            self._snapshots.forget(before_epoch=epoch)

    # -------------------------------------------- InstancePorts, for the core

    def clock(self) -> int:
        return time.time_ns() // 1000

    def entropy(self) -> int:
        return random.SystemRandom().getrandbits(64)

    def encode(self, rows: list[Row]) -> EncodedRows:
        # What is repeated has fitted the schema once, and is seldom handed on again.
        return self._writer.encode(rows, lazily=self._live.state is RecoveryState.REPLAYING)

    def persist(self, persist: Persist, *, durable: bool) -> None:
        own = (persist.own_start, b"".join(persist.own)) if persist.own else None
        if own is not None or persist.deltas:
            self._log.append(persist.deltas, own)
        if durable:
            self._log.sync()

    def secure(self, due: Sequence[Emit], log_start: int, log: bytes) -> None:
        self._perform(due)
        if not self._node.standbys:
            return  # the store here is where whoever takes over looks
        with self._watchdog.waiting():
            self._connection.send(pack_secure(log_start, log))
            said = parse(self._connection.next_of(FrameType.SECURED))
            if not isinstance(said, Secured) or said.log_end < log_start + len(log):
                raise ProtocolError(f"SECURE up to {log_start + len(log)} was answered with {said}")
            # Whoever has claimed the instance since then has asked this store, and knows of the effect.
            self._snapshots.check()


def _router(node: NodeSpec, instance: int) -> Router:
    route = node.route
    assert route is not None
    if route.kind is RouteKind.KEY:
        return route_by_key(route.columns, route.parallelism, zone=zone_of(node.zone) or dt.UTC)
    return route_to(instance % route.parallelism)


def _keys_of(columns: tuple[int, ...]) -> Callable[[list[Row]], list[Row]]:
    if not columns:
        return lambda rows: [()] * len(rows)
    if len(columns) == 1:
        only = columns[0]
        return lambda rows: [(row[only],) for row in rows]
    return lambda rows: [tuple([row[c] for c in columns]) for row in rows]


def _watermark_of(event_time: tuple[int, int] | None, zone: str) -> Callable[[list[Row]], int | None] | None:
    if event_time is None:
        return None
    column, delay = event_time
    local = zone_of(zone) or dt.UTC
    start = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    microsecond = dt.timedelta(microseconds=1)

    def reached(rows: list[Row]) -> int | None:
        latest = max((row[column] for row in rows if row[column] is not None), default=None)
        if latest is None:
            return None
        aware: dt.datetime = latest if latest.tzinfo is not None else latest.replace(tzinfo=local)
        return (aware - start) // microsecond - delay

    return reached

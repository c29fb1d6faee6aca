"""The surroundings of an operator's instance inside a replica process: its function, log store, keyed state, snapshots
and conduit. What is done with them, and in which order, is `protocol.roles.operator_session`'s matter.

Of a snapshot inside an epoch only the hard links are made in the instance's thread; a thread of its own stores it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from clonos.errors import LogCorrupt, ProtocolError, RecoveryTimeout, Where
from clonos.operators.function_code import code_of
from clonos.operators.intercept.operator import InterceptedOperator
from clonos.operators.kept_entries import keeps_entries
from clonos.protocol.destination import NOWHERE
from clonos.protocol.engine.instance import Bundle as Records, Emit, Instance, InstanceSnapshot, Row
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.fence import LOWEST_FENCE, Fence, Generation
from clonos.protocol.ids import Epoch, InstanceId, LogOffset, Origin, OutputNumber
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.line.recovery_line import RecoveryLine, Resume as Resumption
from clonos.protocol.line.snapshot_name import Since, SnapshotName
from clonos.protocol.line.unrecorded_commit import UnrecordedCommit
from clonos.protocol.ports import InstancePorts
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.delta import still_needed
from clonos.protocol.recovery.causal.delta_journal import fold_deltas
from clonos.protocol.recovery.causal.holding import Damage
from clonos.protocol.recovery.causal.longest_prefix import RecoveryState
from clonos.protocol.recovery.causal.own_log import OwnLog, Writer
from clonos.protocol.recovery.causal.retrieval import OpenedLog, Recovered
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.quarantine import CandidateRecord
from clonos.protocol.recovery.rollback.rounds import StoredRound
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.crash_marks import CrashMarks
from clonos.protocol.roles.death import Death
from clonos.protocol.roles.incarnation_ports import Reached
from clonos.protocol.roles.operator_ports import Moment, OperatorPorts, SnapshotStored
from clonos.protocol.roles.operator_session import OperatorSession
from clonos.protocol.roles.snapshot_candidate import Candidate
from clonos.protocol.roles.steps import Steps, carry_out
from clonos.storage import salvage
from clonos.storage.archive_keys import read_keys
from clonos.storage.boot import boot_id
from clonos.storage.commit_files import newest_commit
from clonos.storage.effects_mark import EffectsMark
from clonos.storage.epoch_plan import keep_plan
from clonos.storage.event_medium import NO_EVENTS
from clonos.storage.event_place import EventPlace
from clonos.storage.increment import Increment
from clonos.storage.kept_deltas import KeptDeltaRows
from clonos.storage.keyed_state import KeyedState
from clonos.storage.log_store import LogStore
from clonos.storage.manifest import Manifest
from clonos.storage.recovery_line_file import read_line
from clonos.storage.snapshots import PendingSnapshot, SnapshotStore
from clonos.storage.timers import EVENT_TIME, PROCESSING_TIME, TimerQueue
from clonos.storage.unrecorded_file import last_unrecorded
from clonos.testing.faults import FaultInjector, Point
from clonos.wire.epoch_report import EpochReport
from clonos.wire.framing import FrameType, Packed, to_bytes
from clonos.wire.messages import (
    Bundle,
    Hello,
    LogFlushed,
    pack_checkpointed,
    pack_error,
    pack_flush_log,
    pack_output,
    pack_passed_over,
    parse,
)
from clonos_standby.cluster.spec import NodeSpec, QuerySpec
from clonos_standby.replica import holders, snapshot_metadata as metadata
from clonos_standby.replica.archivist import Archivist
from clonos_standby.replica.batches import BlockLimits, BundleReader, EncodedRows, OutputWriter, SplitRows
from clonos_standby.replica.connection import ConduitGone, Connection
from clonos_standby.replica.dead_letters import Letters
from clonos_standby.replica.instance_config import instance_config, keys_of, snapshot_limits
from clonos_standby.replica.outcomes import Outcomes
from clonos_standby.replica.progress import Recovery
from clonos_standby.replica.sent_frames import SentFrames
from clonos_standby.replica.snapshot_upload import Upload, Uploads
from clonos_standby.replica.watchdog import Watchdog
from clonos_standby.server.crash_mark_file import CrashMarkFile
from clonos_standby.server.log import log

_COMMIT_POLL_SECONDS = 0.05

PARTS = {Reached.STATE: "state", Reached.LOG: "log", Reached.FUNCTION: "function"}
_STRUCK_AT = {
    Moment.INPUT_ENDED: Point.BEFORE_SNAPSHOT,
    Moment.LAST_SNAPSHOT_STORED: Point.AFTER_SNAPSHOT,
    Moment.BUNDLE_TAKEN: Point.INPUT,
}
"""Where a fault script strikes."""


class OperatorHost(OperatorPorts[Manifest, PendingSnapshot, Packed]):
    """See the module. One per process; single-threaded but for the upload of snapshots."""

    def __init__(self, query: QuerySpec, node: NodeSpec, instance: InstanceId, faults: FaultInjector) -> None:
        assert node.output is not None and node.operator is not None
        self._origin = Origin.of(node.number, instance)
        self._query = query
        self._node = node
        self._faults = faults
        self._reader = BundleReader(node.input, node.zone, right=node.right)
        limits = BlockLimits(query.settings.bundle_rows, query.settings.bundle_bytes)
        read = [route.output for route in node.routes]
        self._writer = OutputWriter(node.outputs, node.zone, node.name, self._origin, limits, read)
        place = f"{node.number}/{instance}"
        self._log_path = os.path.join(query.data, "logs", place)
        self._state_path = os.path.join(query.data, "state", place)
        self._pending_path = os.path.join(query.data, "pending", place)
        self._snapshot_root = f"{query.checkpoint.rstrip('/')}/clonos/state/{place}"
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._reading: SnapshotStore | None = None
        self._uploads = Uploads(self._wake_write)
        self._upload: Upload | None = None
        self._recovery: Recovery | None = None
        self.recovered: dict[str, Any] | None = None
        self.stored_round: StoredRound | None = None
        self._destinations = sum(route.parallelism for route in node.routes)
        self._snapshot_began = 0.0
        self._snapshots_taken = 0
        self._snapshot_seconds = 0.0
        self._output_bytes = 0
        self._delta_bytes = 0
        self._dead_letters = 0
        self._to_repeat = 0
        self._processed_before = 0
        start = hashlib.blake2b(query.token.encode(), digest_size=8).hexdigest()
        path = Path(query.data, "replicas", f"{node.number}-{instance}.suspect")
        self._acts = False
        self._session = OperatorSession(
            node.name,
            self._origin,
            self,
            node.policy.policy(instance),
            may_have_moved=query.may_have_moved,
            crash_marks=CrashMarks(CrashMarkFile(path), start=start, pid=os.getpid()),
            snapshot_limits=snapshot_limits(query.settings, node, self._origin),
            output_number_floor=query.output_number_floor,
            damage_accepted=query.damage_accepted,
            others_keep_logs=node.policy.others_keep_logs,
        )
        self._archivist = _archivist(query, node, self._origin)
        self._watchdog = Watchdog(query.settings.function_deadline)
        self._watchdog.on_event_timers = self._session.quarantine.timers_fire

    # ------------------------------------------------------------------ life

    @property
    def session(self) -> OperatorSession[Manifest, PendingSnapshot, Packed]:
        return self._session

    @property
    def live(self) -> Instance:
        return self._session.live

    @property
    def where(self) -> Where:
        return self._session.incarnation.where

    def figures(self) -> dict[str, float]:
        watermark = self._services.watermark
        return {
            **({} if watermark is None else {"watermark": watermark / 1_000_000}),
            "records": self._session.progress,
            "log_bytes": self.live.log_offset,
            "snapshots": self._snapshots_taken,
            "snapshot_seconds": self._snapshot_seconds,
            "forced_checkpoints": self._session.forced_checkpoints,
            "output_bytes": self._output_bytes,
            "delta_bytes": self._delta_bytes,
            "dead_letters": self._dead_letters,
        }

    def epoch_report(self) -> bytes:
        return EpochReport(self.live.counted, self._state.entries, self._services.epoch_watermark).encode()

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    def promote(self, hello: Hello) -> None:
        self._recovery = Recovery(hello.epoch, fresh=False, promoted=True)
        self._to_repeat = len(self.live.recorded)
        self._processed_before = self.live.processed
        self._reading = None

    def read(self, bundle: Bundle) -> Records:
        if self._archivist is not None:
            self._archivist.take(bundle, self._session.request.epoch)
        return self._reader.read(bundle, self._session.request.epoch)

    def look(self) -> None:
        self._watchdog.look()

    def _stuck(self, where: Where, why: str, known: bool) -> None:
        """The process is about to end itself."""
        if known:
            self._session.quarantine.is_stuck(where)
        with contextlib.suppress(ConduitGone):
            self._connection.send(pack_error("ReplicaLost", f"{why} ({where})", retryable=True))

    def close(self) -> None:
        if self._upload is not None:
            self._upload.join()
        self._session.incarnation.let_go()

    def wakeups(self) -> int:
        return self._wake_read

    def finished(self) -> None:
        stored = self._newly_stored()
        if stored is not None:
            carry_out(self._session.hear_stored(stored))

    # ---------------------------------------------------------------- quarantine

    @property
    def keeps_dead_letters(self) -> bool:
        return self._node.dead_letters

    def checksum(self, candidate: CandidateRecord) -> int:
        return zlib.crc32(repr(candidate.row).encode("utf-8", "surrogatepass"))

    def write_dead_letter(self, candidate: CandidateRecord, where: Where, deaths: Sequence[Death]) -> None:
        (key,) = keys_of(self._node, self._state.tells_folds)([candidate.row])
        epoch = self._session.request.epoch
        place = self._letters.write(candidate, key, self._operator, self._services, epoch, deaths)
        self._dead_letters += 1
        log(
            "record_passed_over",
            f"a record that ended every process was passed over ({where}); it is kept in {place}",
        )

    # ----------------------------------------------- for its beginning

    @property
    def snapshots(self) -> SnapshotStore:
        return self._snapshots

    def open_snapshots(self, request: AttachRequest) -> None:
        self._recovery = Recovery(request.epoch, fresh=request.fresh)
        self._before = _set_aside(self._state_path)
        if request.standby:
            self._snapshots = self._reading = self._reading or self._store_under(LOWEST_FENCE)
        else:
            self._snapshots = self._store_under(request.fence)

    def _store_under(self, fence: Fence) -> SnapshotStore:
        """With fence 0 to read only, as standbys do."""
        appends = self._node.recovery.appends
        return SnapshotStore(
            self._snapshot_root,
            fence=fence,
            pending=self._pending_path,
            events=EventPlace.of(self._query.checkpoint).medium(self._origin) if appends else NO_EVENTS,
            appends=appends,
        )

    def claim(self, fence: Fence) -> None:
        self._snapshots.claim(fence)

    def discard_from(self, epoch: Epoch) -> None:
        self._snapshots.discard_from(epoch)

    def line(self, generation: Generation) -> RecoveryLine:
        return read_line(self._query.checkpoint, generation)

    def commit_record(self) -> CommitRecord | None:
        return newest_commit(self._query.checkpoint)

    def unrecorded_commit(self) -> UnrecordedCommit | None:
        return last_unrecorded(self._query.checkpoint)

    def await_commit(self) -> Steps:
        return self._await(
            f"the commit of epoch {self._session.request.epoch - 1} has not been recorded",
            hint=f"Spark writes {self._query.checkpoint}/commits, and the driver records a commit when it finds it "
            "there: its log says whether it cannot read that folder, or write to the checkpoint or the sink",
        )

    def await_holder(self, origin: Origin) -> Steps:
        return self._await(
            f"checkpoints of other instances depend on the log of {origin}, and no holder has had all of it",
            hint="These instances bring it when they begin: the driver's log has their errors, if they have not "
            "begun",
        )

    def _await(self, what: str, *, hint: str) -> Steps:
        """Of what the recovery waits for. Raises RecoveryTimeout when it has taken too long."""
        deadline = self._query.settings.recovery_deadline
        if self._recovery is not None and self._recovery.seconds > deadline:
            raise RecoveryTimeout(f"{what} within {deadline:g} s", where=self.where, hint=hint)
        time.sleep(_COMMIT_POLL_SECONDS)
        yield from ()

    @property
    def kept_deltas(self) -> KeptDeltaRows:
        return self._kept_deltas

    def keep_plan(self, epoch: Epoch) -> Steps:
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
        kind = self._node.recovery
        self._state = KeyedState(
            self._state_path,
            cache_entries=self._query.settings.state_cache,
            increment=Increment(is_logged=kind.appends) if kind.sends_late else None,
        )
        if kind.logs_messages:
            self._sent_log = SentFrames(self._state, lambda: self._session.acked_input)
        if not kind.repeats:
            self._kept_deltas = KeptDeltaRows(self._state)
        if self._archivist is not None:
            self._archivist.restored(snapshot)
            request = self._session.request
            if found is not None and snapshot is not None and request.fresh and not request.standby:
                name = replace(found.name, fence=request.fence)
                meta = partial(metadata.encode, snapshot.without_log(), acked_input=0)
                self._archivist.keep_beginning(name, self._state, meta, snapshot.log_offset)
        return snapshot

    def resume(self, found: Manifest, resume: Resumption) -> Steps:
        if self._recovery is not None:
            snapshot = metadata.decode(found.meta, self._reader.row_class)
            self._recovery.resumed = snapshot.log_offset - snapshot.epoch_log_offset
        yield from ()
        return self._snapshots.resume(found, metadata.resumed(found.meta, resume.awaited_input))

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
                f"{self._origin.node}-{self._origin.instance}-{self._session.request.fence}",
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
            if self._query.may_have_moved and self._log.incarnations() is None:
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

    def log_is_whole(self, since: LogOffset) -> None:
        self._log.is_whole(since, boot_id())

    def rewrite_log(self, at: LogOffset, pieces: Sequence[Segment], copied_by: Writer | None) -> None:
        self._log.rewrite_own(at, list(pieces), copied_by)

    @property
    def log_end(self) -> LogOffset:
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

    def ask(self, origin: Origin, base: LogOffset) -> Steps:
        yield from ()
        spent = self._recovery.seconds if self._recovery is not None else 0.0
        return holders.ask(self._query, origin, base, where=self.where, spent=spent)

    def reached(self, how_far: Reached) -> Steps:
        if self._recovery is not None and how_far in PARTS:
            self._recovery.done(PARTS[how_far])
        if how_far is Reached.FUNCTION:
            request = self._session.request
            if request.standby:
                self._recovery = None  # it is over when the standby takes over
            elif self._recovery is not None:
                self._faults.reached(Point.RECOVERY, request.epoch)
        yield from ()

    def restored(self, found: Manifest | None, recovered: Recovered) -> None:
        self._to_repeat, self._processed_before = len(recovered.recorded), 0
        if found is None and not recovered.recorded:
            self._recovery = None

    def promoted(self, known: LogOffset) -> None:
        if self._recovery is not None:
            self._recovery.done("fence")

    def make_instance(self, ports: InstancePorts) -> Instance:
        node = self._node
        assert node.operator is not None
        services = self._services = CausalServices(
            state=self._state,
            timers=TimerQueue(self._state, PROCESSING_TIME),
            event_timers=TimerQueue(self._state, EVENT_TIME),
            random=random.Random(),
            outcomes=Outcomes(is_timed=self._archivist is not None),
        )
        services.counts.state = self._state.changes
        intercept, fence = self._query.settings.intercept, self._session.request.fence
        self._letters = Letters(node, self._origin, self._query.checkpoint, fence, intercept=intercept)
        self._operator = node.programs()
        operator = self._watchdog.watch(InterceptedOperator(self._operator) if intercept else self._operator)
        self._watchdog.on_stuck = lambda row, why: self._stuck(services.where(row), why, row is not None)
        services.on_answer = self._watchdog.moved
        operator.open(services)
        config = instance_config(node, self._origin, self._operator, tells_folds=self._state.tells_folds)
        lineage = self._archivist.lineage_recorder(services) if self._archivist is not None else None
        return Instance(config, operator, services, ports, lineage)

    def let_go(self) -> None:
        self._operator.close()
        self._log.close()
        self._state.close()

    # ------------------------------------------------------------------- conduit

    def at(self, moment: Moment) -> Steps:
        if self._faults.active and moment in _STRUCK_AT:
            processed = self._session.progress if moment is Moment.BUNDLE_TAKEN else 0
            self._faults.reached(_STRUCK_AT[moment], self._session.request.epoch, processed)
        yield from ()

    def carries_out(self) -> None:
        if self._recovery is not None and self.live.state is RecoveryState.LIVE:
            records = self.live.processed - self._processed_before
            self.recovered = self._recovery.live(self._to_repeat, records)
            self._recovery = None

    def frame(self, acked_input: int, emit: Emit, ingested: int | None) -> Packed:
        ingested = self.clock() if ingested is None else ingested
        blocks = self._writer.blocks(emit, self._session.request.epoch, ingested)
        self._output_bytes += sum(len(block) for _, block in blocks)
        self._delta_bytes += sum(map(len, emit.deltas.values()))
        rows = sum(len(column) - column.count(NOWHERE) for column in emit.destinations)
        return pack_output(acked_input, emit.emitted_output, emit.log_start, emit.log, rows, blocks)

    @property
    def sent_log(self) -> SentFrames:
        return self._sent_log

    def send(self, frames: Sequence[Packed]) -> Steps:
        self.send_ahead(frames)
        yield from ()

    def send_ahead(self, frames: Sequence[Packed]) -> None:
        epoch, processed = self._session.request.epoch, self.live.processed
        if frames and self._faults.active and self._faults.armed(Point.OUTPUT, epoch, processed):
            half = to_bytes(frames[-1])
            self._connection.send(*frames[:-1], [half[: len(half) // 2]])
            try:
                self._faults.reached(Point.OUTPUT, epoch, processed)
            finally:  # a task's failure is told in a frame of its own
                self._connection.send([half[len(half) // 2 :]])
        elif frames:
            self._connection.send(*frames)

    def acknowledge(self, acked_input: int, emitted_output: OutputNumber, log_offset: LogOffset) -> None:
        self._connection.send(pack_output(acked_input, emitted_output, log_offset))

    def tell_passed_over(self) -> None:
        self._connection.send(pack_passed_over())

    def send_checkpointed(self, acked_input: int, log_offset: LogOffset) -> None:
        self._connection.send(pack_checkpointed(acked_input, log_offset))

    # ------------------------------------------------------- rounds of checkpoints

    def marker_frame(self, round: Round, emitted_output: OutputNumber) -> Packed:
        session, live = self._session, self.live
        markers = self._writer.markers(session.request.epoch, round, self._destinations)
        return pack_output(session.acked_input, emitted_output, live.log_offset, rows=0, blocks=markers)

    def round_stored(self, stored: StoredRound) -> None:
        self.stored_round = stored

    # ----------------------------------------------------------------- snapshots

    def steady_clock(self) -> float:
        return time.monotonic()

    def work(self) -> float:
        return time.thread_time()

    def prepare_snapshot(self) -> bool:
        return self._state.prepare()

    def begin_snapshot(
        self, name: SnapshotName, content: InstanceSnapshot, *, covered: int
    ) -> PendingSnapshot:
        self._snapshot_began = time.monotonic()
        meta = metadata.encode(content, acked_input=covered)
        if self._archivist is not None:
            request, own_from = self._session.request, self._session.incarnation.own_from
            self._archivist.cut(request, content, own_from=own_from, is_end=name.final)

            def archived() -> bytes:
                return metadata.encode(content.without_log(), acked_input=covered) if content.log else meta

            processed = self.live.processed
            self._archivist.keep_state(name, self._state, archived, content.log_offset, processed)
        return self._snapshots.begin(
            self._state, meta, epoch=name.epoch, sequence=name.sequence, final=name.final
        )

    def kept_records(self, records: Records) -> bytes:
        return metadata.kept_records(records)

    def with_content(
        self, pending: PendingSnapshot, content: InstanceSnapshot, *, covered: int
    ) -> PendingSnapshot:
        return replace(pending, meta=metadata.encode(content, acked_input=covered))

    def abandon_snapshot(self, pending: PendingSnapshot) -> None:
        self._snapshots.abandon(pending)

    def store_snapshot(self, pending: PendingSnapshot) -> Steps:
        if self._archivist is not None:
            self._archivist.write_due()
        self._snapshots.store(pending)
        self._note_snapshot()
        yield from ()

    def store_in_background(self, pending: PendingSnapshot) -> None:
        before = None if self._archivist is None else self._archivist.write_due
        self._upload = self._uploads.begin(self._snapshots, pending, before)

    def await_stored(self) -> Steps:
        yield from ()
        assert self._upload is not None
        self._upload.join()
        return self._newly_stored()

    def _newly_stored(self) -> SnapshotStored | None:
        """What has been stored in the background since this was asked last."""
        try:
            os.read(self._wake_read, 64)
        except BlockingIOError:
            return None
        upload, self._upload = self._upload, None
        if upload is None:
            return None
        upload.join()
        if upload.error is None:
            self._note_snapshot()
        return SnapshotStored(upload.error, upload.cost)

    def _note_snapshot(self) -> None:
        self._snapshots_taken += 1
        self._snapshot_seconds += time.monotonic() - self._snapshot_began

    def forget_snapshots(self, epoch: Epoch, since: Since | None) -> None:
        self._snapshots.forget(before_epoch=epoch, since=since)

    # ----------------------------------------------------------------- log store

    def write_log(self, deltas: Sequence[bytes], own: Segment | None) -> None:
        self._log.append(deltas, own)
        if self._archivist is not None and own is not None:
            self._archivist.record(*own)

    def sync_log(self) -> None:
        if not self._acts:
            salvage.note_that_it_acts(self._log_path)
            self._acts = True
        self._log.sync()

    def fold_log(self) -> None:
        self._log.fold(fold_deltas)

    def truncate_log(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        own = truncation_points.get(self._origin)
        if own is not None:
            self._log.truncate_own(own)
            if self._archivist is not None:
                self._archivist.truncate(own)
        self._log.truncate_deltas(lambda raw: still_needed(raw, truncation_points))

    # ------------------------------------------------------------------- effects

    def keep_that_effects_are_used(self) -> None:
        with self._watchdog.waiting():
            self._effects.leave()

    def show_log(self, log_start: LogOffset, log: bytes) -> None:
        with self._watchdog.waiting():
            self._connection.send(pack_flush_log(log_start, log))
            said = parse(self._connection.next_of(FrameType.LOG_FLUSHED))
            if not isinstance(said, LogFlushed) or said.log_end < log_start + len(log):
                raise ProtocolError(f"FLUSH_LOG up to {log_start + len(log)} was answered with {said}")

    def check_claim(self) -> None:
        with self._watchdog.waiting():
            self._snapshots.check()

    # ------------------------------------------------- the function's surroundings

    def clock(self) -> int:
        return time.time_ns() // 1000

    def entropy(self) -> int:
        return random.SystemRandom().getrandbits(64)

    def encode(self, rows: list[Row]) -> EncodedRows | SplitRows:
        # What is repeated has fitted the schema once, and is seldom handed on again.
        return self._writer.encode(rows, lazily=self.live.state is RecoveryState.REPLAYING)


def _archivist(query: QuerySpec, node: NodeSpec, origin: Origin) -> Archivist | None:
    """Where the query has an archive."""
    keep = query.settings.archive_keep
    if not keep or not node.recovery.repeats:
        return None
    program, settings = query.nodes[node.number], query.settings
    return Archivist(
        query.checkpoint,
        query.data,
        origin,
        program,
        keep,
        settings.archive_bytes,
        code=code_of(node.operator),
        intercept=settings.intercept,
        keys=read_keys(settings.archive_key_file),
        query=query.query,
        lineage=settings.archive_lineage and not keeps_entries(node.programs().form),
    )


def _set_aside(state: str) -> str:
    """Where the state has gone that was here: most of a snapshot is in the one that a standby was at."""
    before = f"{state}.before"
    shutil.rmtree(before, ignore_errors=True)
    os.makedirs(os.path.dirname(before), exist_ok=True)
    if os.path.exists(state):
        os.rename(state, before)
    return before

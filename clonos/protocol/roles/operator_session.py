"""What the process of an operator's instance does with what its conduit sends, and what it says, in which order.

It begins as `incarnation` has it. Then bundles come: the instance takes one, what it has recorded is saved, and only
then its rows are sent, with the number of the last bundle that is acknowledged; a bundle of which no rows are due is
acknowledged by itself. An acknowledged bundle is in this process alone, so the conduit keeps it until it hears
CHECKPOINTED: a snapshot that covers it is durable.

Snapshots are taken in the background inside an epoch (`snapshot_schedule`), and at its end in the foreground, for the
stage may only return when the epoch's end is durable. One is stored at a time, so none overtakes another.

A standby takes the same bundles and sends no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Generic, NamedTuple, TypeVar

from clonos.errors import GapError, ResumeFailed
from clonos.protocol.engine.instance import Action, Bundle, Emit, Instance, Persist, Row
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.fence import Fence
from clonos.protocol.ids import LOG_BEGIN, NO_OUTPUT, Epoch, LogOffset, Origin, OutputNumber, epoch_before
from clonos.protocol.ingestion import UNKNOWN, Ingested, PendingInput
from clonos.protocol.line import snapshot_name
from clonos.protocol.ports import Encoded
from clonos.protocol.recovery.coordinated.last_marker import LastMarker
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.policy import (
    BeginCheckpoint,
    CheckpointStep,
    CompleteCheckpoint,
    Decision,
    InstancePolicy,
    KeepInCheckpoint,
)
from clonos.protocol.recovery.rollback.replaceable import (
    check_replaceable,
    gone,
    not_reached,
    run_again,
)
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.protocol.recovery.uncoordinated.sent_log_truncation import SentLogTruncation
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.crash_marks import CrashMarks
from clonos.protocol.roles.incarnation import Incarnation
from clonos.protocol.roles.operator_ports import Moment, OperatorPorts, SnapshotStored
from clonos.protocol.roles.record_quarantine import RecordQuarantine, singly
from clonos.protocol.roles.snapshot_schedule import SnapshotLimits, SnapshotSchedule
from clonos.protocol.roles.steps import Steps

_ROWS_TOGETHER: Final = 1000
"""Rows in bundles that are taken as one."""
_MOST_UNSENT: Final = 64
"""Frames that wait for a checkpoint before no more input is taken."""


class _Storing(NamedTuple):
    """What a snapshot covers that is being stored: bundles, the log, and frames that wait for it; and which checkpoint
    it is to the driver, if it is told of it."""

    acked_input: int
    log_offset: LogOffset
    round: Round | None
    frames: int


S = TypeVar("S")
PendingT = TypeVar("PendingT")
FrameT = TypeVar("FrameT")


class _Begun(NamedTuple, Generic[PendingT]):
    """A snapshot whose state is fixed: what the instance says of it, the last bundle of the task attempt in it, what it
    covers, and the states of its channels so far."""

    pending: PendingT
    content: InstanceSnapshot
    bundles: int
    covers: _Storing
    channel_state: list[bytes]


class OperatorSession(Generic[S, PendingT, FrameT]):
    """See the module. It is also what the instance asks (`protocol.ports.InstancePorts`)."""

    def __init__(
        self,
        name: str,
        origin: Origin,
        ports: OperatorPorts[S, PendingT, FrameT],
        policy: InstancePolicy,
        *,
        may_have_moved: bool,
        crash_marks: CrashMarks,
        snapshot_limits: SnapshotLimits,
        output_number_floor: OutputNumber = NO_OUTPUT,
        damage_accepted: bool = False,
        others_keep_logs: bool = False,
    ) -> None:
        """`others_keep_logs`: checkpoints of other instances have logs of this one (`causal.kept_deltas`)."""
        self._name = name
        self._ports = ports
        self._policy = policy
        self._truncation = SentLogTruncation()
        self._heard = Rounds()
        self._is_open = False
        self._is_restoring = False
        self._may_have_moved = may_have_moved
        self.incarnation: Incarnation[S] = Incarnation(
            name,
            origin,
            ports,
            self,
            may_have_moved=may_have_moved,
            repeats=policy.kind.repeats,
            keeps_sent=policy.kind.logs_messages,
            others_keep_logs=others_keep_logs,
            output_number_floor=output_number_floor,
            damage_accepted=damage_accepted,
        )
        self.quarantine = RecordQuarantine(ports, crash_marks, lambda: self.incarnation.where)
        self._schedule = SnapshotSchedule(snapshot_limits, now=ports.steady_clock(), work=ports.work())
        self._mark_interval = snapshot_limits.interval
        self._mark_due = 0.0  # by the steady clock
        self._acked_input = 0
        self._covered: int | None = None  # while one is taken or held: the last bundle before it
        self._input = PendingInput()
        self._storing: _Storing | None = None
        self._begun: _Begun[PendingT] | None = None  # a checkpoint that its channels' states still lack
        self.forced_checkpoints = 0  # by rows that came
        self._has_moved = False  # since the last snapshot
        # What waits for a snapshot, or for the commit of the epoch before
        self._unsent: list[tuple[OutputNumber, FrameT]] = []
        self._frames_sent = 0  # before these
        self._frames_stored = 0  # of all, those that do not wait for a snapshot any more
        self._sent_output = NO_OUTPUT  # the number of the last row that has left, in this task attempt

    # ------------------------------------------------------------------ life

    @property
    def live(self) -> Instance:
        return self.incarnation.live

    @property
    def acked_input(self) -> int:
        """The number of the last bundle that has been taken."""
        return self._acked_input

    @property
    def request(self) -> AttachRequest:
        return self.incarnation.request

    @property
    def progress(self) -> int:
        """Records processed."""
        return self.live.processed if self.incarnation.is_there else 0

    @property
    def recovered_end(self) -> LogOffset:
        """The offset up to which the instance has its log, as the conduit is to know it."""
        return self.incarnation.recovered_end if self._policy.kind.repeats else LOG_BEGIN

    def attach(self, request: AttachRequest) -> Steps:
        """A conduit has connected: restore, if the instance is not in memory."""
        self._acked_input, self._covered = 0, None
        self._give_up_begun()
        self._unsent, self._sent_output = [], request.emitted_output
        self._frames_sent = self._frames_stored = 0
        check_replaceable(self._policy, request, self._name)
        is_suspect = self.quarantine.begin(request)
        self._is_restoring = True
        try:
            yield from self.incarnation.serve(request)
        except ResumeFailed as error:
            raise error if self._policy.kind.repeats else gone(error) from error
        self._is_restoring = False
        if not self._policy.kind.repeats and self.incarnation.ends_at is not None:
            raise run_again(request, self._name)
        if self._policy.goes_back:
            self._ports.snapshots.keep_from(0)
        is_inside = self.incarnation.unread is not None
        self._truncation.begin(self.incarnation.unkept if is_inside else dict(self.live.sent))
        self._policy.begin_epoch()
        if self.incarnation.kept_of_policy:
            self._policy.resume(self.incarnation.kept_of_policy, request.generation)
        self._begin_input()
        self.live.quarantine = self.quarantine if is_suspect else None

    def open_epoch(self) -> Steps:
        """The conduit has been welcomed. What was recovered is repeated from now on.

        In micro-batch Spark writes down what the epoch reads, and does not sync it. Nothing that is made of it may
        outlive that: the epoch would come out with other records, perhaps fewer than instances have had.
        """
        request = self.request
        if not request.realtime:
            yield from self._ports.keep_plan(request.epoch)
        try:
            opened = self.live.open_epoch(
                request.epoch,
                realtime=request.realtime,
                emitted_output=request.emitted_output,
                ends_at=self.incarnation.ends_at,
            )
        except GapError as error:
            damage = self._ports.snapshots.corrupt
            raise error if self._policy.kind.repeats else not_reached(error, damage) from error
        if self._policy.kind.logs_messages:
            yield from self._send_again()
        yield from self.perform(opened)
        # An epoch may be over before the conduit's first tick.
        yield from self.perform(self.live.tick(self.clock()))
        self._input_is_used()
        self._is_open = True
        yield from self._carry_out(self._policy.begin_round(self._rounds.open))
        if self._unsent:
            yield from self._snapshot_if_due()

    def _send_again(self) -> Steps:
        """What was under way at the recovery line, or the conduit lacks of a process that was lost, before anything
        new. The checkpoint of a lost process may not be the last that comes to be: another lost one may have been
        storing its own. So what is in it waits for one of this process."""
        sent_log, unread = self._ports.sent_log, self.incarnation.unread
        if unread is None:
            sent_log.clear()
            self._sent_output = self.live.emitted_output
            return
        if self._policy.kind.sends_late:
            self._unsent += self._with_last_marker(sent_log.frames(unread))
            if self.request.fresh:  # it has stored what it begins with under its own name
                self._frames_stored = self._frames_made
                self._release()
        else:
            for _, frame in sent_log.frames(unread):
                yield from self._ports.send([frame])

    def _with_last_marker(
        self, frames: Iterable[tuple[OutputNumber, FrameT]]
    ) -> list[tuple[OutputNumber, FrameT]]:
        """Its reader may lack the marker if the conduit has no row from behind it."""
        found, marker = list(frames), self._policy.last_marker
        if marker is None:
            return found
        self._ports.round_stored(StoredRound(self.request.epoch, marker.round))
        if self.request.emitted_output <= marker.behind:
            at = next((at for at, (last, _) in enumerate(found) if last > marker.behind), len(found))
            found.insert(at, (marker.behind, self._ports.marker_frame(marker.round, marker.behind)))
        return found

    def stand_by(self, request: AttachRequest) -> Steps:
        """Restore, and follow the replica from there."""
        self._acked_input = 0
        # For later replicas of the instance: a standby repeats what others have run
        self.quarantine.begin(request)
        yield from self.incarnation.stand_by(request)
        self._begin_input()
        opened = self.live.open_epoch(
            request.epoch, realtime=request.realtime, ends_at=self.incarnation.ends_at
        )
        yield from self.perform(opened)
        yield from self.follow(request.log_start, request.log)

    def follow(self, log_start: LogOffset, log: bytes) -> Steps:
        """The replica's log goes on with this."""
        yield from self.perform(self.live.follow(log_start, log))
        self._input_is_used()

    def take_over(self, fence: Fence, emitted_output: OutputNumber) -> Steps:
        """The replica is lost, and this is it now; the conduit has rows up to `emitted_output`."""
        self.incarnation.take_over(
            replace(self.request, fence=fence, emitted_output=emitted_output, standby=False)
        )
        self._schedule.begin(self._ports.steady_clock(), self._ports.work())
        yield from self.perform(self.live.go_live(emitted_output))
        self._input_is_used()

    def end_standby(self, last: int) -> None:
        self.incarnation.end_standby(last)

    def commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """An epoch has committed: forget the logs before these offsets, and the snapshots before its end."""
        if not self.incarnation.is_there:
            return
        self.live.truncate(truncation_points)
        self._ports.truncate_log(truncation_points)
        if not self._policy.kind.repeats:
            self._ports.kept_deltas.forget(truncation_points)
        if not self.request.standby:
            self._ports.forget_snapshots(epoch, self.incarnation.begun)

    @property
    def _rounds(self) -> Rounds:
        """Those of the start that the instance runs in. It may hear of the next one before that asks for it."""
        return self._heard.in_start(self.request.generation)

    def hear_rounds(self, rounds: Rounds) -> Steps:
        """How far the rounds of this start of the query are."""
        self._heard = self._heard.newest(rounds)
        if self._policy.kind.logs_messages and self.incarnation.is_there:
            self._forget_before_safe_line()
            if self._is_open:
                self._release()
        if self._is_open:
            yield from self._carry_out(self._policy.begin_round(self._rounds.open))

    def _forget_before_safe_line(self) -> None:
        safe = self._rounds.safe.get(self.incarnation.origin)
        if safe is not None and safe.stored.epoch == self.request.epoch:
            if (cut := self._truncation.pass_safe_line(safe.unread)) is not None:
                self._ports.sent_log.forget(cut)
            if self._policy.goes_back:
                self._ports.snapshots.keep_from(safe.stored.round)

    def conduit_is_gone(self) -> None:
        """A round is not begun for no reader."""
        self._is_open = False

    # ----------------------------------------------------------------- input

    def takes_another(self, rows: int) -> bool:
        """While what was recorded is repeated: the recording says of which records a step is, so bundles cost time and
        mean nothing. Of what is new the bundle is a step, as it would have been without the failure."""
        return rows < min(_ROWS_TOGETHER, self.live.awaited_by_recording)

    def bundle(self, seq: int, records: Bundle, first: int | None = None) -> Steps:
        self._has_moved = True
        if self._covered is None:
            self._covered = self.incarnation.bundles.upto
        self.incarnation.bundles.take(seq, self.incarnation.where, first=first)
        is_told = yield from self._carry_out(self._policy.arrive(records), seq)
        if not self._policy.is_aligning:
            self._covered = None
        self._acked_input = seq
        if self.request.standby:
            self.acknowledge()
            return
        if not is_told:
            self.acknowledge()
        if not self._policy.kind.replaces:  # no other process will be sent it
            self._ports.send_checkpointed(self._acked_input, self._log_offset)
        yield from self._ports.at(Moment.BUNDLE_TAKEN)
        yield from self._snapshot_if_due()
        yield from self._bound_unsent()

    def _bound_unsent(self) -> Steps:
        """Storage, or the commit of the epoch before, may be slower than the input. What waits for the end of input
        that an operator gathers is not waited for here."""
        while len(self._unsent) > _MOST_UNSENT and (self._may_release or not self.live.holds):
            yield from self._await_release()

    @property
    def _may_release(self) -> bool:
        """Whether something is stored, or being stored, that has not been sent."""
        return self._storing is not None or self._frames_stored > self._frames_sent

    def _await_release(self) -> Steps:
        if self._storing is not None:
            self.snapshot_stored((yield from self._ports.await_stored()))
        else:
            yield from self.incarnation.await_commit_before()
            self._release(is_committed=True)
        yield from self._snapshot_if_due()

    def _carry_out(self, decisions: Iterator[Decision], seq: int | None = None) -> Steps:
        """Of bundle `seq`, if of any. Whether rows have been sent, which tell the conduit what has been taken."""
        is_told = False
        for decision in decisions:
            if not isinstance(decision, Bundle):
                yield from self._checkpoint(decision)
                continue
            live = self.live
            self._input.take(decision.ingested)
            actions = (
                live.take(decision) if live.quarantine is None else (yield from self._take_singly(decision))
            )
            if seq is not None:
                self._acked_input = seq
            yield from self.perform(actions)
            self._input_is_used()
            is_told = is_told or any(isinstance(action, Emit) for action in actions)
        return is_told and not self._policy.kind.sends_late

    def _take_singly(self, records: Bundle) -> Steps:
        """Each record is saved before the next one may end the process. The bundle is acknowledged by itself."""
        known = min(self.live.awaited_by_recording, len(records.rows))
        for record in singly(records, known):
            yield from self.perform(self.live.take(record))
        if self.quarantine.is_over():
            self.live.quarantine = None
        return []

    def tick(self) -> Steps:
        yield from self.perform(self.live.tick(self.clock()))
        self._input_is_used()
        yield from self._snapshot_if_due()
        yield from self._bound_unsent()

    def end(self, last: int) -> Steps:
        """The input ended with this bundle: make that durable. The number of the last output row."""
        ports = self._ports
        yield from ports.at(Moment.INPUT_ENDED)
        self.incarnation.bundles.end(last, self.incarnation.where)
        self._is_open = False
        yield from self._carry_out(self._policy.end_input())
        self._covered = None
        self._give_up_begun()
        yield from self.perform(self.live.end_epoch())
        self._input_is_used()
        if self._storing is not None:
            self.snapshot_stored((yield from ports.await_stored()))
        while self._unsent and self._frames_made > self._frames_stored:
            # Not with the last snapshot: that counts when the epoch has committed, and readers have this before.
            begun = yield from self._fix_state()
            self._storing = begun.covers
            yield from ports.store_snapshot(begun.pending)
            self.snapshot_stored(SnapshotStored())
        while self._unsent:
            yield from self.incarnation.await_commit_before()
            self._release(is_committed=True)
        name = self.incarnation.name_snapshot(final=True)
        ports.fold_log()
        content = self._with_truncation(self.incarnation.epoch_end())
        content.kept_of_policy = self._policy.take_checkpoint(counts=False)
        pending = ports.begin_snapshot(name, content, covered=self.incarnation.bundles.upto)
        self._schedule.begin(ports.steady_clock(), ports.work())
        yield from ports.at(Moment.LAST_SNAPSHOT_BEGUN)
        yield from ports.store_snapshot(pending)
        self.incarnation.has_ended(name)
        yield from ports.at(Moment.LAST_SNAPSHOT_STORED)
        return self.live.emitted_output

    # ------------------------------------------------------------- ingestion

    def _begin_input(self) -> None:
        self._input = PendingInput()
        self._input.take(Ingested(*counted, UNKNOWN) for counted in self.live.waiting.items())

    def _input_is_used(self) -> None:
        """Until an operator that gathers gives its rows, they may be made of all that was taken."""
        if not self.live.holds:
            self._input.keep(self.live.waiting)

    # ---------------------------------------------------------------- output

    def _frame(self, emit: Emit) -> FrameT:
        return self._ports.frame(self._acked_input, emit, self._input.oldest)

    def perform(self, actions: Iterable[Action]) -> Steps:
        """What is to be saved is saved before any row leaves; then all rows leave in one write."""
        ports, standby = self._ports, self.request.standby
        ports.carries_out()
        frames: list[tuple[OutputNumber, FrameT]] = []
        for action in actions:
            if isinstance(action, Persist):
                yield from ports.at(Moment.IS_ABOUT_TO_SAVE)
                self.persist(action, durable=False)
            else:
                yield from ports.at(Moment.IS_ABOUT_TO_EMIT)
                self._has_moved = True
                if standby:
                    ports.repeats(action)
                    continue
                emit = self._policy.send(action)
                frame = self._frame(emit)
                frames.append((emit.emitted_output, frame))
                if self._policy.kind.logs_messages and emit.count:
                    ports.sent_log.keep(emit, frame)
        if self._policy.kind.sends_late:
            self._unsent += frames
        elif frames:
            yield from ports.send([frame for _, frame in frames])

    def acknowledge(self) -> None:
        """Say where the instance stands, without rows."""
        emitted = self._sent_output if self._policy.kind.sends_late else self.live.emitted_output
        self._ports.acknowledge(self._acked_input, emitted, self._log_offset)

    # ------------------------------------------------------------- snapshots

    def _snapshot_if_due(self) -> Steps:
        ports = self._ports
        if not self._policy.kind.checkpoints_alone or self._storing is not None or self.live.holds:
            return
        if self._unsent and self._frames_made > self._frames_stored:
            self._store_in_background((yield from self._fix_state()))
            return
        if not self._has_moved and not self._policy.kind.repeats:
            return  # the last checkpoint has all there is
        work = ports.work()
        if not self._schedule.is_due(ports.steady_clock(), work):
            return
        is_ready = ports.prepare_snapshot()
        if is_ready:
            self._store_in_background((yield from self._fix_state()))
        self._schedule.prepare(ports.work() - work, is_done=is_ready)

    def _fix_state(self, round: Round | None = None, *, is_forced: bool = False) -> Steps:
        """Inside an epoch, of a round or of this instance alone; it is to be stored in the background. The result is
        `_Begun`."""
        ports = self._ports
        yield from ports.at(Moment.SNAPSHOT_BEGINS)
        # A conduit that is told to forget the log up to here believes that it, and the standby, have had it.
        yield from self.perform(self.live.flush())
        self._has_moved = False
        if round is not None and self._policy.kind.sends_late:
            self._send_marker_when_stored(round)
        is_marked = self._is_mark_due(round, is_forced=is_forced)
        only_rounds = self._policy.in_rounds and self._policy.goes_back
        name = self.incarnation.name_snapshot(final=False, marked=is_marked, unmarked=only_rounds)
        number = round if self._policy.in_rounds else Round(name.sequence)
        bundles = self.incarnation.bundles.upto if self._covered is None else self._covered
        covers = _Storing(min(self._acked_input, bundles), self._log_offset, number, self._frames_made)
        ports.fold_log()
        content = self._with_truncation(self.live.snapshot())
        content.kept_of_policy = self._policy.take_checkpoint(counts=snapshot_name.is_marked(name.sequence))
        pending = ports.begin_snapshot(name, content, covered=bundles)
        self._schedule.begin(ports.steady_clock(), ports.work())
        return _Begun(pending, content, bundles, covers, [])

    def _with_truncation(self, content: InstanceSnapshot) -> InstanceSnapshot:
        """It says what its log of what was sent lacks, which is cut there when the safe line has passed it."""
        if self._policy.kind.logs_messages:
            content.unkept = self._truncation.unkept
            self._truncation.take_checkpoint(content.emitted, content.sent)
        return content

    def _send_marker_when_stored(self, round: Round) -> None:
        """Behind what has been made so far. It is in the checkpoint, as what waits to be sent is."""
        behind = self.live.emitted_output
        self._policy.send_marker(LastMarker(self.request.generation, round, behind))
        self._unsent.append((behind, self._ports.marker_frame(round, behind)))

    def _is_mark_due(self, round: Round | None, *, is_forced: bool) -> bool:
        """Whether the driver is to reckon with this one: where a failure may lead to it, and it is of a round, or the
        interval is over, or it is for the sake of what comes."""
        if self._policy.in_rounds:
            return round is not None and self._policy.goes_back
        now = self._ports.steady_clock()
        is_early = self._policy.kind.sends_late and now < self._mark_due and not is_forced
        if not self._policy.goes_back or is_early:
            return False
        self._mark_due = now + self._mark_interval
        return True

    def _checkpoint(self, decision: CheckpointStep) -> Steps:
        """Of a round: what comes behind its marker is not in it, and what the instance sends from now on is behind the
        marker that it sends."""
        if isinstance(decision, KeepInCheckpoint):
            assert self._begun is not None
            self._begun.channel_state.append(self._ports.kept_records(decision.records))
            return
        if isinstance(decision, CompleteCheckpoint):
            assert self._begun is not None
            begun, self._begun = self._begun, None
            content = replace(
                begun.content, channel_state=begun.channel_state, channel_reached=decision.reached
            )
            pending = self._ports.with_content(begun.pending, content, covered=begun.bundles)
            self._store_in_background(begun._replace(pending=pending))
            return
        self._give_up_begun()
        if self._storing is not None:
            self.snapshot_stored((yield from self._ports.await_stored()))
        begun = yield from self._fix_state(decision.round, is_forced=decision.round is None)
        if decision.round is None:
            self.forced_checkpoints += 1
        elif not self._policy.kind.sends_late:
            yield from self._ports.send([self._ports.marker_frame(decision.round, self.live.emitted_output)])
        if isinstance(decision, BeginCheckpoint):
            self._begun = begun
        else:
            self._store_in_background(begun)

    def _give_up_begun(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            self._ports.abandon_snapshot(begun.pending)

    def _store_in_background(self, begun: _Begun[PendingT]) -> None:
        self._storing = begun.covers
        self._ports.store_in_background(begun.pending)

    @property
    def _log_offset(self) -> LogOffset:
        """As far as the conduit is to know: it keeps nothing of a log that is not repeated."""
        return self.live.log_offset if self._policy.kind.repeats else LOG_BEGIN

    @property
    def _frames_made(self) -> int:
        """In this task attempt, of those that wait before they are sent."""
        return self._frames_sent + len(self._unsent)

    def _release(self, *, is_committed: bool = False) -> None:
        """Send what is stored. Until the epoch before has committed Spark may run that again, and with it this one:
        then no snapshot of this one counts."""
        before = epoch_before(self.request.epoch)
        if is_committed or before <= self._rounds.committed or self.incarnation.has_begun_behind(before):
            count = max(self._frames_stored - self._frames_sent, 0)
            due, self._unsent = self._unsent[:count], self._unsent[count:]
            self._frames_sent += len(due)
            if due:
                self._sent_output = due[-1][0]
                self._ports.send_ahead([frame for _, frame in due])

    def hear_stored(self, stored: SnapshotStored) -> Steps:
        """What was stored in the background is durable. What has come meanwhile does not wait for more to come."""
        self.snapshot_stored(stored)
        if self._policy.kind.sends_late and self._is_open:
            yield from self._snapshot_if_due()

    def snapshot_stored(self, stored: SnapshotStored) -> None:
        """What was stored in the background is durable, and the conduit may forget what it covers."""
        reached, self._storing = self._storing, None
        if stored.error is not None:
            raise stored.error
        self._schedule.store(stored.cost)
        if reached is not None:
            self._frames_stored = reached.frames
            self._release()
            self._ports.send_checkpointed(reached.acked_input, reached.log_offset)
            if not self._policy.kind.repeats and reached.round is not None:
                self._ports.round_stored(StoredRound(self.request.epoch, reached.round))

    # -------------------------------------------- InstancePorts, for the core

    def clock(self) -> int:
        return self._ports.clock()

    def entropy(self) -> int:
        return self._ports.entropy()

    def encode(self, rows: list[Row]) -> Encoded:
        return self._ports.encode(rows)

    def persist(self, persist: Persist, *, durable: bool) -> None:
        if not self._policy.kind.repeats and not self._is_restoring:
            for raw in persist.deltas:
                self._ports.kept_deltas.keep(raw)
        own = (persist.own_start, b"".join(persist.own)) if persist.own else None
        if own is not None or persist.deltas:
            self._ports.write_log(persist.deltas, own)
        if durable:
            self._ports.sync_log()

    def flush_log(self, due: Sequence[Emit], log_start: LogOffset, log: bytes) -> None:
        """What an effect depends on is where a process that takes over will find it, and that there are effects is
        known wherever the query goes on (`protocol.recovery.causal.needed_log`)."""
        ports = self._ports
        ports.send_ahead([self._frame(emit) for emit in due])
        ports.keep_that_effects_are_used()
        if not self._may_have_moved:
            return  # the store here is where a process that takes over looks
        ports.show_log(log_start, log)
        # An incarnation that has claimed the instance since then has asked this store, and knows of the effect.
        ports.check_claim()

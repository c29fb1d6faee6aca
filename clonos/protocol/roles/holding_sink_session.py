"""What the process of a sink's instance does whose output may not be seen at once.

It holds what it is sent (`protocol.recovery.rollback.held_output`). Its checkpoint of a round, and of the end of an
epoch, is how far it has come and what it holds. What may be seen is written in one atomic step as soon as the driver
says so, also between two epochs.

It begins where the recovery line says. What it holds there is seen at once: the line has been drawn behind it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from clonos.errors import SnapshotCorrupt, Where
from clonos.protocol.engine.instance import Bundle
from clonos.protocol.engine.output_commit import SinkInstance, Write
from clonos.protocol.ids import NO_EPOCH, Epoch, LogOffset, Origin, epoch_before
from clonos.protocol.line.recovery_line import RecoveryLine, Resume
from clonos.protocol.line.snapshot_name import Since, SnapshotName, marked_from, sequence_after
from clonos.protocol.recovery.marker import NO_ROUND, Round
from clonos.protocol.recovery.policy import Checkpoint, Decision, InstancePolicy
from clonos.protocol.recovery.rollback.held_output import HeldOutput, SinkCheckpoint
from clonos.protocol.recovery.rollback.replaceable import check_replaceable
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.sink_session import SinkPorts, SinkSession
from clonos.protocol.roles.snapshot_ports import SnapshotPorts
from clonos.protocol.roles.snapshot_schedule import SnapshotLimits, SnapshotSchedule
from clonos.protocol.roles.steps import Steps

S = TypeVar("S")


class HoldingSinkPorts(SinkPorts, SnapshotPorts[S]):
    """What its session asks of the runtime, beside what every sink's does. `S` is a checkpoint as the runtime keeps
    it."""

    @abstractmethod
    def restore_held(self, found: S) -> SinkCheckpoint:
        """Raises SnapshotCorrupt."""

    @abstractmethod
    def resume_held(self, found: S, resume: Resume) -> Steps:
        """Keep it as this attempt's own."""

    @abstractmethod
    def store_held(self, name: SnapshotName, checkpoint: SinkCheckpoint) -> Steps:
        """Until it is durable. Raises Fenced, StorageUnavailable."""

    @abstractmethod
    def forget_snapshots(self, epoch: Epoch, since: Since | None) -> None:
        """Those of epochs before."""

    @abstractmethod
    def round_stored(self, stored: StoredRound) -> None:
        """To the driver: the checkpoint is durable. Where there are none inside an epoch: what has committed up to this
        epoch is visible."""

    @abstractmethod
    def steady_clock(self) -> float:
        """Seconds."""


class HoldingSinkSession(SinkSession, Generic[S]):
    """See the module."""

    def __init__(
        self,
        name: str,
        origin: Origin,
        ports: HoldingSinkPorts[S],
        policy: InstancePolicy,
        limits: SnapshotLimits,
    ) -> None:
        super().__init__(name, origin, ports)
        self._holding = ports
        self._policy = policy
        self._schedule = SnapshotSchedule(limits, now=ports.steady_clock(), work=0)
        self._has_moved = False  # since the last checkpoint
        self._heard = Rounds()
        self._held = HeldOutput()
        self._is_there = False
        self._is_open = False
        self._shown: dict[int, int] = {}
        self._sequence = 0
        self._line: RecoveryLine | None = None

    @property
    def held_rows(self) -> int:
        return self._held.rows

    def attach(self, request: AttachRequest) -> Steps:
        check_replaceable(self._policy, request, self._name)
        if not self._is_there:
            yield from self._restore(request)
        else:
            self._holding.claim(request.fence)
            covered = self._instance.covered
            yield from super().attach(request)
            self._held.seen(self._shown)
            self._begin(covered)
        self._policy.begin_epoch()

    def show_committed(self, request: AttachRequest, committed: Epoch) -> Steps:
        """In the driver, where no process of the instance does."""
        yield from self.attach(request)
        yield from self.hear_rounds(Rounds(committed=committed, generation=request.generation))

    def open_epoch(self) -> Steps:
        self._is_open = True
        yield from self._carry_out(self._policy.begin_round(self._rounds.open))

    def bundle(self, seq: int, records: Bundle, first: int | None = None) -> Steps:
        self._has_moved = True
        yield from self._carry_out(self._policy.arrive(records))
        yield from self._ports.send_checkpointed(seq)
        yield from self._checkpoint_if_due()

    def tick(self) -> Steps:
        yield from self._checkpoint_if_due()

    @property
    def _rounds(self) -> Rounds:
        """Those of the start that the instance runs in. It may hear of the next one before that asks for it."""
        return self._heard.in_start(self.request.generation)

    def hear_rounds(self, rounds: Rounds) -> Steps:
        self._heard = self._heard.newest(rounds)
        if self._is_open:
            yield from self._carry_out(self._policy.begin_round(self._rounds.open))
        if self._is_there:
            safe = self._rounds.safe_for(self._origin)
            if self._policy.goes_back and safe.epoch == self.request.epoch:
                self._holding.snapshots.keep_from(safe.round)
            yield from self._show(self._held.take(self._rounds.committed, safe))
            if self._policy.kind.begins_epochs_again:
                self._holding.round_stored(StoredRound(self._rounds.committed, NO_ROUND))

    def conduit_is_gone(self) -> None:
        self._is_open = False

    def end(self, last: int) -> Steps:
        self._is_open = False
        yield from self._carry_out(self._policy.end_input())
        yield from self._store(final=True)
        yield from self._ports.ends()
        return 0

    def commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> None:
        if self._is_there:
            self._holding.forget_snapshots(epoch, self._line_of(self.request).since(self._origin))

    # -------------------------------------------------------------- beginning

    def _restore(self, request: AttachRequest) -> Steps:
        """Under the fence of the request, which stops what came before."""
        ports = self._holding
        self.request = request
        ports.open_snapshots(request)
        ports.claim(request.fence)
        line = self._line_of(request)
        where = Where(self._name, self._origin.instance, request.epoch)
        line.check_epoch(request.epoch, where)
        resume = line.resume(self._origin, generation=request.generation, epoch=request.epoch)
        if resume is not None:
            # An attempt that lost its first process before it was welcomed has begun already.
            found = ports.snapshots.resumed(request.epoch, request.fence) or ports.snapshots.named(
                resume.name
            )
            if found is None:
                raise SnapshotCorrupt(
                    f"the checkpoint {resume.name} of a sink, where the query goes on, is gone", where=where
                )
            yield from ports.resume_held(found, resume)
            self._sequence = sequence_after(resume.name)
        else:
            found = ports.snapshots.final(epoch_before(request.epoch), line.since(self._origin))
        checkpoint = ports.restore_held(found) if found is not None else SinkCheckpoint(NO_EPOCH)
        ports.discard_from(request.epoch)
        yield from super().attach(request)
        self._held = HeldOutput(checkpoint.held)
        self._held.seen(self._shown)
        self._begin(checkpoint.reached(self._shown))
        self._is_there = True
        if self._policy.goes_back:
            ports.snapshots.keep_from(0)
        if resume is not None or checkpoint.epoch < line.epoch:
            yield from self._show(self._held.take_all())

    def _opened(self, cursors: Mapping[int, int]) -> None:
        self._shown = dict(cursors)

    def _line_of(self, request: AttachRequest) -> RecoveryLine:
        """It does not change once it is written."""
        if self._line is None or self._line.generation != request.generation:
            self._line = self._holding.line(request.generation)
        return self._line

    # ------------------------------------------------------------------ input

    @property
    def _instance(self) -> SinkInstance:
        assert self._sink is not None
        return self._sink

    def _carry_out(self, decisions: Iterator[Decision]) -> Steps:
        for decision in decisions:
            if not isinstance(decision, Bundle):
                assert isinstance(decision, Checkpoint) and decision.round is not None, "a sink aligns"
                yield from self._checkpoint(decision.round)
                continue
            write = self._instance.take(decision)
            if write is not None:
                self._held.hold(write, self.request.epoch)

    def _checkpoint_if_due(self) -> Steps:
        if not (self._policy.kind.checkpoints_alone and self._has_moved and self._is_open):
            return
        if self._schedule.is_due(self._holding.steady_clock(), work=0):
            self._sequence = marked_from(self._sequence)
            yield from self._checkpoint(Round(self._sequence))

    def _checkpoint(self, round: Round) -> Steps:
        self._has_moved = False
        self._schedule.begin(self._holding.steady_clock(), work=0)
        marked = StoredRound(self.request.epoch, round)
        self._held.mark(marked)
        yield from self._store(final=False)
        self._holding.round_stored(marked)

    def _store(self, *, final: bool) -> Steps:
        name = SnapshotName(self.request.epoch, self.request.fence, self._sequence, final)
        self._sequence += 1
        yield from self._holding.store_held(
            name,
            SinkCheckpoint(self.request.epoch, dict(self._shown), self._instance.covered, self._held.writes),
        )

    def _show(self, write: Write | None) -> Steps:
        if write is None:
            return
        yield from self._ports.write(write)
        self._shown.update(write.cursors)
        self.progress += len(write.rows)

"""The replay of a recorded log: which step is repeated when, and when the instance goes live.

A step is repeated once its records have come. A standby repeats only what the conduit knows of its primary's log.
Where the recording ends, the instance goes live with the records that wait; but an attempt that has to end the epoch
where an earlier one did must not go beyond that offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from clonos.protocol.engine.epoch_boundary import EpochBoundary
from clonos.protocol.engine.input_gate import InputGate
from clonos.protocol.engine.instance_log import InstanceLog
from clonos.protocol.engine.instance_place import InstancePlace
from clonos.protocol.engine.output_stage import OutputStage
from clonos.protocol.engine.step_executor import StepExecutor
from clonos.protocol.ids import LOG_BEGIN, LogOffset
from clonos.protocol.recovery.causal.determinant import Kind, Step
from clonos.protocol.recovery.causal.longest_prefix import RecoveryState, cut_short

_ROWS_OF_A_STEP: Final = 4096
"""Of the records that wait where the recording ends. They may be of many bundles, and a step is logged as a whole, and
its rows leave together."""


class Replay:
    """See the module."""

    def __init__(
        self,
        gate: InputGate,
        executor: StepExecutor,
        boundary: EpochBoundary,
        log: InstanceLog,
        output: OutputStage,
        place: InstancePlace,
    ) -> None:
        self.state = RecoveryState.LIVE
        self.watch: Callable[[Step], None] | None = None  # is told of a step before that is repeated
        self.followed = LOG_BEGIN  # the log offset up to which a standby may repeat
        self._ends_at: LogOffset | None = None
        self._gate = gate
        self._executor = executor
        self._boundary = boundary
        self._log = log
        self._output = output
        self._place = place

    @property
    def awaited_by_recording(self) -> int:
        """Records that complete steps consume, less those that have come."""
        if self.state is not RecoveryState.REPLAYING:
            return 0
        return max(0, self._log.recording.records - len(self._gate.waiting))

    @property
    def following(self) -> bool:
        """Whether it is a standby's. Nothing leaves then."""
        return self._output.suppresses_all

    def restore(self) -> None:
        self.state = RecoveryState.REPLAYING if self._log.recording.steps else RecoveryState.LIVE

    def begin_following(self) -> None:
        """From now on repeat what the primary is known to have done, and no more."""
        if self.state is RecoveryState.LIVE:
            self._log.end_recording()
        self._output.suppresses_all, self.followed = True, self._log.end
        self.state = RecoveryState.REPLAYING

    def follow(self, upto: LogOffset) -> None:
        """The conduit knows the primary's log up to this offset."""
        self.followed = max(self.followed, upto)

    def lead(self) -> None:
        self._output.suppresses_all = False

    def open_epoch(self, ends_at: LogOffset | None) -> None:
        """The epoch has to end at the log offset `ends_at`, where an earlier attempt has ended it."""
        self._ends_at = ends_at
        if ends_at is not None and self.state is RecoveryState.LIVE:
            self.state = RecoveryState.REPLAYING
            self._log.end_recording()

    def advance(self) -> None:
        """Repeat every recorded step whose records have arrived; then go live."""
        steps = self._log.recording.steps
        while steps and self._log.end != self._ends_at:
            if not self._may_repeat(steps[0]):
                return
            step = self._log.recording.take()
            if self.watch is not None:
                self.watch(step)
            self._executor.repeat(step)
        if self.following or self._log.end == self._ends_at:
            return
        if self._ends_at is not None:
            raise cut_short(self._ends_at, self._log.end, self._place.where())
        self._go_live()

    def _may_repeat(self, step: Step) -> bool:
        if self.following and not (step.complete and step.stop <= self.followed):
            return False
        if step.kind is Kind.ORDER and not self._gate.waiting.have(step.consumed):
            return False
        if self._ends_at is not None and not step.complete:
            raise cut_short(self._ends_at, self._log.end, self._place.where())
        return True

    def _go_live(self) -> None:
        if self.state is RecoveryState.REPLAYING:
            self.state = RecoveryState.LIVE
            self._log.end_recording()
        self._output.check_repeated()
        self._boundary.begin_if_due()
        while self._gate.waiting:
            self._executor.consume(*self._gate.waiting.take_some(_ROWS_OF_A_STEP))

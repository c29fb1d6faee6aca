"""The step executor: runs the operator in steps, and records each or repeats it from its recording.

A step opens with what it is made of (records in their order, or timers at a moment), goes on with what the operator
asks its services, and closes with the number and the digest of the rows that it produced. Its end is appended to the
log before its rows are released.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from clonos.protocol.engine.epoch_boundary import EpochBoundary
from clonos.protocol.engine.input_gate import InputGate
from clonos.protocol.engine.instance_log import InstanceLog
from clonos.protocol.engine.instance_place import InstancePlace
from clonos.protocol.engine.lineage_recorder import LineageRecorder
from clonos.protocol.engine.operator_runner import OperatorRunner
from clonos.protocol.engine.output_stage import OutputStage
from clonos.protocol.engine.record_by_record import RecordByRecord
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.frontier import Column, channels_of, numbers_of
from clonos.protocol.ports import Row
from clonos.protocol.recovery.causal.determinant import Kind, Run, Step
from clonos.protocol.recovery.causal.recorder import Sent, StepPorts, StepRecorder
from clonos.protocol.recovery.causal.replayer import StepReplayer


class StepExecutor:
    """`new_recorder` makes what a step is recorded with that is executed for the first time."""

    def __init__(
        self,
        runner: OperatorRunner,
        services: CausalServices,
        gate: InputGate,
        boundary: EpochBoundary,
        log: InstanceLog,
        output: OutputStage,
        place: InstancePlace,
        recorder_ports: StepPorts,
        *,
        new_recorder: Callable[[StepPorts], StepRecorder],
    ) -> None:
        self.record_by_record = RecordByRecord(runner, gate, log)
        self.lineage: LineageRecorder | None = None
        self._runner = runner
        self._services = services
        self._gate = gate
        self._boundary = boundary
        self._log = log
        self._output = output
        self._place = place
        self._recorder_ports = recorder_ports
        self._new_recorder = new_recorder

    def consume(self, runs: list[Run], positions: Column, rows: list[Row]) -> None:
        """Records, for the first time. In quarantine each is a step."""
        if self.record_by_record.quarantine is None:
            recorder = self._new_recorder(self._recorder_ports)
            recorder.open_order(runs)
            return self._execute(recorder, partial(self._runner.run, runs, positions, rows))
        for channel, position, row in zip(channels_of(runs), numbers_of(positions), rows, strict=True):
            recorder = self._new_recorder(self._recorder_ports)
            recorder.open_order([(channel, 1)])
            self._execute(
                recorder, partial(self.record_by_record.run, recorder, [(channel, 1)], [position], [row])
            )
        return None

    def fire(self, now: int, watermark: int | None) -> None:
        """Timers, for the first time; of an operator that gathers, the end of the epoch. `watermark` is what event time
        comes to, None where it stays."""
        self._fire(self._new_recorder(self._recorder_ports), now, watermark)

    def repeat(self, step: Step) -> None:
        """A recorded step, whose records have come."""
        if step.kind is Kind.BOUNDARY:
            self._boundary.begin(
                step.epoch, step.seed, step.program, records_watermarks=step.records_watermarks
            )
        elif step.kind is Kind.TIMER:
            replayer = StepReplayer(self._recorder_ports, step, self._place.where())
            self._fire(replayer, step.fired_at, step.watermark)
        else:
            self._repeat_records(step)

    def _repeat_records(self, step: Step) -> None:
        runs = step.consumed
        positions, rows = self._gate.waiting.take(runs)
        replayer = StepReplayer(self._recorder_ports, step, self._place.where(runs[0][0], positions[0]))
        replayer.open_order(step.runs)
        by_record = self.record_by_record
        if step.skip is not None:
            run = partial(by_record.repeat_skipping, replayer, step, runs, positions, rows)
        elif by_record.quarantine is not None and not step.complete:
            run = partial(by_record.run, replayer, runs, positions, rows)
        else:
            run = partial(self._runner.run, runs, positions, rows)
        self._execute(replayer, run)

    def _fire(self, recorder: StepRecorder, now: int, watermark: int | None) -> None:
        recorder.open_timer(now, watermark)
        self._execute(recorder, partial(self._runner.fire, now, watermark))

    def _execute(self, recorder: StepRecorder, run: Callable[[], list[Row]]) -> None:
        self._services.step = recorder
        try:
            produced = run()
        finally:
            self._services.step = None
        encoded, destinations = self._output.prepare(produced)
        self._log.append(recorder.close(len(produced), Sent(encoded, destinations)))
        if self.lineage is not None:
            self.lineage.step_ends(self._log.end, len(produced))
        self._output.release(encoded, produced, destinations)

"""A step that is run record by record, because one of its records may be what kills every process.

Before each record it is asked whether that may be run (`clonos.protocol.recovery.quarantine`). The step ends with the
first one that may not; that it was passed over is recorded, and a replay passes it over, too.
"""

from __future__ import annotations

from contextlib import nullcontext

from clonos.protocol.engine.input_gate import InputGate
from clonos.protocol.engine.instance_log import InstanceLog
from clonos.protocol.engine.operator_runner import OperatorRunner
from clonos.protocol.frontier import channels_of
from clonos.protocol.ids import LogOffset
from clonos.protocol.ports import Row
from clonos.protocol.recovery.causal.determinant import Run, Step, first_of
from clonos.protocol.recovery.causal.recorder import StepRecorder
from clonos.protocol.recovery.causal.replayer import StepReplayer
from clonos.protocol.recovery.quarantine import CandidateRecord, Quarantine


class RecordByRecord:
    """`quarantine` says which records may be run; None where all may. An operator that cannot be given one record at a
    time (`record_at_a_time`) is given the step as a whole."""

    def __init__(self, runner: OperatorRunner, gate: InputGate, log: InstanceLog) -> None:
        self.quarantine: Quarantine | None = None
        self._runner = runner
        self._gate = gate
        self._log = log

    def run(
        self, recorder: StepRecorder, runs: list[Run], positions: list[int], rows: list[Row]
    ) -> list[Row]:
        """Records as far as they may be run; what follows one that may not waits again."""
        if len(rows) > 1 and not self._runner.record_at_a_time:
            channel = runs[0][0]
            self._may_run(
                CandidateRecord(channel, positions[0], rows[0], recorder.alone(channel), is_whole_step=False)
            )
            return self._runner.run(runs, positions, rows)
        produced: list[Row] = []
        channels = channels_of(runs)
        with self._runner.pieces() if len(rows) > 1 else nullcontext():
            for ran, (channel, position, row) in enumerate(zip(channels, positions, rows, strict=True)):
                if not self._may_run(CandidateRecord(channel, position, row, recorder.alone(channel))):
                    done = ran + 1
                    self._gate.waiting.put_back(channels[done:], positions[done:], rows[done:])
                    self._keep_recorded(recorder, self._log.recording.end)
                    recorder.skip(ran)
                    self._runner.end_skipping(first_of(runs, done), positions[:done], rows[:done])
                    return produced
                produced += self._runner.run_some([(channel, 1)], [position], [row])
        return produced + self._runner.end(runs, positions, rows)

    def repeat_skipping(
        self, replayer: StepReplayer, step: Step, runs: list[Run], positions: list[int], rows: list[Row]
    ) -> list[Row]:
        """Repeat a step that ends with a record that was passed over."""
        produced = self._runner.run_some(runs, positions, rows[:-1])
        self._runner.end_skipping(runs, positions, rows)
        self._keep_recorded(replayer, step.stop)
        return produced

    def _may_run(self, candidate: CandidateRecord) -> bool:
        return self.quarantine is None or self.quarantine.may_run(candidate)

    def _keep_recorded(self, recorder: StepRecorder, upto: LogOffset) -> None:
        """Append what the log holds of the step up to an offset as it stands: the function will not ask for it."""
        if isinstance(recorder, StepReplayer) and self._log.append_recorded(upto):
            recorder.keep()

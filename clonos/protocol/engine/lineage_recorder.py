"""Records lineage while steps run: which calls a step was made of, and how many rows each gave.

It stands around the operator, and is told where steps end and epochs begin. A step that is repeated after a failure is
recorded again, and alike, since it gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from clonos.protocol.archive.step_lineage import (
    UNKNOWN,
    Beginning,
    CallForm,
    CallRuns,
    StepCalls,
    encode_beginning,
    encode_calls,
    encode_run,
)
from clonos.protocol.engine.given_rows import GivenRows
from clonos.protocol.frontier import Column, run_lengths
from clonos.protocol.ids import LogOffset, OutputNumber
from clonos.protocol.ports import Row, StepOperator

Tell = Callable[[LogOffset, bytes], None]
"""An entry (`archive.step_lineage`) of the step that ends at a log offset."""


class LineageRecorder:
    """Of one instance. `given` is what its operator tells."""

    def __init__(self, given: GivenRows, tell: Tell) -> None:
        self._given = given
        self._tell = tell
        self._runs: list[CallRuns] = []
        self._forms: list[tuple[bytes, int]] = []  # of rows, and of how many
        self._is_known = True
        self._are_themselves = True  # the rows; none of them is another form of one

    def around(self, operator: StepOperator) -> StepOperator:
        """The operator, to be used in its place."""
        return _Noted(operator, self._given, self)

    # ------------------------------------------------------- around the operator

    def gave_for_records(self, records: int, rows: int, *, one_by_one: bool) -> None:
        """It was given so many records, and gave so many rows. `one_by_one`: its function takes one at a time."""
        if not one_by_one:
            self._note(CallForm.BUNDLE, [rows], [1], rows)
        elif rows == records and self._given.gave_one_each:
            self._note(CallForm.RECORD, [1], [rows], rows)
        else:
            self._note_each(CallForm.RECORD, rows, at_most=records, at_least=records)

    def gave_for_timers(self, timers: int, rows: int) -> None:
        """Some may have been cancelled by others before they fired."""
        self._note_each(CallForm.TIMER, rows, at_most=timers, at_least=0)

    def gave_at_the_end(self, rows: int) -> None:
        """The end of the epoch, with what was gathered."""
        self._note(CallForm.END, [rows], [1], rows)

    def _note_each(self, form: CallForm, rows: int, *, at_most: int, at_least: int) -> None:
        by_call = self._given.by_call
        if by_call is None and at_most == 1:
            by_call = [rows]
        if by_call is None:
            self._is_known = self._is_known and rows == 0 and at_least == 0
        elif not at_least <= len(by_call) <= at_most:
            self._is_known = False
        elif len(by_call):
            self._note(form, *_runs(by_call), rows)

    def _note(self, form: CallForm, rows: Column, calls: Column, whole: int) -> None:
        """Calls, in run-length, and how many rows all of them gave."""
        self._runs.append(CallRuns(form, rows, calls))
        forms = self._given.forms
        self._are_themselves = self._are_themselves and not forms
        self._forms.append((forms, whole))

    # -------------------------------------------------------------- the engine tells

    def epoch_begins(
        self, at: LogOffset, emitted: OutputNumber, covered: Mapping[int, int], *, waits: bool
    ) -> None:
        """The step that begins an epoch ends at this log offset. Where records of epochs before wait (`waits`), the
        epoch's own input does not say which ones its steps consume."""
        self._tell(at, UNKNOWN if waits else encode_beginning(Beginning(emitted, dict(covered))))

    def step_ends(self, at: LogOffset, outputs: int) -> None:
        """Another step ends there, with so many rows."""
        self._tell(at, self._entry(outputs) if self._is_known else UNKNOWN)
        self._runs, self._forms, self._is_known, self._are_themselves = [], [], True, True

    def _entry(self, outputs: int) -> bytes:
        forms = b""
        if not self._are_themselves:
            forms = b"".join(forms or bytes((1,)) * rows for forms, rows in self._forms)
        elif len(self._runs) == 1 and len(self._runs[0].rows) == 1:
            form, (rows,), (calls,) = self._runs[0]
            return encode_run(form, int(rows), int(calls)) if rows * calls == outputs else UNKNOWN
        found = StepCalls(self._runs, forms)
        return encode_calls(found) if found.has(outputs) else UNKNOWN


def _runs(by_call: Column) -> tuple[Column, Column]:
    """Run-length, where there are so many that it saves more than it takes, or all are the same."""
    if isinstance(by_call, np.ndarray):
        return run_lengths(by_call)
    calls = len(by_call)
    first = by_call[0]
    return ([first], [calls]) if by_call.count(first) == calls else (by_call, [1] * calls)


class _Noted:
    """An operator of which it is noted what each of its calls gave."""

    def __init__(self, operator: StepOperator, given: GivenRows, recorder: LineageRecorder) -> None:
        self._operator = operator
        self._given = given
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    @property
    def record_at_a_time(self) -> bool:
        return self._operator.record_at_a_time

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        self._given.forget()
        made = self._operator.bundle(keys, rows)
        self._recorder.gave_for_records(len(rows), len(made), one_by_one=self._operator.record_at_a_time)
        return made

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]:
        self._given.forget()
        made = self._operator.timers(due, event)
        self._recorder.gave_for_timers(len(due), len(made))
        return made

    def gathered(self) -> list[Row]:
        self._given.forget()
        made = self._operator.gathered()
        self._recorder.gave_at_the_end(len(made))
        return made

    def pieces(self) -> Any:
        return self._operator.pieces()

"""What would another function have said? It runs beside the one that ran, over the same records, in the same order,
with the same clock and draws, and with the answers that were recorded; rows that differ are told.

The function that ran is repeated at a desk, so what it said is what was said. The other one has a copy of the state
from where the comparison begins, and from there its own: what it keeps differently makes later records differ. Each of
its records begins with the generator as it was then, and finds the answers of the calls that were made for that record;
a call that was made with other arguments, or not at all, has no answer: then what comes of the record is not known, and
the key goes on with what was kept then, unless calls may be made anew. No effect is performed: one under a key that was
used then is given what that gave, any other gives nothing.
"""

from __future__ import annotations

import copy
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from clonos.archive.desk import Desk
from clonos.archive.recorded_answers import Calls, RecordedAnswers, reading_of
from clonos.archive.shown_row import ShownRow
from clonos.archive.shown_value import record_shown
from clonos.archive.tracing import Asked, InputRecord, Row, TracedCall, TracedRandom, Watcher
from clonos.errors import ClonosError, ConfigurationError, QueryDefinitionError, StateError
from clonos.operators.function_code import has_function
from clonos.operators.intercept.operator import InterceptedOperator
from clonos.protocol.event_time import fire, later
from clonos.protocol.ids import NO_EPOCH, Epoch, channel_origin
from clonos.protocol.recovery.causal.determinant import Kind, Step
from clonos.storage.keyed_state import KeyedState
from clonos.storage.timers import EVENT_TIME, PROCESSING_TIME, TimerQueue
from clonos.values.key_codec import unpack
from clonos.values.state_codec import own
from clonos_standby.cluster.spec import NodeSpec
from clonos_standby.replica.outcomes import Outcomes

FORMS: Final = ("process", "map", "flat_map", "filter", "pure map", "pure flat_map", "pure filter")
"""Of operators that can be given another function: those whose function is given one record at a time."""


_A_TIMER: Final = Asked("fired", "a timer")
"""So that it is known that one has fired, whatever it asked for."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one record, or of the timers behind a step, for which `record` is None."""

    epoch: Epoch
    record: dict[str, Any] | None
    then: list[ShownRow]
    now: list[ShownRow]
    unknown: str = ""  # why it is not known what would have been said
    effects: tuple[str, ...] = ()  # that would have been others, as lines


@dataclass
class Compared:
    """What came of it."""

    records: int = 0
    rows_then: int = 0
    rows_now: int = 0
    differ: int = 0  # of the records, and steps of timers
    unknown: int = 0
    examples: list[Difference] = field(default_factory=list)


class WhatIf(Watcher):
    """See the module. Looks on from epoch `since` on, and keeps so many `examples`."""

    keeps_state = False

    def __init__(
        self,
        fn: Callable[..., Any],
        on_timer: Callable[..., Any] | None,
        folder: Path,
        *,
        since: Epoch,
        calls: Calls,
        examples: int,
        intercept: bool,
        columns: frozenset[str] = frozenset(),
    ) -> None:
        """Rows differ where their `columns` do: where any does, if none is named."""
        super().__init__()
        self.compared = Compared()
        self._fn = fn
        self._on_timer = on_timer
        self._folder = folder
        self._since = since
        self._calls = calls
        self._examples = examples
        self._columns = columns
        self._intercept = intercept
        self._epoch = NO_EPOCH
        self._other: _Other | None = None
        self._desk: Desk
        self._node: NodeSpec
        self._operator: Any = None  # that says what was said
        self._step: Step | None = None
        self._drawn: Any = None
        self._by_timers: list[Row] = []  # rows of this step that timers have made
        self._asked_by_timers: list[Asked] = []

    def begins(self, desk: Desk, epoch: Epoch, node: NodeSpec) -> None:
        """An epoch is about to be repeated. Raises ConfigurationError where the operator has not all of the columns."""
        known = {name for schema in node.outputs.values() for name in schema.names}
        if unknown := self._columns - known:
            raise ConfigurationError(
                f"operator {node.name!r} has no column {', '.join(sorted(unknown))}",
                hint=f"It has {', '.join(sorted(known))}",
            )
        self._step_ended()
        self._step = None
        self._desk, self._epoch, self._node = desk, epoch, node
        if self._other is None and epoch >= self._since:
            operator = _with(self._fn, self._on_timer, node)
            state = desk.fork(self._folder)
            made = InterceptedOperator(operator) if self._intercept else operator
            self._other = _Other(made, state, self._calls)
            self.is_on = True

    def close(self) -> None:
        """The comparison is over."""
        self._step_ended()
        if self._other is not None:
            self._other.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # ------------------------------------------------------------ while it repeats

    def step_begins(self, step: Step) -> None:
        self._step_ended()
        super().step_begins(step)
        self._step = step
        self._drawn = None
        if self._other is not None:
            self._other.clock_reads(step)

    def runs(self, call: TracedCall, operator: Any, run: Callable[[], list[Row]]) -> list[Row]:
        self._operator = operator
        return run()

    def begin(self, form: str) -> TracedCall:
        if form != "timer" or self._drawn is None or not self._asked_by_timers:
            self._drawn = self._desk.services.random.getstate()
        return super().begin(form)

    def ended(self, call: TracedCall) -> None:
        other = self._other
        assert other is not None
        if call.form == "timer":
            self._by_timers += call.outputs
            self._asked_by_timers += [*call.asked, _A_TIMER]
            return
        (record,), (key,) = call.inputs, call.keys
        self.compared.records += 1
        other.answers(call.asked, self._drawn, call.watermark)
        given = copy.deepcopy(record.row)  # it may be changed
        if not self._compare(record, call.outputs, lambda: other.record(key, given)):
            other.goes_on_as(self._operator, call.asked)

    def _step_ended(self) -> None:
        """Timers are fired behind its records, or are all of it."""
        step, other, then, asked = self._step, self._other, self._by_timers, self._asked_by_timers
        self._step, self._by_timers, self._asked_by_timers = None, [], []
        if step is None or other is None or step.kind is Kind.BOUNDARY:
            return
        services = self._desk.services
        drawn = self._drawn if asked else services.random.getstate()
        other.answers(asked, drawn, services.watermark)
        upto = step.fired_at if step.kind is Kind.TIMER else None
        with redirect_stdout(sys.stderr):
            if not self._compare(None, then, lambda: other.fire(upto, services.watermark)):
                other.goes_on_as(self._operator, asked)

    def _compare(self, record: InputRecord | None, then: list[Row], run: Callable[[], list[Row]]) -> bool:
        """Whether it is known what the other one says."""
        now: list[Row] = []
        unknown = ""
        is_same = False
        effects: list[str] = []
        try:
            now = run()
            assert self._other is not None
            effects = self._other.changed_effects()
            is_same = self._desk.digest(then) == self._desk.digest(now) and not effects
        except ClonosError as error:
            unknown, now = error.message, []
        self.compared.rows_then += len(then)
        self.compared.rows_now += len(now)
        are_alike = not unknown and not effects and self._columns
        if is_same or (are_alike and repr(self._shown(then)) == repr(self._shown(now))):
            return True  # to the bit: NaN is NaN
        if unknown:
            self.compared.unknown += 1
        else:
            self.compared.differ += 1
        if len(self.compared.examples) < self._examples:
            given = None if record is None else self._given(record)
            shown = self._shown(then), self._shown(now)
            self.compared.examples.append(Difference(self._epoch, given, *shown, unknown, tuple(effects)))
        return not unknown

    def _given(self, record: InputRecord) -> dict[str, Any]:
        return record_shown(self._node, channel_origin(record.channel).node, record.row)

    def _shown(self, rows: list[Row]) -> list[ShownRow]:
        """With the columns that are compared."""
        shown = self._desk.shown(rows)
        return [replace(each, columns=self._wanted(each.columns)) for each in shown]

    def _wanted(self, columns: dict[str, Any]) -> dict[str, Any]:
        kept = self._columns or columns.keys()
        return {name: value for name, value in columns.items() if name in kept}


def _with(fn: Callable[..., Any], on_timer: Callable[..., Any] | None, node: NodeSpec) -> Any:
    """The operator with another function. Raises QueryDefinitionError where it cannot have one."""
    assert node.operator is not None
    operator: Any = node.operator()
    inner = has_function(operator)
    if inner is None or operator.form not in FORMS or not operator.record_at_a_time:
        raise QueryDefinitionError(
            f"operator {node.name!r} is of {operator.form}, and its function is given several records at once, is "
            "async, or is several functions",
            hint=f"Another function is for {', '.join(FORMS[:4])} of a function that is not async",
        )
    inner._fn = fn
    if on_timer is not None:
        inner._on_timer = on_timer
    return operator


class _Other:
    """The other function, with its state and timers."""

    def __init__(self, operator: Any, state: KeyedState, calls: Calls) -> None:
        self._operator = operator
        self._state = state
        self._touched: dict[Row, None] = {}  # keys of the step's records, or of the timers behind it
        self._timers, self._event_timers = (
            _Timers(state, family, self._touches) for family in (PROCESSING_TIME, EVENT_TIME)
        )
        self._pieces: AbstractContextManager[None] | None = None  # of the step under way
        self._services = RecordedAnswers(
            state=state,
            timers=self._timers,
            event_timers=self._event_timers,
            random=TracedRandom(),
            outcomes=Outcomes(),
        )
        self._services.calls = calls
        operator.open(self._services)

    def close(self) -> None:
        """Behind a step."""
        self._operator.close()
        self._state.close()

    def clock_reads(self, step: Step) -> None:
        """That of the step, if anything has read it then."""
        self._services.reading = reading_of(step)

    def answers(self, asked: list[Asked], drawn: Any, watermark: int | None) -> None:
        """What was asked for then."""
        services = self._services
        services.answers(asked)
        services.watermark = later(services.watermark, watermark)
        services.random.setstate(drawn)

    def changed_effects(self) -> list[str]:
        return self._services.changed_effects()

    def record(self, key: Row, row: Row) -> list[Row]:
        """One of a step: until its end, what is kept of a key is what the function has in hand. Raises ClonosError,
        also where that is nothing that can be kept."""
        if self._pieces is None:
            self._pieces = self._operator.pieces()
            self._pieces.__enter__()
        self._touched[key] = None
        for queue in (self._timers, self._event_timers):
            queue.changed = []
        with self._services.all_recorded():
            made: list[Row] = self._operator.bundle([key], [row])
        for value in self._operator.kept(key).values():
            own(value)
        return made

    def _touches(self, key: bytes) -> None:
        self._touched[unpack(key)] = None

    def _keeps(self) -> None:
        """The records of a step are over."""
        pieces, self._pieces = self._pieces, None
        if pieces is not None:
            pieces.__exit__(None, None, None)

    def _forgets(self) -> None:
        """What the records of a step have changed."""
        pieces, self._pieces = self._pieces, None
        if pieces is not None:
            pieces.__exit__(StateError, StateError("what it has changed is given up"), None)

    def goes_on_as(self, then: Any, asked: list[Asked]) -> None:
        """Of a record, or of timers, of which it is not known what would have come: with the state and timers of then.
        What the step had changed of its keys before is lost with it, so that they go on with their state of then, too.
        `then` is the operator of then, if it has run at all."""
        for queue in (self._timers, self._event_timers):
            queue.undo()
        self._forgets()
        for each in self._touched if then is not None else ():
            kept = copy.deepcopy(then.kept(each))
            for at in self._operator.kept(each):
                self._state.delete(at)
            for at, value in kept.items():
                self._state.save(at, value)
        for one in asked:
            if one.kind == "timer":
                is_set, timer, event = one.identity
                queue = self._event_timers if event else self._timers
                (queue.set if is_set else queue.cancel)(*timer)

    def fire(self, upto: int | None, watermark: int | None) -> list[Row]:
        """The timers behind a step, whose records are over. Raises ClonosError."""
        for queue in (self._timers, self._event_timers):
            queue.changed = []
        self._keeps()
        self._touched = {}
        with self._services.all_recorded():
            made = fire(self._operator, self._timers, upto, False)
            made += fire(self._operator, self._event_timers, watermark, True)
        return made


class _Timers(TimerQueue):
    """Which can take back what a record has changed."""

    def __init__(self, state: KeyedState, family: bytes, fires: Callable[[bytes], None]) -> None:
        """`fires` is told of the keys of timers that are due."""
        super().__init__(state, family)
        self.changed: list[tuple[bool, tuple[int, bytes, str]]] = []
        self._fires = fires

    def pop_due(self, upto: int) -> list[tuple[int, bytes, str]]:
        due = super().pop_due(upto)
        for _, key, _ in due:
            self._fires(key)
        return due

    def set(self, due: int, key: bytes, name: str = "") -> None:
        super().set(due, key, name)
        self.changed.append((True, (due, key, name)))

    def undo(self) -> None:
        """What was set; what was cancelled is set again by what is known of then, or was cancelled then, too."""
        changed, self.changed = self.changed, []
        for is_set, timer in changed:
            if is_set:
                self.cancel(*timer)

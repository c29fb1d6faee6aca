"""Looks on while an instance is repeated at a desk: which call of the user's function made an output row, of what, and
what the function asked for meanwhile.

Steps are repeated as they were; the one that made the row is run record by record, where the operator makes no
difference between that and a bundle (`record_at_a_time`), so that a row has the one record that it was made of. Other
operators are given a bundle at once, and their rows are made of all records of that call.
"""

from __future__ import annotations

import copy
import random
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clonos.archive.input_watch import InputWatch
from clonos.archive.question import identity_of, said
from clonos.operators.process import ProcessOperator
from clonos.protocol.archive.input_sets import InputSets, MadeOf
from clonos.protocol.engine.given_rows import GivenRows
from clonos.protocol.engine.services import CausalServices, OutcomeCodec
from clonos.protocol.engine.task_scheduler import CallPort, CallRequest, Ended
from clonos.protocol.ids import NO_OUTPUT, OutputNumber, output_after
from clonos.protocol.recovery.causal.determinant import CallNumber, Outcome, Step
from clonos.storage.keyed_state import KeyedState
from clonos.storage.timers import EVENT_TIME, PROCESSING_TIME, TimerQueue
from clonos.values.key_codec import unpack

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """Something that the function asked for, and what it was given. `what` is what it was asked with."""

    kind: str
    what: str
    given: Any = None
    identity: Any = None  # by which another function's asking is the same: of a call, an effect, or a timer
    took: int | None = None  # microseconds, of what was recorded with it
    is_under_way: bool = False  # a call that has been begun: its answer is asked for later


@dataclass(frozen=True, slots=True)
class InputRecord:
    """A record that a call was given."""

    channel: int
    position: int
    row: Row


@dataclass(slots=True)
class TracedCall:
    """One call of the user's function, or of what stands for it in an operator without one."""

    form: str  # record, bundle, timer, end of the epoch
    index: int  # among the calls of its step
    first: OutputNumber  # that a row of it has
    keys: list[Row] = field(default_factory=list)
    inputs: list[InputRecord] = field(default_factory=list)
    timers: list[tuple[int, str, bool]] = field(default_factory=list)  # due, name, whether of event time
    before: dict[bytes, Any] = field(default_factory=dict)  # state, by its key in bytes
    after: dict[bytes, Any] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    outputs: list[Row] = field(default_factory=list)
    forms: bytes = b""  # how many of these are forms of one row each (`given_rows`); empty: each is itself
    watermark: int | None = None
    made_of: list[MadeOf] = field(default_factory=list)  # of its rows, where input sets are kept

    @property
    def last(self) -> int:
        """The number of its last row."""
        return self.first + len(self.outputs) - 1


class RowIsMade(Exception):
    """The row that was looked for has been made: nothing further has to be repeated."""


class Watcher(ABC):
    """Looks on: is told of every step before it is repeated, and of calls of the function while it `is_on`."""

    keeps_state = True  # calls have the state of their keys
    keeps_rows = True  # calls have what their input records said
    speaks = False  # the standard output is for the function, too
    is_on = False
    input_sets: InputSets | None = None  # says of which records rows are; it is on, then, from the beginning

    def __init__(self) -> None:
        self.call: TracedCall | None = None  # that is under way
        self.made: Callable[[], OutputNumber] = lambda: NO_OUTPUT  # rows so far, when a step begins
        self._next = NO_OUTPUT
        self._begun = 0  # calls of the step
        # Timers, of those that are fired together
        self.cancelled: set[tuple[tuple[int, bytes, str], bool]] = set()

    def step_begins(self, step: Step) -> None:
        self._next = output_after(self.made(), 1)
        self._begun = 0

    def begin(self, form: str) -> TracedCall:
        self.call = TracedCall(form, self._begun, self._next)
        self._begun += 1
        return self.call

    def end(self, call: TracedCall, outputs: list[Row]) -> None:
        self.call = None
        call.outputs = outputs
        self._next = output_after(self._next, len(outputs))
        self.ended(call)

    def runs(self, call: TracedCall, operator: Any, run: Callable[[], list[Row]]) -> list[Row]:
        """The rows of a call."""
        return run()

    @abstractmethod
    def ended(self, call: TracedCall) -> None:
        """A call of the function has given its rows."""

    def note(
        self, kind: str, what: str, given: Any = None, identity: Any = None, took: int | None = None
    ) -> None:
        self.asked(Asked(kind, what, given, identity, took))

    def asked(self, asked: Asked) -> None:
        if self.call is not None:
            self.call.asked.append(asked)


class Tracer(Watcher):
    """Looks for the row with a number. `found` is the call that has made it, in `step`. It ends the repetition behind
    that step, when that is known to have said what is recorded."""

    def __init__(self, number: OutputNumber) -> None:
        super().__init__()
        self.number = number
        self.found: TracedCall | None = None
        self.step: Step | None = None

    def step_begins(self, step: Step) -> None:
        if self.found is not None:
            raise RowIsMade
        super().step_begins(step)
        self.is_on = self._next <= self.number < output_after(self._next, step.outputs)
        if self.is_on:
            self.step = step

    def ended(self, call: TracedCall) -> None:
        if call.first <= self.number <= call.last:
            self.found = call


class CallsTracer(Watcher):
    """Looks for the calls that made the rows with these numbers, all in one repetition, and ends it behind the last. Of
    each that is `found` the step is known to have said what is recorded, also where what follows cannot be repeated."""

    def __init__(self, numbers: Iterable[int]) -> None:
        super().__init__()
        self._numbers = sorted(numbers)
        self.first = OutputNumber(self._numbers[0])
        self.found: list[tuple[Step, TracedCall]] = []
        self._step: Step | None = None
        self._of_step: list[TracedCall] = []

    def step_begins(self, step: Step) -> None:
        self.step_ended()
        super().step_begins(step)
        at = bisect_left(self._numbers, self._next)
        if at == len(self._numbers):
            raise RowIsMade
        self._step = step
        self.is_on = self._numbers[at] < output_after(self._next, step.outputs)

    def step_ended(self) -> None:
        """Has said what is recorded: another one begins, or the epoch has ended."""
        if self._step is not None:
            self.found += [(self._step, call) for call in self._of_step]
        self._of_step = []

    def ended(self, call: TracedCall) -> None:
        at = bisect_left(self._numbers, call.first)
        if at < len(self._numbers) and self._numbers[at] <= call.last:
            self._of_step.append(call)


class Again(Tracer):
    """Looks on at the call that has made a row, `found` by an earlier repetition: in the same step, the same one in
    turn. So it is known before it has made its rows, and told from others that make none."""

    def __init__(self, found: TracedCall) -> None:
        super().__init__(found.first)
        self._call = found

    def is_again(self, call: TracedCall) -> bool:
        """Of a call of the step."""
        return call.index == self._call.index


class TracedOperator:
    """Stands where the operator stood."""

    def __init__(self, operator: Any, tracer: Watcher) -> None:
        self._operator = operator
        self._tracer = tracer
        self._services: CausalServices
        self._input = None if tracer.input_sets is None else InputWatch(tracer.input_sets, operator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    def open(self, services: CausalServices) -> None:
        self._services = services
        self._operator.open(services)

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        if not self._tracer.is_on:
            made: list[Row] = self._operator.bundle(keys, rows)
            return made
        if not self._operator.record_at_a_time:
            return self._traced("bundle", keys, rows, 0)
        produced: list[Row] = []
        with self._operator.pieces():
            for at, (key, row) in enumerate(zip(keys, rows, strict=True)):
                produced += self._traced("record", [key], [row], at)
        return produced

    def _traced(self, form: str, keys: list[Row], rows: list[Row], first: int) -> list[Row]:
        call = self._begin(form, keys)
        for at, row in enumerate(rows, first):
            place = self._services.where(at)
            assert place.channel is not None and place.position is not None
            # The function may change what it is given.
            kept = copy.deepcopy(row) if self._tracer.keeps_rows else ()
            call.inputs.append(InputRecord(place.channel, place.position, kept))
        if self._input is not None:
            self._input.records(call, keys)
        return self._ended(call, lambda: self._operator.bundle(keys, rows))

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]:
        if not self._tracer.is_on or not due:
            made: list[Row] = self._operator.timers(due, event)
            return made
        self._tracer.cancelled.clear()
        if _fires_together(self._operator):
            return self._fired(due, event)
        produced: list[Row] = []
        for one in due:
            if (one, event) in self._tracer.cancelled:  # by one that was fired before it
                continue
            produced += self._fired([one], event)
        return produced

    def _fired(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]:
        call = self._begin("timer", [unpack(data) for _, data, _ in due])
        call.timers = [(moment, name, event) for moment, _, name in due]
        if self._input is not None:
            self._input.timers([(*one, event) for one in due])
        return self._ended(call, lambda: self._operator.timers(due, event))

    def gathered(self) -> list[Row]:
        if not self._tracer.is_on:
            made: list[Row] = self._operator.gathered()
            return made
        call = self._begin("end of the epoch", [])
        if self._input is not None:
            self._input.end_of_epoch()
        return self._ended(call, self._operator.gathered)

    def _begin(self, form: str, keys: list[Row]) -> TracedCall:
        call = self._tracer.begin(form)
        call.keys = list(dict.fromkeys(keys))
        call.before = self._kept(call.keys)
        call.watermark = self._services.watermark
        return call

    def _ended(self, call: TracedCall, run: Callable[[], list[Row]]) -> list[Row]:
        given = self._services.given_rows
        assert given is not None, "the tracer's services have them"
        given.forget()
        outputs = self._tracer.runs(call, self._operator, run)
        call.forms = given.forms
        if self._input is not None:
            call.made_of = self._input.ended(len(outputs))
        call.after = self._kept(call.keys)
        self._tracer.end(call, outputs)
        return outputs

    def _kept(self, keys: list[Row]) -> dict[bytes, Any]:
        if not self._tracer.keeps_state:
            return {}
        found: dict[bytes, Any] = {}
        for key in keys:
            found |= copy.deepcopy(self._operator.kept(key))
        return found


def _fires_together(operator: Any) -> bool:
    """Whether timers that are due together are at work at the same time: those of an async function, whose answers come
    in whatever order they came in."""
    return operator.form == ProcessOperator.form and not operator.record_at_a_time


class TracedServices(CausalServices):
    """Tells the tracer what is asked for."""

    tracer: Watcher
    revealed: _Revealed

    def clock(self) -> int:
        reading = super().clock()
        self.tracer.note("clock", "of the bundle", reading)
        return reading

    def exact_clock(self) -> int:
        reading = super().exact_clock()
        self.tracer.note("clock", "exact", reading)
        return reading

    def call(
        self, fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        def run() -> Any:
            return super(TracedServices, self).call(fn, args, kwargs)

        return self._noted("call", said(fn, args, kwargs), run, identity=identity_of(fn, args, kwargs))

    def begin_call(self, calls: CallPort, asked: CallRequest) -> CallNumber:
        number = super().begin_call(calls, asked)
        what = f"{said(asked.fn, asked.args, asked.kwargs)} is under way as number {number}"
        self.tracer.asked(Asked("call", what, is_under_way=True))
        return number

    def next_answer(self, wait: Callable[[], Ended]) -> tuple[CallNumber, Callable[[], Any]]:
        number, reveal = super().next_answer(wait)
        self._noted("answer", f"to call number {number}", reveal, passes_on=False)
        return number, reveal

    def effect(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> Any:
        def run() -> Any:
            return super(TracedServices, self).effect(fn, args, kwargs, key)

        what = f"{said(fn, args, kwargs)}, key {key!r}"
        return self._noted("effect", what, run, identity=(key, identity_of(fn, args, kwargs)))

    def _noted(
        self, kind: str, what: str, run: Callable[[], Any], *, passes_on: bool = True, identity: Any = None
    ) -> Any:
        self.revealed.took = None
        try:
            given = run()
        except Exception as error:
            self.tracer.note(kind, what, error, identity, self.revealed.took)
            if passes_on:
                raise
            return None
        self.tracer.note(kind, what, copy.deepcopy(given), identity, self.revealed.took)
        return given


class _Revealed:
    """A codec of outcomes; `took` is of the one that was revealed last."""

    def __init__(self, outcomes: OutcomeCodec) -> None:
        self.capture = outcomes.capture
        self._outcomes = outcomes
        self.took: int | None = None

    def reveal(self, outcome: Outcome) -> Any:
        self.took = outcome.took
        return self._outcomes.reveal(outcome)


class TracedRandom(random.Random):
    """The instance's generator; each number that is drawn of it is told."""

    tracer: Watcher | None = None

    def random(self) -> float:
        drawn = super().random()
        if self.tracer is not None:
            self.tracer.note("draw", "random()", drawn)
        return drawn

    def getrandbits(self, k: int, /) -> int:
        drawn = super().getrandbits(k)
        if self.tracer is not None:
            self.tracer.note("draw", f"{k} bits", drawn)
        return drawn


class TracedTimers(TimerQueue):
    """Tells which timers are set and cancelled. `event`: whether they are of event time."""

    tracer: Watcher
    event = False

    def set(self, due: int, key: bytes, name: str = "") -> None:
        super().set(due, key, name)
        if (sets := self.tracer.input_sets) is not None:
            sets.timer_set((due, key, name, self.event))
        self.tracer.note("timer", f"{name!r} is set", due, (True, (due, key, name), self.event))

    def cancel(self, due: int, key: bytes, name: str = "") -> None:
        super().cancel(due, key, name)
        self.tracer.cancelled.add(((due, key, name), self.event))
        if (sets := self.tracer.input_sets) is not None:
            sets.timer_cancelled((due, key, name, self.event))
        self.tracer.note("timer", f"{name!r} is cancelled", due, (False, (due, key, name), self.event))


def traced_services(tracer: Watcher, state: KeyedState, outcomes: OutcomeCodec) -> TracedServices:
    """Those of an instance on which the tracer looks."""
    stream = TracedRandom()
    timers, event_timers = (TracedTimers(state, family) for family in (PROCESSING_TIME, EVENT_TIME))
    revealed = _Revealed(outcomes)
    services = TracedServices(
        state=state, timers=timers, event_timers=event_timers, random=stream, outcomes=revealed
    )
    services.revealed = revealed
    event_timers.event = True
    services.given_rows = GivenRows()
    services.input_sets = tracer.input_sets
    services.tracer = stream.tracer = timers.tracer = event_timers.tracer = tracer
    return services

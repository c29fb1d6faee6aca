"""A recorded call is tried again: a function is given the record, and its answers, as they were."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from clonos.archive.record_at_hand import StateInMemory, operator_of
from clonos.archive.recorded_answers import RecordedAnswers
from clonos.archive.tracing import Asked
from clonos.errors import Where
from clonos.operators.intercept.operator import InterceptedOperator
from clonos.operators.rows import RowDecoder, RowEncoder
from clonos.protocol.ids import Epoch, InstanceId
from clonos.protocol.recovery.causal.determinant import Outcome
from clonos.protocol.side_output import MAIN, output_of
from clonos.storage.one_row import row_stream, row_table
from clonos.storage.recorded_calls import RecordedAnswer, RecordedCall
from clonos.values.canonical_text import canonical
from clonos.values.grouping_keys import key_of
from clonos.values.readable import key_said, moment
from clonos_standby.replica.outcomes import Outcomes

Timer = tuple[bool, int, str, bool]
"""Whether it is set or cancelled, when it is due (microseconds), its name, whether it is of event time."""
_INSTANCE: Final = InstanceId(0)


@dataclass(frozen=True, slots=True)
class Said:
    """What a function made of a recorded call."""

    outputs: list[tuple[str, bytes]]  # as `RecordedCall.outputs`
    after: dict[bytes, Any]
    timers: list[Timer]
    random_after: tuple[Any, ...]
    asks: list[str]  # what is asked for otherwise, as lines


class _NotedTimers:
    """Timers that never fire."""

    def __init__(self, noted: list[Timer], *, event: bool) -> None:
        self._noted = noted
        self._event = event

    def set(self, due: int, key: bytes, name: str = "") -> None:
        self._noted.append((True, due, name, self._event))

    def cancel(self, due: int, key: bytes, name: str = "") -> None:
        self._noted.append((False, due, name, self._event))

    def next_due(self) -> int | None:
        return None


def try_again(call: RecordedCall, fn: Callable[..., Any]) -> Said:
    """What the function makes of it. Raises UserFunctionError where it raises, NotRecorded where it asks for something
    of which no answer is recorded, InputError where its rows do not fit, ConfigurationError where functions of the
    operator are not given one record."""
    state = StateInMemory(copy.deepcopy(call.before))
    timers: list[Timer] = []
    stream = random.Random()
    stream.setstate(call.random)
    services = RecordedAnswers(
        state=state,
        timers=_NotedTimers(timers, event=False),
        event_timers=_NotedTimers(timers, event=True),
        random=stream,
        outcomes=Outcomes(),
    )
    where = Where(call.operator, _INSTANCE, Epoch(call.epoch))
    services.where = lambda row: where
    services.watermark, services.reading = call.watermark, call.clock
    services.known, services.exact = [_asked(each) for each in call.answers], [*call.instants]
    operator = operator_of(call, fn)
    if call.intercept:
        operator = InterceptedOperator(operator)
    operator.open(services)
    table = call.table()
    rows = RowDecoder(table.schema, call.zone)
    (batch,) = table.to_batches()
    with services.all_recorded():
        made = operator.bundle([key_of(call.key)], rows.rows(rows.columns(batch), 1))
    asks = services.changed_effects()
    asks += [f"- call {one.what}" for one in services.known if one.kind == "call"]
    asks += ["- reads the clock"] * (call.clock is not None and not services.has_read)
    asks += ["- reads the exact clock"] * len(services.exact)
    return Said(rows_of(call, made), state.data, timers, stream.getstate(), asks)


def rows_of(call: RecordedCall, rows: list[tuple[Any, ...]]) -> list[tuple[str, bytes]]:
    """As a recorded call has them. Raises InputError."""
    schemas = {MAIN: call.output_schema(), **call.side_schemas()}
    encoders = {output: RowEncoder(schema, call.zone, call.operator) for output, schema in schemas.items()}
    return [(str(output_of(row)), row_stream(encoders[output_of(row)].batch([row]))) for row in rows]


def _asked(answer: RecordedAnswer) -> Asked:
    try:
        given = Outcomes().reveal(Outcome(answer.what, answer.ok, answer.payload))
    except Exception as error:  # that was raised then
        given = error
    return Asked(answer.kind, answer.what, given, answer.identity)


def answer_of(asked: Asked) -> RecordedAnswer:
    """As it is kept. Raises StateError where what was given is no plain value."""

    def again() -> Any:
        if isinstance(asked.given, Exception):
            raise asked.given
        return asked.given

    outcome = Outcomes().capture(asked.what, again, (), {})
    return RecordedAnswer(
        kind=asked.kind, what=asked.what, identity=asked.identity, ok=outcome.ok, payload=outcome.payload
    )


def differences(call: RecordedCall, said: Said) -> list[str]:
    """Between what was said then and now, as lines of text; none where it is the same."""
    lines = _changed([row_said(*each) for each in call.outputs], [row_said(*each) for each in said.outputs])
    if not lines and call.outputs != said.outputs:
        lines.append("rows differ in what their text does not show")
    for key in sorted(call.after.keys() | said.after.keys()):
        then, now = (canonical(state.get(key)) for state in (call.after, said.after))
        lines += _changed([f"state {key_said(key)!r}: {then}"], [f"state {key_said(key)!r}: {now}"])
    lines += _changed([*map(_timer_said, call.timers)], [*map(_timer_said, said.timers)])
    if call.random_after != said.random_after:
        lines.append(
            "draws other random numbers than then, or more, or fewer: all later draws are others, too"
        )
    return lines + said.asks


def _changed(then: list[str], now: list[str]) -> list[str]:
    """What is only in one, as often as it is; where they differ in their order alone, all of both."""
    gone, new = Counter(then) - Counter(now), Counter(now) - Counter(then)
    if then != now and not gone and not new:
        gone, new = Counter(then), Counter(now)
    return [f"- {each}" for each in gone.elements()] + [f"+ {each}" for each in new.elements()]


def row_said(output: str, row: bytes) -> str:
    (said,) = row_table(row).to_pylist()
    where = f"side output {output!r}: " if output else ""
    return where + ", ".join(f"{name}={value!r}" for name, value in said.items())


def _timer_said(timer: Timer) -> str:
    is_set, due, name, event = timer
    time = "event" if event else "processing"
    return f"timer {name!r} is {'set' if is_set else 'cancelled'}, for {moment(due)} in {time} time"

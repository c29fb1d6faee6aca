"""The causal services: how a user function meets the outside.

One object per instance, handed to the operator once. Each service is answered by the step that is being executed:
recorded when it runs for the first time, taken from the log when it is repeated. Calls and effects keep the
function's random stream out of reach of the closure they run, because a closure that is skipped in a replay must not
have shifted later draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from clonos.errors import Where
from clonos.protocol.engine.epoch_counts import EpochCounts
from clonos.protocol.engine.given_rows import GivenRows
from clonos.protocol.engine.task_scheduler import CallPort, CallRequest, Ended
from clonos.protocol.operator import InputSetPort
from clonos.protocol.recovery.causal.determinant import Answer, CallNumber, Outcome
from clonos.protocol.recovery.causal.recorder import StepRecorder


class OutcomeCodec(Protocol):
    """Runs a closure and turns its result or exception into bytes, and back."""

    def capture(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        took: int | None = None,
    ) -> Outcome:
        """Run `fn`; its encoded result, or its encoded exception with `ok` false. How long it took in microseconds, if
        that is to be recorded, is `took` where `fn` only hands over what was carried out before."""

    def reveal(self, outcome: Outcome) -> Any:
        """The result, or raise the exception."""


class CausalServices:
    """State, timers, clock, randomness, calls and effects of one instance."""

    def __init__(
        self, *, state: Any, timers: Any, event_timers: Any, random: Any, outcomes: OutcomeCodec
    ) -> None:
        self.state = state
        self.timers = timers
        self.event_timers = event_timers
        self.random = random
        self.watermark: int | None = None
        self.epoch_watermark: int | None = None
        self.input_sets: InputSetPort | None = None
        self.has_event_time = True  # the instance says whether any of its inputs has
        self.counts = EpochCounts()
        self.given_rows: GivenRows | None = None  # where it is asked how many rows each call gives
        self.step: StepRecorder | None = None
        self.where: Callable[[int | None], Where] = lambda row: Where()
        self.on_answer: Callable[[], None] = lambda: None  # the function is about to go on with one
        self._outcomes = outcomes

    def clock(self) -> int:
        """Microseconds since the epoch; the same value throughout a bundle."""
        return self._current().clock()

    def exact_clock(self) -> int:
        """Microseconds since the epoch, read at this call."""
        return self._current().instant()

    def call(
        self, fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The result of `fn`, or its exception, recorded once."""
        name = _name_of(fn)
        return self._outcomes.reveal(self._current().call(name, self._isolated(name, fn, args, kwargs)))

    def begin_call(self, calls: CallPort, asked: CallRequest) -> CallNumber:
        """Have a call carried out while the function goes on, unless what it came to is recorded."""
        name = _name_of(asked.fn)
        return self._current().begin_call(name, lambda number: calls.start(number, name, asked))

    def next_answer(self, wait: Callable[[], Ended]) -> tuple[CallNumber, Callable[[], Any]]:
        """The call under way that the function goes on with next: the recorded one, else the first to end, which `wait`
        gives. With what returns its result or raises its exception."""

        def ended() -> Answer:
            call = wait()
            outcome = self._outcomes.capture(call.name, call.result, (), {}, took=call.took)
            return Answer(call.number, outcome)

        answer = self._current().next_answer(ended)
        self.on_answer()
        return answer.number, partial(self._outcomes.reveal, answer.outcome)

    def effect(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> Any:
        """Like call, for an outside action: everything it depends on is stable before it happens."""
        return self._outcomes.reveal(
            self._current().effect(key, self._isolated(_name_of(fn), fn, args, kwargs))
        )

    def drop_late(self, records: int) -> None:
        """So many of the records being processed are late, and nothing comes of them."""
        self.counts.drop(records)

    def _current(self) -> StepRecorder:
        if self.step is None:
            raise RuntimeError(
                "causal services are only available while the function processes a record or a timer"
            )
        return self.step

    def _isolated(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None
    ) -> Callable[[], Outcome]:
        def perform() -> Outcome:
            stream = self.random.getstate()
            try:
                return self._outcomes.capture(name, fn, args, kwargs or {})
            finally:
                self.random.setstate(stream)

        return perform


def _name_of(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__

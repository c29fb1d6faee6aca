"""An operator whose user functions are answered from what is recorded, whichever way they are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from clonos.operators.intercept.active import answered_by, unanswered
from clonos.operators.intercept.answers import Answers
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.operator import RecordAtATime
from clonos.protocol.versions.programs import Programs

Row = tuple[Any, ...]


class InterceptedOperator:
    """Stands where the operator stood. Its functions are the user's while a step runs, and only then: `open`, `migrate`
    and `close`, which a replay does not repeat, see the real clock and real entropy."""

    def __init__(self, operator: RecordAtATime | Programs) -> None:
        self._operator = operator
        self._answers: Answers
        self.form = operator.form
        self.per_epoch = operator.per_epoch

    @property
    def record_at_a_time(self) -> bool:
        return self._operator.record_at_a_time

    def open(self, services: CausalServices) -> None:
        self._answers = Answers(services)
        self._operator.open(RuntimeServices(services))

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        return answered_by(self._answers, self._operator.bundle, keys, rows)

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]:
        return answered_by(self._answers, self._operator.timers, due, event)

    def gathered(self) -> list[Row]:
        return answered_by(self._answers, self._operator.gathered)

    def pieces(self) -> AbstractContextManager[None]:
        return self._operator.pieces()

    def kept(self, key: Row) -> dict[bytes, Any]:
        return self._operator.kept(key)

    def close(self) -> None:
        self._operator.close()


class RuntimeServices:
    """The causal services, which are no part of the user's function: while they work, nothing is answered."""

    def __init__(self, services: CausalServices) -> None:
        self._services = services

    def __getattr__(self, name: str) -> Any:
        return getattr(self._services, name)

    def clock(self) -> int:
        return unanswered(self._services.clock)

    def exact_clock(self) -> int:
        return unanswered(self._services.exact_clock)

    def call(
        self, fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return unanswered(self._services.call, fn, args, kwargs)

    def begin_call(self, calls: Any, asked: Any) -> Any:
        return unanswered(self._services.begin_call, calls, asked)

    def next_answer(self, wait: Callable[[], Any]) -> Any:
        return unanswered(self._services.next_answer, wait)

    def effect(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> Any:
        return unanswered(self._services.effect, fn, args, kwargs, key)

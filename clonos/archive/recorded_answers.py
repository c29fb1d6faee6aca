"""What a function asked for is answered as it was then, as long as it asks alike."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clonos.archive.tracing import Asked, identity_of, said
from clonos.errors import UserFunctionError
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.recovery.causal.determinant import Kind, Step


class Calls(enum.Enum):
    """What becomes of a call of which no answer is recorded."""

    FAIL = "fail"  # what comes of the record is not known
    LIVE = "live"  # it is made


class NotRecorded(UserFunctionError):
    """The other function asked for something of which it is not recorded what it was given."""


class RecordedAnswers(CausalServices):
    """What was recorded, as long as it is asked for alike."""

    calls = Calls.FAIL
    reading: int | None = None  # of the clock, in microseconds

    def __init__(self, **ports: Any) -> None:
        super().__init__(**ports)
        self.known: list[Asked] = []
        self.exact: list[int] = []

    def clock(self) -> int:
        if self.reading is None:
            raise NotRecorded(
                "it reads the clock, which was not read then for these records",
                hint="What it would have read is not recorded",
            )
        return self.reading

    def exact_clock(self) -> int:
        return self.exact.pop(0) if self.exact else self.clock()

    def call(
        self, fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        wanted = identity_of(fn, args, kwargs)
        for one in self._taken("call", wanted):
            return _given(one)
        if self.calls is Calls.LIVE:
            return fn(*args, **(kwargs or {}))
        raise NotRecorded(
            f"it calls {said(fn, args, kwargs)}, which was not called for this record then",
            hint="With --calls live it is made, and answered as it is today",
        )

    def begin_call(self, calls: Any, asked: Any) -> Any:
        raise NotRecorded(
            "it calls while it goes on with other records", hint="Give a function that does not"
        )

    def effect(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> Any:
        for one in self._taken("effect", key):
            return _given(one)
        return None

    def _taken(self, kind: str, identity: Any) -> Iterator[Asked]:
        """The first that is it, which is not found again."""
        for at, one in enumerate(self.known):
            if one.kind == kind and one.identity == identity:
                del self.known[at]
                yield one
                return


def _given(one: Asked) -> Any:
    if isinstance(one.given, Exception):
        raise one.given
    return copy.deepcopy(one.given)


def reading_of(step: Step) -> int | None:
    """What the clock said in a step that has not been repeated yet, if anything has read it then; in microseconds."""
    return step.clocks[0] if step.clocks else step.fired_at if step.kind is Kind.TIMER else None

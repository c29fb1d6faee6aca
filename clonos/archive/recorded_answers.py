"""What a function asked for is answered as it was then, as long as it asks alike."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from clonos.archive.question import identity_of, is_same, said
from clonos.archive.tracing import Asked
from clonos.errors import ClonosError, UserFunctionError
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
        self.has_read = False  # the clock
        self._changed: list[str] = []
        self._unanswered: NotRecorded | None = None  # the first one

    def answers(self, asked: list[Asked]) -> None:
        """Those to what was asked for a record then."""
        self.known = [one for one in asked if one.kind in ("call", "effect")]
        self.exact = [one.given for one in asked if (one.kind, one.what) == ("clock", "exact")]
        self.has_read, self._changed, self._unanswered = False, [], None

    @contextmanager
    def all_recorded(self) -> Iterator[None]:
        """While a function is run. Raises NotRecorded at the end where it has asked for something of which no answer is
        recorded, whatever it has made of that: it may catch the error, and say something as if a service had failed."""
        try:
            yield
        except ClonosError:
            self._check_recorded()
            raise
        self._check_recorded()

    def _check_recorded(self) -> None:
        if self._unanswered is not None:
            raise self._unanswered

    def _not_recorded(self, what: str, hint: str) -> NotRecorded:
        """To be raised."""
        error = NotRecorded(what, hint=hint)
        if self._unanswered is None:
            self._unanswered = error
        return error

    def changed_effects(self) -> list[str]:
        """Where other effects were to be performed than then, as lines."""
        return self._changed + [f"- effect {one.what}" for one in self.known if one.kind == "effect"]

    def clock(self) -> int:
        self.has_read = True
        if self.reading is None:
            raise self._not_recorded(
                "it reads the clock, which was not read then", "What it would have read is not recorded"
            )
        return self.reading

    def exact_clock(self) -> int:
        if not self.exact:
            raise self._not_recorded(
                "it reads the exact clock more often than then",
                "What it would have read is not recorded",
            )
        return self.exact.pop(0)

    def call(
        self, fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        wanted = identity_of(fn, args, kwargs)
        for one in self._taken("call", lambda known: is_same(known, wanted)):
            return _given(one)
        if self.calls is Calls.LIVE:
            return fn(*args, **(kwargs or {}))
        raise self._not_recorded(
            f"it calls {said(fn, args, kwargs)}, which was not called for this record then",
            "`clonos replay --against` makes such calls with --calls live",
        )

    def begin_call(self, calls: Any, asked: Any) -> Any:
        raise self._not_recorded(
            "it calls while it goes on with other records", "Give a function that does not"
        )

    def effect(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> Any:
        """It is not performed. What one gave under its key then is given again; another one gives None."""
        now = f"+ effect {said(fn, args, kwargs)}, key {key!r}"
        for one in self._taken("effect", lambda known: bool(known[0] == key)):
            if not is_same(one.identity[1], identity_of(fn, args, kwargs)):
                self._changed += [f"- effect {one.what}", now]
            return _given(one)
        self._changed.append(now)
        return None

    def _taken(self, kind: str, is_it: Callable[[Any], bool]) -> Iterator[Asked]:
        """The first that is it, which is not found again."""
        for at, one in enumerate(self.known):
            if one.kind == kind and is_it(one.identity):
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

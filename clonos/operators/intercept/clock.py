"""Clocks: the functions of `time`, and what `datetime` and `date` read of it.

All of them come from one kind of recorded reading, in microseconds since the epoch. So do clocks that promise no more
than to go on (`monotonic`, `perf_counter`): within a step they never go back. Clocks of processor time cannot be had
from it; each of their readings is recorded as a call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, tzinfo
from functools import partial
from typing import Any, Final

from clonos.operators.intercept.answers import Answers
from clonos.operators.intercept.intercepted import Answer, answers_for_caller

_SECOND: Final = 1_000_000
_NANOSECONDS: Final = 1000
_MEASURED: Final = ("process_time", "process_time_ns", "thread_time", "thread_time_ns")
_STEADY_IDS: Final = ("CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME", "CLOCK_UPTIME_RAW")
_clock_gettime: Final = getattr(time, "clock_gettime", None)
_clock_gettime_ns: Final = getattr(time, "clock_gettime_ns", None)
_steady_ids: Final = frozenset(getattr(time, name) for name in _STEADY_IDS if hasattr(time, name))


def _seconds(answers: Answers) -> float:
    return answers.now() / _SECOND


def _steady_seconds(answers: Answers) -> float:
    return answers.steady() / _SECOND


def _clock(answers: Answers, which: int) -> float:
    if which == time.CLOCK_REALTIME:
        return _seconds(answers)
    found: float = (
        _steady_seconds(answers) if which in _steady_ids else answers.call(_clock_gettime, which)  # type: ignore[arg-type]
    )
    return found


def _clock_ns(answers: Answers, which: int) -> int:
    if which == time.CLOCK_REALTIME:
        return answers.now() * _NANOSECONDS
    found: int = (
        answers.steady() * _NANOSECONDS if which in _steady_ids else answers.call(_clock_gettime_ns, which)  # type: ignore[arg-type]
    )
    return found


def _broken_down(real: Callable[..., Any], answers: Answers, secs: float | None = None) -> Any:
    """Of `gmtime`, `localtime` and `ctime`, which take the time that is meant, or mean the present."""
    return real(_seconds(answers) if secs is None else secs)


def _formatted(real: Callable[..., Any], local: Callable[..., Any], answers: Answers, *given: Any) -> Any:
    """Of `strftime(format, t)` and `asctime(t)`, where `t` may be left out."""
    takes = 2 if real.__name__ == "strftime" else 1
    return real(*given, local(_seconds(answers))) if len(given) < takes else real(*given)


def of_time() -> Mapping[str, Answer]:
    """By the name of a function of `time`."""
    found: dict[str, Answer] = {
        "time": _seconds,
        "time_ns": lambda answers: answers.now() * _NANOSECONDS,
        "monotonic": _steady_seconds,
        "monotonic_ns": lambda answers: answers.steady() * _NANOSECONDS,
        "perf_counter": _steady_seconds,
        "perf_counter_ns": lambda answers: answers.steady() * _NANOSECONDS,
        "clock_gettime": _clock,
        "clock_gettime_ns": _clock_ns,
    }
    for name in _MEASURED:
        found[name] = partial(_recorded, getattr(time, name, None))
    for name in ("gmtime", "localtime", "ctime"):
        found[name] = partial(_broken_down, getattr(time, name))
    for name in ("strftime", "asctime"):
        found[name] = partial(_formatted, getattr(time, name), time.localtime)
    return {name: answer for name, answer in found.items() if hasattr(time, name)}


def _recorded(real: Any, answers: Answers) -> Any:
    return answers.call(real)


# ------------------------------------------------------------------ datetime and date


def _moment(kind: type[datetime], micros: int, zone: tzinfo | None) -> datetime:
    seconds, rest = divmod(micros, _SECOND)
    return kind.fromtimestamp(seconds, zone).replace(microsecond=rest)


def _now_of(real: Any) -> Any:
    def now(cls: type[datetime], tz: tzinfo | None = None) -> datetime:
        answers = answers_for_caller()
        if answers is None:
            found: datetime = real.__get__(None, cls)(tz)
            return found
        return _moment(cls, answers.now(), tz)

    return now


def _utcnow_of(real: Any) -> Any:
    def utcnow(cls: type[datetime]) -> datetime:
        answers = answers_for_caller()
        if answers is None:
            found: datetime = real.__get__(None, cls)()
            return found
        return _moment(cls, answers.now(), UTC).replace(tzinfo=None)

    return utcnow


def _today_of(real: Any) -> Any:
    def today(cls: type[date]) -> date:
        answers = answers_for_caller()
        if answers is None:
            found: date = real.__get__(None, cls)()
            return found
        if issubclass(cls, datetime):
            return _moment(cls, answers.now(), None)
        return cls.fromtimestamp(_seconds(answers))

    return today


CLASS_METHODS: Final[tuple[tuple[type, str, Callable[[Any], Any]], ...]] = (
    (datetime, "now", _now_of),
    (datetime, "utcnow", _utcnow_of),
    (date, "today", _today_of),
)
"""Of which class which method, and what makes of the real one the one that asks first."""

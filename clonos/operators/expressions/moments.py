"""Parts of dates and timestamps. Of an instant only where the session's zone is UTC or an offset."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any, Final

from clonos.operators.expressions.compiled import EvaluationError, Scope, Value, evaluates, literal
from clonos.operators.expressions.kinds import INTEGERS, need
from clonos.operators.expressions.texts import null_safe
from clonos.operators.expressions.tree import Expression
from clonos.operators.rows import instant

_OF_DATES: Final[dict[str, Callable[[date], int]]] = {
    "Year": lambda day: day.year,
    "Quarter": lambda day: (day.month + 2) // 3,
    "Month": lambda day: day.month,
    "DayOfMonth": lambda day: day.day,
    "DayOfYear": lambda day: day.timetuple().tm_yday,
    "DayOfWeek": lambda day: day.isoweekday() % 7 + 1,
    "WeekDay": lambda day: day.weekday(),
}
_OF_TIMES: Final[dict[str, Callable[[datetime], int]]] = {
    "Hour": lambda moment: moment.hour,
    "Minute": lambda moment: moment.minute,
    "Second": lambda moment: moment.second,
}
_TIMES: Final = {"HOUR": 0, "MINUTE": 1, "SECOND": 2}


@evaluates(*_OF_DATES)
def _date_part(expression: Expression, args: list[Value], scope: Scope) -> Value:
    need(expression, expression.args[0].kind == "date")
    return null_safe(args, _OF_DATES[expression.op])


@evaluates(*_OF_TIMES)
def _time_part(expression: Expression, args: list[Value], scope: Scope) -> Value:
    _need_wall_clock(expression, expression.args[0].kind, scope)
    return null_safe(args, _OF_TIMES[expression.op])


def _need_wall_clock(expression: Expression, kind: str, scope: Scope) -> None:
    known = kind == "timestamp_ntz" or (kind == "timestamp" and scope.is_fixed)
    need(expression, known, f"of {kind} in the time zone {scope.zone_name}")


@evaluates("DateAdd", "DateSub")
def _moved(expression: Expression, args: list[Value], scope: Scope) -> Value:
    day, days = expression.args
    need(expression, day.kind == "date" and days.kind in INTEGERS)
    sign = 1 if expression.op == "DateAdd" else -1
    return null_safe(args, _within_years(expression, lambda day, count: day + timedelta(days=sign * count)))


def _within_years(expression: Expression, move: Callable[..., Any]) -> Callable[..., Any]:
    """Raises EvaluationError where Spark would go on beyond the years that Python has."""

    def moved(*values: Any) -> Any:
        try:
            return move(*values)
        except OverflowError:
            said = ", ".join(map(str, values))
            raise EvaluationError(
                f"{expression.text} of {said} is beyond the years 1 to 9999, which are all that a replica's dates "
                "can hold. Drop such rows with where() before"
            ) from None

    return moved


_PER_UNIT: Final = {"UnixSeconds": 1_000_000, "UnixMillis": 1000, "UnixMicros": 1}


@evaluates(*_PER_UNIT)
def _since_1970(expression: Expression, args: list[Value], scope: Scope) -> Value:
    need(expression, expression.args[0].kind == "timestamp")
    zone, unit = scope.zone, _PER_UNIT[expression.op]
    return null_safe(args, lambda moment: instant(moment, zone) // unit)


@evaluates("DateDiff")
def _difference(expression: Expression, args: list[Value], scope: Scope) -> Value:
    need(expression, all(arg.kind == "date" for arg in expression.args))
    return null_safe(args, lambda end, start: (end - start).days)


@evaluates("TruncTimestamp")
def _truncated(expression: Expression, args: list[Value], scope: Scope) -> Value:
    """`date_trunc(unit, moment)`."""
    unit = literal(expression.args[0])
    _need_wall_clock(expression, expression.args[1].kind, scope)
    if unit is None:
        return lambda row: None
    truncate = _truncation(unit.upper())
    need(expression, truncate is not None, f"to {unit!r}")
    assert truncate is not None
    return null_safe(args[1:], truncate)


def _truncation(unit: str) -> Callable[[Any], Any] | None:
    if unit in ("YEAR", "YYYY", "YY"):
        return lambda moment: datetime(moment.year, 1, 1)
    if unit == "QUARTER":
        return lambda moment: datetime(moment.year, moment.month - (moment.month - 1) % 3, 1)
    if unit in ("MONTH", "MON", "MM"):
        return lambda moment: datetime(moment.year, moment.month, 1)
    if unit == "WEEK":
        return lambda moment: _midnight(moment) - timedelta(days=moment.weekday())
    if unit in ("DAY", "DD"):
        return _midnight
    if unit in _TIMES:
        places = _TIMES[unit] + 4
        return lambda moment: datetime(*moment.timetuple()[:places])
    if unit == "MILLISECOND":
        return lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    return (lambda moment: moment) if unit == "MICROSECOND" else None


def _midnight(moment: datetime) -> datetime:
    return datetime(moment.year, moment.month, moment.day)

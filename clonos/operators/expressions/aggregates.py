"""Spark's aggregate functions over rows that come one by one: what is kept of those that have come, and what it says.

What is kept are plain values, so that it can be state. Sums of doubles are added up in the order in which rows come;
Spark adds up per partition first, so that the last digits may differ there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

from clonos.operators.expressions.arithmetic import (
    ANSI,
    EXACT,
    LEGACY,
    bounded,
    decimal_result,
    divided_decimals,
    fitted,
)
from clonos.operators.expressions.comparing import comparison
from clonos.operators.expressions.compiled import EvaluationError, Row, Scope, evaluator
from clonos.operators.expressions.kinds import FLOATS, INTEGERS, decimal_of, is_number, is_scalar
from clonos.operators.expressions.tree import Expression, Unsupported

Kept = Any
_OVERFLOW: Final = "overflow"
"""Is kept of a sum of decimals that had too many digits once."""


class AggregateCall(NamedTuple):
    """`op` is the class of Spark's aggregate function, `kind` the type of its results; `condition` says which rows
    count."""

    op: str
    kind: str
    args: tuple[Expression, ...]
    more: tuple[tuple[str, Any], ...]
    condition: Expression | None
    text: str

    def said(self, name: str, default: Any = None) -> Any:
        return dict(self.more).get(name, default)

    @property
    def canonical(self) -> tuple[Any, ...]:
        """By the names of columns, which may move to other places when one is added."""
        condition = None if self.condition is None else self.condition.text
        return self.op, self.kind, self.more, tuple((arg.kind, arg.text) for arg in self.args), condition


class Aggregation(NamedTuple):
    """`calls` are over the rows that come in, `results` over a row of `before` columns and what the calls say."""

    calls: tuple[AggregateCall, ...]
    results: tuple[Expression, ...]
    zone: str

    @property
    def digest(self) -> str:
        """Of what is kept: the same in every process."""
        what = (tuple(call.canonical for call in self.calls), self.zone)
        return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


class Function(Protocol):
    """One aggregate function. `values` are those of its arguments for a row."""

    def add(self, kept: Kept, values: list[Any]) -> Kept:
        """What is kept after a row; None is kept before the first."""

    def merge(self, one: Kept, other: Kept) -> Kept:
        """Of two, neither of them None, the earlier one first."""

    def result(self, kept: Kept) -> Any: ...


class _Count:
    def __init__(self, call: AggregateCall, scope: Scope) -> None:
        pass

    def add(self, kept: Kept, values: list[Any]) -> Kept:
        return (kept or 0) + (None not in values)

    def merge(self, one: Kept, other: Kept) -> Kept:
        return one + other

    def result(self, kept: Kept) -> Any:
        return kept or 0


class _Sum:
    """Null, while only nulls have come."""

    def __init__(self, call: AggregateCall, scope: Scope) -> None:
        _need(call, is_number(call.args[0].kind) and call.said("mode") in (ANSI, LEGACY))
        self._zero: Any
        self._add: Callable[[Any, Any], Any]
        if call.kind in FLOATS:
            self._zero, self._add = 0.0, float.__add__
        elif call.kind in INTEGERS:
            fits = bounded(call.kind, call.said("mode"), call.text)
            self._zero, self._add = 0, lambda a, b: fits(a + b)
        else:
            self._zero, self._add = Decimal(0), _exact_sum(call.kind)
        self._checked = _checked_sum(call)

    def add(self, kept: Kept, values: list[Any]) -> Kept:
        (value,) = values
        if value is None:
            return kept
        return self._add(self._zero if kept is None else kept, value)

    def merge(self, one: Kept, other: Kept) -> Kept:
        return self._add(one, other)

    def result(self, kept: Kept) -> Any:
        return self._checked(kept)


class _Average:
    """Keeps the sum and the count of what is not null. Integers are added up as doubles, as in Spark."""

    def __init__(self, call: AggregateCall, scope: Scope) -> None:
        kind = call.args[0].kind
        _need(call, is_number(kind) and call.said("mode") in (ANSI, LEGACY))
        found = decimal_of(kind)
        self._zero: Any
        self._add: Callable[[Any, Any], Any]
        if found is None:
            self._zero, self._add = 0.0, lambda a, b: a + float(b)
            self._divide: Callable[[Any, int], Any] = lambda total, count: total / count
        else:
            precision, scale = found
            self._zero, self._add = Decimal(0), _exact_sum(f"decimal({min(precision + 10, 38)},{scale})")
            fits, checked = decimal_result(call.kind, call.said("mode"), call.text), _checked_sum(call)

            def divide(total: Any, count: int) -> Any:
                total = checked(total)
                return None if total is None else fits(divided_decimals(total, Decimal(count)))

            self._divide = divide

    def add(self, kept: Kept, values: list[Any]) -> Kept:
        (value,) = values
        if value is None:
            return kept
        total, count = (self._zero, 0) if kept is None else kept
        return [self._add(total, value), count + 1]

    def merge(self, one: Kept, other: Kept) -> Kept:
        return [self._add(one[0], other[0]), one[1] + other[1]]

    def result(self, kept: Kept) -> Any:
        return None if kept is None else self._divide(*kept)


class _Extreme:
    """The least or the greatest of what is not null."""

    def __init__(self, call: AggregateCall, scope: Scope) -> None:
        _need(call, is_scalar(call.args[0].kind))
        self._replaces = comparison(
            "LessThan" if call.op == "Min" else "GreaterThan", call.args[0].kind, scope
        )

    def add(self, kept: Kept, values: list[Any]) -> Kept:
        (value,) = values
        if value is None or (kept is not None and not self._replaces(value, kept)):
            return kept
        return value

    def merge(self, one: Kept, other: Kept) -> Kept:
        return other if self._replaces(other, one) else one

    def result(self, kept: Kept) -> Any:
        return kept


class _AtAnEnd:
    """The first or the last that has come, in a list of its own, for it may be null."""

    def __init__(self, call: AggregateCall, scope: Scope) -> None:
        _need(call, is_scalar(call.args[0].kind))
        self._ignores_nulls = bool(call.said("ignore_nulls"))
        self._is_first = call.op == "First"

    def add(self, kept: Kept, values: list[Any]) -> Kept:
        if (self._ignores_nulls and values[0] is None) or (self._is_first and kept is not None):
            return kept
        return values

    def merge(self, one: Kept, other: Kept) -> Kept:
        return one if self._is_first else other

    def result(self, kept: Kept) -> Any:
        return None if kept is None else kept[0]


_FUNCTIONS: Final[dict[str, Callable[[AggregateCall, Scope], Function]]] = {
    "Count": _Count,
    "Sum": _Sum,
    "Average": _Average,
    "Min": _Extreme,
    "Max": _Extreme,
    "First": _AtAnEnd,
    "Last": _AtAnEnd,
}
OTHERS_ARE_KEPT: Final = (
    "Go on with those that the checkpoint was begun with, and give others a name= of their own"
)
"""The hint where what is kept is of other aggregates."""


class Fold:
    """An aggregation at work: what is kept is a list, one of each call. Raises Unsupported."""

    def __init__(self, aggregation: Aggregation) -> None:
        scope = Scope(aggregation.zone)
        self._functions = [_function(call, scope) for call in aggregation.calls]
        self._given = [
            (
                function,
                [evaluator(arg, scope) for arg in call.args],
                None if call.condition is None else evaluator(call.condition, scope),
            )
            for function, call in zip(self._functions, aggregation.calls, strict=True)
        ]
        self._results = [evaluator(result, scope) for result in aggregation.results]

    @cached_property
    def nothing(self) -> tuple[Kept, ...]:
        """What is kept before the first row."""
        return (None,) * len(self._functions)

    def add(self, kept: list[Kept], row: Row) -> None:
        """Change what is kept by a row. Raises EvaluationError."""
        for at, (function, values, condition) in enumerate(self._given):
            if condition is None or condition(row) is True:
                kept[at] = function.add(kept[at], [value(row) for value in values])

    def merge(self, one: list[Kept], other: list[Kept]) -> list[Kept]:
        """Of two that are one now, the earlier one first."""
        return [
            mine if theirs is None else theirs if mine is None else function.merge(mine, theirs)
            for function, mine, theirs in zip(self._functions, one, other, strict=True)
        ]

    def row(self, before: tuple[Any, ...], kept: list[Kept]) -> tuple[Any, ...]:
        """The output row. Raises EvaluationError."""
        said = [function.result(each) for function, each in zip(self._functions, kept, strict=True)]
        row = (*before, *said)
        return tuple([result(row) for result in self._results])


def _function(call: AggregateCall, scope: Scope) -> Function:
    maker = _FUNCTIONS.get(call.op)
    if maker is None:
        raise Unsupported(_as_expression(call))
    return maker(call, scope)


def _need(call: AggregateCall, fits: bool) -> None:
    """Raises Unsupported."""
    if not fits:
        raise Unsupported(_as_expression(call), f"of {', '.join(arg.kind for arg in call.args)}")


def _as_expression(call: AggregateCall) -> Expression:
    return Expression(call.op, call.kind, call.args, call.more, call.text)


def _exact_sum(kind: str) -> Callable[[Any, Any], Any]:
    found = decimal_of(kind)
    assert found is not None

    def added(a: Any, b: Any) -> Any:
        if _OVERFLOW in (a, b):
            return _OVERFLOW
        exact = fitted(EXACT.add(a, b), *found)
        return _OVERFLOW if exact is None else exact

    return added


def _checked_sum(call: AggregateCall) -> Callable[[Any], Any]:
    def checked(total: Any) -> Any:
        if total != _OVERFLOW:
            return total
        if call.said("mode") == ANSI:
            raise EvaluationError(f"{call.text}: the sum has too many digits for {call.kind}")
        return None

    return checked

"""=, <=>, <, IN, greatest and least. NaN equals itself and is greater than every other number; instants are compared,
not what a wall clock says."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from clonos.operators.expressions.compiled import Row, Scope, Value, evaluates
from clonos.operators.expressions.kinds import FLOATS, is_scalar, need
from clonos.operators.expressions.tree import Expression
from clonos.operators.rows import instant

Compare = Callable[[Any, Any], bool]


def _equal_floats(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def _less_float(a: float, b: float) -> bool:
    return a < b or (b != b and a == a)


_FLOATS: dict[str, Compare] = {
    "EqualTo": _equal_floats,
    "LessThan": _less_float,
    "GreaterThan": lambda a, b: _less_float(b, a),
    "LessThanOrEqual": lambda a, b: not _less_float(b, a),
    "GreaterThanOrEqual": lambda a, b: not _less_float(a, b),
}
_OTHERS: dict[str, Compare] = {
    "EqualTo": operator.eq,
    "LessThan": operator.lt,
    "GreaterThan": operator.gt,
    "LessThanOrEqual": operator.le,
    "GreaterThanOrEqual": operator.ge,
}


def comparison(op: str, kind: str, scope: Scope) -> Compare:
    """Of two values of a type, neither null."""
    if kind in FLOATS:
        return _FLOATS[op]
    compare = _OTHERS[op]
    if kind == "timestamp" and not scope.is_fixed:
        zone = scope.zone
        return lambda a, b: compare(instant(a, zone), instant(b, zone))
    return compare


def _check(expression: Expression) -> None:
    first = expression.args[0].kind
    need(expression, is_scalar(first) and all(arg.kind == first for arg in expression.args))


@evaluates(*_OTHERS)
def _comparison(expression: Expression, args: list[Value], scope: Scope) -> Value:
    _check(expression)
    left, right = args
    compare = comparison(expression.op, expression.args[0].kind, scope)

    def compared(row: Row) -> bool | None:
        a = left(row)
        if a is None:
            return None
        b = right(row)
        return None if b is None else compare(a, b)

    return compared


@evaluates("EqualNullSafe")
def _null_safe(expression: Expression, args: list[Value], scope: Scope) -> Value:
    _check(expression)
    left, right = args
    equal = comparison("EqualTo", expression.args[0].kind, scope)

    def compared(row: Row) -> bool:
        a, b = left(row), right(row)
        return a is b is None if a is None or b is None else equal(a, b)

    return compared


@evaluates("In")
def _in(expression: Expression, args: list[Value], scope: Scope) -> Value:
    _check(expression)
    value, *listed = args
    equal = comparison("EqualTo", expression.args[0].kind, scope)

    def found(row: Row) -> bool | None:
        a = value(row)
        if a is None:
            return None if listed else False
        has_null = False
        for each in listed:
            b = each(row)
            if b is None:
                has_null = True
            elif equal(a, b):
                return True
        return None if has_null else False

    return found


@evaluates("Greatest", "Least")
def _extreme(expression: Expression, args: list[Value], scope: Scope) -> Value:
    _check(expression)
    op = "GreaterThan" if expression.op == "Greatest" else "LessThan"
    beyond = comparison(op, expression.args[0].kind, scope)

    def extreme(row: Row) -> Any:
        found = None
        for each in args:
            value = each(row)
            if value is not None and (found is None or beyond(value, found)):
                found = value
        return found

    return extreme

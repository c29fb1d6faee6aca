"""AND, OR, NOT in three values, nulls, and choices. What is not asked for is not evaluated, as in Spark."""

from __future__ import annotations

from typing import Any

from clonos.operators.expressions.compiled import Row, Scope, Value, evaluates
from clonos.operators.expressions.kinds import FLOATS, need
from clonos.operators.expressions.tree import Expression


@evaluates("And")
def _and(expression: Expression, args: list[Value], scope: Scope) -> Value:
    left, right = args

    def both(row: Row) -> bool | None:
        a = left(row)
        if a is False:
            return False
        b = right(row)
        if b is False:
            return False
        return None if a is None or b is None else True

    return both


@evaluates("Or")
def _or(expression: Expression, args: list[Value], scope: Scope) -> Value:
    left, right = args

    def either(row: Row) -> bool | None:
        a = left(row)
        if a is True:
            return True
        b = right(row)
        if b is True:
            return True
        return None if a is None or b is None else False

    return either


@evaluates("Not")
def _not(expression: Expression, args: list[Value], scope: Scope) -> Value:
    (given,) = args

    def inverted(row: Row) -> bool | None:
        value = given(row)
        return None if value is None else not value

    return inverted


@evaluates("IsNull")
def _is_null(expression: Expression, args: list[Value], scope: Scope) -> Value:
    (given,) = args
    return lambda row: given(row) is None


@evaluates("IsNotNull")
def _is_not_null(expression: Expression, args: list[Value], scope: Scope) -> Value:
    (given,) = args
    return lambda row: given(row) is not None


@evaluates("IsNaN")
def _is_nan(expression: Expression, args: list[Value], scope: Scope) -> Value:
    (given,) = args
    need(expression, expression.args[0].kind in FLOATS)

    def is_nan(row: Row) -> bool:
        value = given(row)
        return bool(value != value)

    return is_nan


@evaluates("NaNvl")
def _nanvl(expression: Expression, args: list[Value], scope: Scope) -> Value:
    left, right = args
    need(expression, expression.kind in FLOATS)

    def chosen(row: Row) -> Any:
        value = left(row)
        return right(row) if value != value else value

    return chosen


@evaluates("Coalesce")
def _coalesce(expression: Expression, args: list[Value], scope: Scope) -> Value:
    def first(row: Row) -> Any:
        for each in args:
            value = each(row)
            if value is not None:
                return value
        return None

    return first


@evaluates("If")
def _if(expression: Expression, args: list[Value], scope: Scope) -> Value:
    condition, then, otherwise = args
    return lambda row: then(row) if condition(row) is True else otherwise(row)


@evaluates("CaseWhen")
def _case(expression: Expression, args: list[Value], scope: Scope) -> Value:
    """Conditions and values in turn, and what remains is the value otherwise."""
    pairs = list(zip(args[0 : len(args) - 1 : 2], args[1::2], strict=True))
    otherwise = args[-1] if len(args) % 2 else None

    def chosen(row: Row) -> Any:
        for condition, value in pairs:
            if condition(row) is True:
                return value(row)
        return None if otherwise is None else otherwise(row)

    return chosen


@evaluates("NullIfResult")
def _null_if(expression: Expression, args: list[Value], scope: Scope) -> Value:
    condition, value = args
    return lambda row: None if condition(row) is True else value(row)

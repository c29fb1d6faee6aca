"""Fields of structs, elements of arrays, values of maps, and what is made of them.

Not elements of `array(...)` itself: where the index is null, Spark takes its elements for what is never null, and
gives 0.
"""

from __future__ import annotations

from typing import Any, Final

from clonos.operators.expressions.comparing import comparison
from clonos.operators.expressions.compiled import EvaluationError, Row, Scope, Value, evaluates, literal
from clonos.operators.expressions.kinds import INTEGERS, is_scalar, need
from clonos.operators.expressions.texts import null_safe
from clonos.operators.expressions.tree import Expression

_KEYS: Final = {*INTEGERS, "string", "boolean", "date", "timestamp_ntz"}
"""Types whose values are equal in Python where they are in Spark."""


@evaluates("GetStructField")
def _field(expression: Expression, args: list[Value], scope: Scope) -> Value:
    at = expression.said("at")
    return null_safe(args, lambda value: value[at])


@evaluates("GetArrayItem")
def _item(expression: Expression, args: list[Value], scope: Scope) -> Value:
    fails, text = expression.said("fails"), expression.text

    def item(values: list[Any], index: int) -> Any:
        if 0 <= index < len(values):
            return values[index]
        if fails:
            raise EvaluationError(f"{text}: index {index} of an array of {len(values)}")
        return None

    need(expression, expression.args[1].kind in INTEGERS and expression.args[0].op != "CreateArray")
    return null_safe(args, item)


@evaluates("GetMapValue")
def _value(expression: Expression, args: list[Value], scope: Scope) -> Value:
    need(expression, expression.args[1].kind in _KEYS)
    return null_safe(args, lambda values, key: values.get(key))


@evaluates("ElementAt")
def _element(expression: Expression, args: list[Value], scope: Scope) -> Value:
    if expression.args[0].kind.startswith("map<"):
        return _value(expression, args, scope)
    need(expression, expression.args[1].kind in INTEGERS and not expression.said("has_default"))
    need(expression, expression.args[0].op != "CreateArray")
    fails, text = expression.said("fails"), expression.text

    def element(values: list[Any], index: int) -> Any:
        if index == 0:
            raise EvaluationError(f"{text}: elements are counted from 1")
        if abs(index) <= len(values):
            return values[index - 1 if index > 0 else index]
        if fails:
            raise EvaluationError(f"{text}: element {index} of an array of {len(values)}")
        return None

    return null_safe(args, element)


@evaluates("Size")
def _size(expression: Expression, args: list[Value], scope: Scope) -> Value:
    (given,) = args
    of_null = -1 if expression.said("legacy") else None

    def size(row: Row) -> int | None:
        value = given(row)
        return of_null if value is None else len(value)

    return size


@evaluates("ArrayContains")
def _contains(expression: Expression, args: list[Value], scope: Scope) -> Value:
    kind = expression.args[1].kind
    need(expression, is_scalar(kind) and expression.args[0].kind == f"array<{kind}>")
    equal = comparison("EqualTo", kind, scope)

    def contains(values: list[Any], wanted: Any) -> bool | None:
        if any(value is not None and equal(value, wanted) for value in values):
            return True
        return None if None in values else False

    return null_safe(args, contains)


@evaluates("CreateNamedStruct")
def _struct(expression: Expression, args: list[Value], scope: Scope) -> Value:
    """Names and values in turn. A struct is a tuple, by position."""
    for name in expression.args[::2]:
        literal(name)
    values = args[1::2]
    return lambda row: tuple([value(row) for value in values])


@evaluates("CreateArray")
def _array(expression: Expression, args: list[Value], scope: Scope) -> Value:
    return lambda row: [value(row) for value in args]

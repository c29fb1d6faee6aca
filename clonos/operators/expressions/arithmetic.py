"""+ - * / div % and their like: width by width, with what the session's mode says of overflow and division by zero."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from ctypes import c_float
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from clonos.operators.expressions.compiled import EvaluationError, Row, Scope, Value, evaluates
from clonos.operators.expressions.kinds import FLOATS, INTEGERS, decimal_of, need, wrapped
from clonos.operators.expressions.tree import Expression

ANSI, LEGACY, TRY = "ANSI", "LEGACY", "TRY"
EXACT: Final = Context(prec=200, rounding=ROUND_HALF_UP, Emax=10_000, Emin=-10_000)
"""No sum, product or remainder of two decimals has more digits."""
_DIVIDED: Final = Decimal(1).scaleb(-39)
"""Spark divides to one digit more than a decimal can have, and rounds that."""
_SCALA_DIGITS: Final = 34
_EXTREME: Final = "beyond the range of"

Operation = Callable[[Any, Any], Any]


def fitted(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """Rounded half up to the scale; None where it has too many digits."""
    exact = value.quantize(Decimal(1).scaleb(-scale, EXACT), ROUND_HALF_UP, EXACT)
    if not exact:
        return abs(exact)  # Java knows no negative zero
    return exact if exact.adjusted() + scale < precision else None


def bounded(kind: str, mode: str, text: str) -> Callable[[int], int | None]:
    """An integer in its width."""
    bits = INTEGERS[kind]
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def checked(value: int) -> int | None:
        if low <= value <= high:
            return value
        if mode == LEGACY:
            return wrapped(value, bits)
        if mode == TRY:
            return None
        raise EvaluationError(f"{text}: {value} is {_EXTREME} {kind}")

    return checked


def decimal_result(kind: str, mode: str, text: str) -> Callable[[Decimal], Decimal | None]:
    found = decimal_of(kind)
    assert found is not None
    precision, scale = found

    def checked(value: Decimal) -> Decimal | None:
        exact = fitted(value, precision, scale)
        if exact is None and mode == ANSI:
            raise EvaluationError(f"{text}: {value} is {_EXTREME} {kind}")
        return exact

    return checked


def single(value: float) -> float:
    """A number of single precision."""
    return c_float(value).value


def _binary(left: Value, right: Value, apply: Operation) -> Value:
    def applied(row: Row) -> Any:
        a = left(row)
        if a is None:
            return None
        b = right(row)
        return None if b is None else apply(a, b)

    return applied


_OPERATIONS: dict[str, Operation] = {
    "Add": operator.add,
    "Subtract": operator.sub,
    "Multiply": operator.mul,
}
_DECIMALS: dict[str, Operation] = {"Add": EXACT.add, "Subtract": EXACT.subtract, "Multiply": EXACT.multiply}


@evaluates(*_OPERATIONS)
def _sum(expression: Expression, args: list[Value], scope: Scope) -> Value:
    kind, mode, op = expression.kind, expression.said("mode"), expression.op
    left, right = args
    if decimal_of(kind):
        need(expression, all(decimal_of(arg.kind) is not None for arg in expression.args))
        exact, checked = _DECIMALS[op], decimal_result(kind, mode, expression.text)
        return _binary(left, right, lambda a, b: checked(exact(a, b)))
    need(expression, all(arg.kind == kind for arg in expression.args))
    apply = _OPERATIONS[op]
    if kind == "double":
        return _binary(left, right, apply)
    if kind == "float":
        return _binary(left, right, lambda a, b: single(apply(a, b)))
    need(expression, kind in INTEGERS)
    within = bounded(kind, mode, expression.text)
    return _binary(left, right, lambda a, b: within(apply(a, b)))


# ------------------------------------------------------------------------ division


def _divided(a: int, b: int) -> int:
    """Towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _integer_remainder(a: int, b: int) -> int:
    """With the sign of the dividend."""
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _float_remainder(a: float, b: float) -> float:
    return math.nan if math.isinf(a) or b != b else math.fmod(a, b)


def divided_decimals(a: Decimal, b: Decimal) -> Decimal:
    exact = EXACT.divide(a, b)
    return exact.quantize(_DIVIDED, ROUND_HALF_UP, EXACT)


def _divisions(expression: Expression) -> Operation | None:
    """Of values of the operands' type, the divisor not being zero."""
    kinds = {arg.kind for arg in expression.args}
    (kind,) = kinds if len(kinds) == 1 else ("",)
    mode, text, op = expression.said("mode"), expression.text, expression.op
    if expression.kind.startswith("decimal") and all(decimal_of(arg.kind) for arg in expression.args):
        checked = decimal_result(expression.kind, mode, text)
        exact = {"Divide": divided_decimals, "Remainder": EXACT.remainder}.get(op)
        return None if exact is None else lambda a, b: checked(exact(a, b))
    if kind in INTEGERS and op == "IntegralDivide":
        within = bounded("bigint", mode, text)
        return lambda a, b: within(_divided(a, b))
    if kind in INTEGERS and op == "Remainder":
        return _integer_remainder
    if kind in FLOATS and op == "Remainder":
        return _float_remainder
    return operator.truediv if kind == "double" and op == "Divide" else None


@evaluates("Divide", "IntegralDivide", "Remainder")
def _division(expression: Expression, args: list[Value], scope: Scope) -> Value:
    """The divisor comes first: where it is null, the dividend is not evaluated."""
    left, right = args
    divide = _divisions(expression)
    if divide is None:
        need(expression, False)
    assert divide is not None
    fails, text = expression.said("mode") == ANSI, expression.text

    def divided(row: Row) -> Any:
        b = right(row)
        if b is None or (not b and not fails):
            return None
        a = left(row)
        if a is None:
            return None
        if not b:
            raise EvaluationError(f"{text}: division by zero")
        return divide(a, b)

    return divided


# -------------------------------------------------------------------------- one operand


def _unary(given: Value, apply: Callable[[Any], Any]) -> Value:
    def applied(row: Row) -> Any:
        value = given(row)
        return None if value is None else apply(value)

    return applied


@evaluates("UnaryMinus", "Abs")
def _sign(expression: Expression, args: list[Value], scope: Scope) -> Value:
    (given,) = args
    kind, apply = expression.kind, operator.neg if expression.op == "UnaryMinus" else abs
    if kind in FLOATS:
        return _unary(given, apply)
    if digits := decimal_of(kind):
        need(expression, digits[0] <= _SCALA_DIGITS, "Spark rounds it")
        exact = Decimal.copy_negate if expression.op == "UnaryMinus" else Decimal.copy_abs
        return _unary(given, lambda value: exact(value) if value else value)
    need(expression, kind in INTEGERS)
    within = bounded(kind, ANSI if expression.said("fails") else LEGACY, expression.text)
    return _unary(given, lambda value: within(apply(value)))


@evaluates("UnaryPositive")
def _positive(expression: Expression, args: list[Value], scope: Scope) -> Value:
    return args[0]


@evaluates("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def _bits(expression: Expression, args: list[Value], scope: Scope) -> Value:
    need(expression, expression.kind in INTEGERS and all(a.kind == expression.kind for a in expression.args))
    apply = {"BitwiseAnd": operator.and_, "BitwiseOr": operator.or_, "BitwiseXor": operator.xor}
    left, right = args
    return _binary(left, right, apply[expression.op])


@evaluates("BitwiseNot")
def _inverted(expression: Expression, args: list[Value], scope: Scope) -> Value:
    need(expression, expression.kind in INTEGERS)
    return _unary(args[0], operator.invert)

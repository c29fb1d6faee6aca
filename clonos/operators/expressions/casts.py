"""Casts. Each pair of types is here because parity is known. Others, such as a double as text, are refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime, time
from decimal import Decimal
from typing import Any, Final

import numpy as np

from clonos.operators.expressions.arithmetic import ANSI, LEGACY, TRY, bounded, decimal_result, single
from clonos.operators.expressions.compiled import EvaluationError, Row, Scope, Value, evaluates
from clonos.operators.expressions.kinds import FLOATS, INTEGERS, decimal_of, wrapped
from clonos.operators.expressions.tree import Expression, Unsupported
from clonos.operators.rows import instant

Convert = Callable[[Any], Any]

_BLANKS: Final = "".join(map(chr, range(33))) + "\x7f"
"""What Spark takes off both ends of a text before it reads it."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_YES: Final = frozenset({"t", "true", "y", "yes", "1"})
_NO: Final = frozenset({"f", "false", "n", "no", "0"})
_MICROS: Final = 1_000_000


@evaluates("Cast")
def _cast(expression: Expression, args: list[Value], scope: Scope) -> Value:
    (given,) = args
    (child,) = expression.args
    if child.kind == expression.kind:
        return given
    convert = _conversion(expression, child.kind, expression.kind, scope)
    if convert is None:
        raise Unsupported(expression, f"{child.kind} to {expression.kind}")

    def cast(row: Row) -> Any:
        value = given(row)
        return None if value is None else convert(value)

    return cast


def _conversion(expression: Expression, source: str, target: str, scope: Scope) -> Convert | None:
    mode = expression.said("mode")
    if source == "string":
        return _from_text(expression, target, mode)
    if target == "string":
        return _as_text(source, mode, scope)
    if source == "boolean":
        return _from_boolean(target)
    if target == "boolean":
        return bool if source in INTEGERS or source in FLOATS or decimal_of(source) else None
    if source in INTEGERS:
        return _from_integer(expression, target, mode)
    if source in FLOATS:
        return _from_float(expression, target, mode)
    if decimal_of(source):
        return _from_decimal(expression, target, mode)
    return _from_moment(source, target, scope)


# ------------------------------------------------------------------------ numbers


def _from_boolean(target: str) -> Convert | None:
    if target in INTEGERS:
        return int
    return float if target in FLOATS else None


def _from_integer(expression: Expression, target: str, mode: str) -> Convert | None:
    if target in INTEGERS:
        return bounded(target, mode, expression.text)
    if target == "double":
        return float
    if target == "float":
        return lambda value: float(np.int64(value).astype(np.float32))  # rounded once
    if decimal_of(target):
        checked = decimal_result(target, mode, expression.text)
        return lambda value: checked(Decimal(value))
    return None


def _from_float(expression: Expression, target: str, mode: str) -> Convert | None:
    if target in FLOATS:
        return single if target == "float" else float
    if target not in INTEGERS:
        return None
    bits, text = INTEGERS[target], expression.text
    high = float(1 << (bits - 1)) - (1 if bits < 64 else 0)
    low, most = -float(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def exact(value: float) -> int | None:
        if not math.isnan(value) and (
            math.isinf(value) or not (math.floor(value) <= high and math.ceil(value) >= low)
        ):
            value = math.nan
        if math.isnan(value):
            if mode == TRY:
                return None
            raise EvaluationError(f"{text}: a value beyond the range of {target}")
        return min(int(value), most)

    return exact if mode != LEGACY else lambda value: _saturated(value, bits)


def _saturated(value: float, bits: int) -> int:
    """As Java narrows: to 32 or 64 bits at the ends of the range, further by cutting bits off."""
    width = max(bits, 32)
    if math.isnan(value):
        return 0
    high = (1 << (width - 1)) - 1
    whole = high if value >= high else -high - 1 if value <= -high - 1 else int(value)
    return wrapped(whole, bits)


def _from_decimal(expression: Expression, target: str, mode: str) -> Convert | None:
    if target in INTEGERS:
        within = bounded(target, mode, expression.text)
        return lambda value: within(int(value))
    if target == "double":
        return float
    if decimal_of(target):
        return decimal_result(target, mode, expression.text)
    return None


# --------------------------------------------------------------------------- text


def _from_text(expression: Expression, target: str, mode: str) -> Convert | None:
    text = expression.text

    def wrong(value: str) -> Any:
        if mode == ANSI:
            raise EvaluationError(f"{text}: {value!r} is no {target}")
        return None

    if target == "boolean":

        def truth(value: str) -> Any:
            word = value.strip(_BLANKS).lower()
            if word not in _YES and word not in _NO:
                return wrong(value)
            return word in _YES

        return truth
    if target in INTEGERS and mode == ANSI:
        bits = INTEGERS[target]

        def integer(value: str) -> Any:
            digits = value.strip(_BLANKS)
            if _INTEGER.fullmatch(digits) is None or wrapped(int(digits), bits) != int(digits):
                return wrong(value)
            return int(digits)

        return integer
    return str.encode if target == "binary" else None


def _as_text(source: str, mode: str, scope: Scope) -> Convert | None:
    if source in INTEGERS:
        return str
    if source == "boolean":
        return lambda value: "true" if value else "false"
    if decimal_of(source):
        return (lambda value: format(value, "f")) if mode == ANSI else str
    if source == "date":
        return lambda value: str(value.isoformat())
    if source == "timestamp_ntz" or (source == "timestamp" and scope.is_fixed):
        return _shown
    return None


def _shown(moment: datetime) -> str:
    said = moment.replace(microsecond=0, tzinfo=None).isoformat(" ")
    return f"{said}.{moment.microsecond:06d}".rstrip("0") if moment.microsecond else said


# ------------------------------------------------------------------------ moments


def _from_moment(source: str, target: str, scope: Scope) -> Convert | None:
    zone = scope.zone
    if source == "timestamp" and target == "bigint":
        return lambda value: instant(value, zone) // _MICROS
    if source == "timestamp" and target == "double":
        return lambda value: instant(value, zone) / float(_MICROS)
    if "timestamp" in (source, target) and not scope.is_fixed:
        return None
    if target == "date":
        return lambda value: value.date()
    if source == "date" and target in ("timestamp", "timestamp_ntz"):
        return lambda value: datetime.combine(value, time())
    return (lambda value: value) if {source, target} == {"timestamp", "timestamp_ntz"} else None

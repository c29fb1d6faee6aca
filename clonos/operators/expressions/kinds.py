"""Spark's types by their names, as far as expressions ask for them."""

from __future__ import annotations

import re
from typing import Final

from clonos.operators.expressions.tree import Expression, Unsupported

INTEGERS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""With their bits."""
FLOATS: Final = ("float", "double")
MOMENTS: Final = ("date", "timestamp", "timestamp_ntz")
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_SCALARS: Final = {*INTEGERS, *FLOATS, *MOMENTS, "string", "boolean", "binary"}


def decimal_of(kind: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type."""
    found = _DECIMAL.fullmatch(kind)
    return None if found is None else (int(found[1]), int(found[2]))


def is_scalar(kind: str) -> bool:
    return kind in _SCALARS or decimal_of(kind) is not None


def is_number(kind: str) -> bool:
    return kind in INTEGERS or kind in FLOATS or decimal_of(kind) is not None


def need(expression: Expression, fits: bool, why: str = "") -> None:
    """Raises Unsupported."""
    if not fits:
        kinds = ", ".join(arg.kind for arg in expression.args)
        raise Unsupported(expression, why or f"of {kinds}")


def wrapped(value: int, bits: int) -> int:
    """Two's complement."""
    half = 1 << (bits - 1)
    return (value + half) % (half << 1) - half

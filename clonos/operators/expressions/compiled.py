"""From an expression to a closure over a row.

A module that knows how to evaluate some classes of expressions registers a maker for each: given the expression, the
closures of its children and the zone, it gives a closure, or raises `Unsupported` where types or modes are such that
parity with Spark is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, timezone, tzinfo
from functools import cache
from importlib import import_module
from operator import itemgetter
from typing import Any, TypeAlias

from clonos.operators.expressions.tree import COLUMN, LITERAL, Expression, Unsupported
from clonos.operators.rows import zone_of

Row: TypeAlias = Sequence[Any]
Value: TypeAlias = Callable[[Row], Any]
"""What an expression gives for a row."""

Maker: TypeAlias = Callable[[Expression, list[Value], "Scope"], Value]

_MAKERS: dict[str, Maker] = {}
_MODULES = ("arithmetic", "casts", "comparing", "logic", "moments", "nested", "patterns", "texts")


class EvaluationError(Exception):
    """An expression has no value for a row, as in Spark: an overflow, a division by zero, a text that is no number."""


class Scope:
    """What closures are made for: the session's zone."""

    def __init__(self, zone: str) -> None:
        self.zone_name = zone
        self.zone: tzinfo = zone_of(zone) or UTC

    @property
    def is_fixed(self) -> bool:
        """Whether a wall clock in the zone says everything: no change of clocks, no history that differs between
        Java's rules and Python's."""
        return isinstance(self.zone, timezone)


def evaluates(*ops: str) -> Callable[[Maker], Maker]:
    def register(maker: Maker) -> Maker:
        _MAKERS.update(dict.fromkeys(ops, maker))
        return maker

    return register


@cache
def _load() -> None:
    for module in _MODULES:
        import_module(f"clonos.operators.expressions.{module}")


def evaluator(expression: Expression, scope: Scope) -> Value:
    """Raises Unsupported."""
    _load()
    if expression.op == COLUMN:
        return itemgetter(expression.said("index"))
    if expression.op == LITERAL:
        value = expression.said("value")
        return lambda row: value
    maker = _MAKERS.get(expression.op)
    if maker is None:
        raise Unsupported(expression)
    return maker(expression, [evaluator(arg, scope) for arg in expression.args], scope)


def literal(expression: Expression) -> Any:
    """The value of an argument that must be one. Raises Unsupported."""
    if expression.op != LITERAL:
        raise Unsupported(expression, "it must be a literal here")
    return expression.said("value")

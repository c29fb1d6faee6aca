"""Rows that are made of the rows of an output by expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import pyarrow as pa

from clonos.operators.expressions.compiled import Row, Scope, Value, evaluator
from clonos.operators.expressions.conforming import Conforming
from clonos.operators.expressions.tree import COLUMN, Derivation, Expression, Select, Step, Where

Made = list[tuple[Any, ...] | None]
Apply = Callable[[Made], Made]


class ExpressionFailed(Exception):
    """An expression has no value for a row: its text, and the cause."""

    def __init__(self, text: str, cause: Exception) -> None:
        super().__init__(text)
        self.text = text
        self.cause = cause


class DerivedRows:
    """Of one derivation, from rows of `schema`. Raises Unsupported."""

    def __init__(self, schema: pa.Schema, derivation: Derivation, name: str) -> None:
        scope = Scope(derivation.zone)
        self._conform = Conforming(schema, derivation.zone, name, _columns_asked_for(derivation.steps))
        self._steps = [_applied(step, scope) for step in derivation.steps]

    def __call__(self, rows: list[tuple[Any, ...]]) -> Made:
        """A row for each, or None for one that is dropped. Raises InputError and ExpressionFailed."""
        made: Made = [*self._conform(rows)]
        for step in self._steps:
            made = step(made)
        return made


def _columns_asked_for(steps: Iterable[Step]) -> set[int]:
    """Of the rows that come in: what follows the first selection is about others."""
    found: set[int] = set()
    for step in steps:
        for expression in step.columns if isinstance(step, Select) else (step.condition,):
            _collect(expression, found)
        if isinstance(step, Select):
            break
    return found


def _collect(expression: Expression, into: set[int]) -> None:
    if expression.op == COLUMN:
        into.add(expression.said("index"))
    for arg in expression.args:
        _collect(arg, into)


def _applied(step: Step, scope: Scope) -> Apply:
    return _where(step, scope) if isinstance(step, Where) else _select(step, scope)


def _where(step: Where, scope: Scope) -> Apply:
    condition, text = evaluator(step.condition, scope), step.condition.text

    def kept(rows: Made) -> Made:
        try:
            return [row if row is not None and condition(row) is True else None for row in rows]
        except Exception as error:
            raise ExpressionFailed(text, error) from error

    return kept


def _select(step: Select, scope: Scope) -> Apply:
    values = [evaluator(column, scope) for column in step.columns]
    make = _row_of(step.columns, values)

    def made(rows: Made) -> Made:
        try:
            return [None if row is None else make(row) for row in rows]
        except Exception as error:
            raise ExpressionFailed(_culprit(step.columns, values, rows), error) from error

    return made


def _row_of(columns: tuple[Expression, ...], values: list[Value]) -> Callable[[Row], tuple[Any, ...]]:
    if len(columns) > 1 and all(column.op == COLUMN for column in columns):
        pick: Callable[[Row], tuple[Any, ...]] = itemgetter(*[column.said("index") for column in columns])
        return pick
    return lambda row: tuple([value(row) for value in values])


def _culprit(columns: tuple[Expression, ...], values: list[Value], rows: Made) -> str:
    """The expression that fails first."""
    for row in rows:
        for column, value in zip(columns, values, strict=True):
            try:
                if row is not None:
                    value(row)
            except Exception:
                return column.text
    return ", ".join(column.text for column in columns)

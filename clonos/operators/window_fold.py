"""Spark's aggregates of a window: the functions of `aggregate`."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from clonos.errors import StateError
from clonos.operators.aggregate_flow import of_aggregation
from clonos.operators.column_flow import ColumnFlow, From, Input, Transformation
from clonos.operators.expressions.aggregates import OTHERS_ARE_KEPT, Aggregation, Fold, Kept


class WindowFold:
    """`aggregation.results` are over the key's values, the window and the results of the calls."""

    def __init__(self, aggregation: Aggregation) -> None:
        self._aggregation = aggregation

    def __getstate__(self) -> dict[str, Any]:
        return {"_aggregation": self._aggregation}

    @cached_property
    def _fold(self) -> Fold:
        return Fold(self._aggregation)

    @cached_property
    def _digest(self) -> str:
        return self._aggregation.digest

    def column_flow(self, keys: int, event_time: int) -> ColumnFlow:
        """With windows of the event time in this column."""
        window = frozenset({(From(Input.ROW, event_time), Transformation.TRANSFORMATION)})
        return of_aggregation(self._aggregation, keys, [window])

    def add(self, kept: Kept, row: Any, ctx: Any) -> Kept:
        found: list[Any] = [self._digest, [*self._fold.nothing]] if kept is None else self._own(kept)
        self._fold.add(found[1], row)
        return found

    def merge(self, one: Kept, other: Kept) -> Kept:
        return [self._digest, self._fold.merge(self._own(one)[1], self._own(other)[1])]

    def finish(self, key: tuple[Any, ...], window: Any, kept: Kept, ctx: Any) -> list[Any]:
        return [self._fold.row((*key, window), self._own(kept)[1])]

    def _own(self, kept: Kept) -> list[Any]:
        found: list[Any] = kept
        if not isinstance(found, list) or len(found) != 2 or found[0] != self._digest:
            raise StateError(
                "what is kept of a window is of other aggregates than there are now",
                hint=OTHERS_ARE_KEPT,
            )
        return found

"""From which columns the results of Spark's aggregates come."""

from __future__ import annotations

from collections.abc import Sequence

from clonos.operators.column_flow import (
    ColumnFlow,
    Flow,
    From,
    Input,
    Transformation,
    as_they_are,
    identity,
    of_expression,
    through,
)
from clonos.operators.expressions.aggregates import AggregateCall, Aggregation


def of_aggregation(aggregation: Aggregation, keys: int, window: Sequence[Flow[From]] = ()) -> ColumnFlow:
    """Of aggregates over the rows of a key of so many columns, and of a window, where one is given: what that comes
    from. Whatever rows are grouped by has a say in all of them."""
    groups = [*as_they_are(Input.KEY, range(keys)), *window]
    before = [*groups, *map(_of_call, aggregation.calls)]
    rows = (through(flow, Transformation.GROUP_BY) for flow in groups)
    results = (of_expression(result, before.__getitem__) for result in aggregation.results)
    return ColumnFlow(tuple(results), frozenset().union(*rows))


def _of_call(call: AggregateCall) -> Flow[From]:
    given = [(arg, Transformation.AGGREGATION) for arg in call.args]
    if call.condition is not None:
        given.append((call.condition, Transformation.CONDITIONAL))
    found: set[tuple[From, Transformation]] = set()
    for expression, transformation in given:
        found |= through(of_expression(expression, _of_row) or frozenset(), transformation)
    return frozenset(found)


def _of_row(at: int) -> Flow[From]:
    return identity(From(Input.ROW, at))

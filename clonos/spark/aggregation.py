"""Spark's aggregations as values: `groupBy(...).agg(...)`, analysed by Spark over a DataFrame without rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from clonos.errors import QueryDefinitionError
from clonos.operators.expressions.aggregates import AggregateCall, Aggregation, Fold
from clonos.operators.expressions.tree import COLUMN, Expression, Unsupported
from clonos.spark.before_causal import items
from clonos.spark.derivation import places
from clonos.spark.expression_tree import Reader
from clonos.spark.stream_columns import StreamColumns
from clonos.spark.types import quoted

Own = Callable[[Any], Any]
"""From PySpark's grouped data to a DataFrame: what the user has asked for."""

_BY_A_FUNCTION: Final = 'Do it in a function, with ctx.state: groupBy(...).process(fn, output, name="...")'


def aggregation(
    stream: StreamColumns, names: Sequence[str], key: tuple[str, ...], own: Own, window: Any = None
) -> tuple[Aggregation, Any]:
    """What `own` makes of the grouped rows of a stream with columns of these names, and the schema of what comes out.
    The results are over the values of the key, in their order, then that of the window, where a field for it is given,
    then those of the calls. Raises QueryDefinitionError, and Spark's own AnalysisException."""
    if window is not None:
        _check_free(names, window.name)
        key = (*key, window.name)
    empty = stream.without_rows(window)
    asked = own(empty.groupBy(*[empty[quoted(name)] for name in key]))
    node = asked._jdf.queryExecution().analyzed()
    if str(node.nodeName()) != "Aggregate" or node.child().children().size():
        raise QueryDefinitionError(
            f"{node.nodeName()} is no aggregation of the rows of a key", hint=_BY_A_FUNCTION
        )
    spark = empty.sparkSession
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    given = list(items(node.child().output()))
    columns = places(given[: len(names)])
    keys = {each.exprId().id(): key.index(str(each.name())) for each in given if str(each.name()) in key}
    reader = _Results(spark, zone, keys, columns)
    results = tuple(reader.read(each) for each in items(node.aggregateExpressions()))
    made = Aggregation(tuple(reader.calls), results, zone)
    try:
        Fold(made)
    except Unsupported as error:
        raise QueryDefinitionError(
            f"{error} is not evaluated behind groupBy on a causal stream", hint=_BY_A_FUNCTION
        ) from None
    return made, asked.schema


def _check_free(names: Sequence[str], window: str) -> None:
    if window.lower() in [name.lower() for name in names]:
        raise QueryDefinitionError(
            f"the stream has a column {window!r}, which is the name of the windows' column",
            hint="Rename it before the windows: withColumnRenamed",
        )


class _Results(Reader):
    """Of expressions over the columns of the key and over aggregates, which are read aside, as `calls`."""

    def __init__(self, spark: Any, zone: str, keys: Mapping[int, int], columns: Mapping[int, int]) -> None:
        super().__init__(spark, zone, keys)
        self._inputs = Reader(spark, zone, columns)
        self._keys = len(keys)
        self.calls: list[AggregateCall] = []

    def _check(self, expression: Any) -> None:
        if str(expression.getClass().getSimpleName()) != "AggregateExpression":
            super()._check(expression)

    def _read(self, expression: Any) -> Expression:
        if str(expression.getClass().getSimpleName()) != "AggregateExpression":
            return super()._read(expression)
        call = self._call(expression)
        if call not in self.calls:
            self.calls.append(call)
        index = self._keys + self.calls.index(call)
        return Expression(COLUMN, call.kind, (), (("index", index),), call.text)

    def _call(self, expression: Any) -> AggregateCall:
        text = str(expression.sql())
        if expression.isDistinct():
            raise QueryDefinitionError(
                f"{text} is of distinct values, all of which would have to be kept",
                hint="Keep them in ctx.state, as you need them: groupBy(...).process(fn, output, name=...)",
            )
        function = expression.aggregateFunction()
        while self._is_replaceable(function):
            function = function.replacement()
        op = str(function.getClass().getSimpleName())
        condition = expression.filter()
        more: dict[str, Any] = {}
        if op == "Sum":
            more["mode"] = str(function.evalContext().evalMode().toString())
        if op == "Average":
            more["mode"] = str(function.evalMode().toString())
        if op in ("First", "Last"):
            more["ignore_nulls"] = bool(function.ignoreNulls())
        return AggregateCall(
            op,
            str(function.dataType().catalogString()),
            tuple(map(self._inputs.read, items(function.children()))),
            tuple(sorted(more.items())),
            self._inputs.read(condition.get()) if condition.isDefined() else None,
            text,
        )

"""Spark's aggregations as values: `groupBy(...).agg(...)`, analysed by Spark over a DataFrame without rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from clonos.errors import QueryDefinitionError
from clonos.operators.expressions.aggregates import AggregateCall, Aggregation, Fold
from clonos.operators.expressions.tree import COLUMN, Expression, Unsupported
from clonos.spark.before_causal import items
from clonos.spark.derivation import places, require_analysis, without_rows
from clonos.spark.expression_tree import Reader

Own = Callable[[Any], Any]
"""From PySpark's grouped data to a DataFrame: what the user has asked for."""

_BY_A_FUNCTION: Final = 'Do it in a function, with ctx.state: groupBy(...).process(fn, output, name="...")'


def aggregation(
    spark: Any, schema: Any, key: tuple[str, ...], own: Own, window: Any = None
) -> tuple[Aggregation, Any]:
    """What `own` makes of the grouped rows of a schema, and the schema of what comes out. The results are over the
    values of the key, in their order, then that of the window, where a field for it is given, then those of the calls.
    Raises QueryDefinitionError, and Spark's own AnalysisException."""
    require_analysis(spark)
    width = len(schema.names)
    if window is not None:
        schema, key = _with(schema, window), (*key, window.name)
    empty = without_rows(spark, schema)
    asked = own(empty.groupBy(*[empty[name] for name in key]))
    node = asked._jdf.queryExecution().analyzed()
    if str(node.nodeName()) != "Aggregate" or node.child().children().size():
        raise QueryDefinitionError(
            f"{node.nodeName()} is no aggregation of the rows of a key", hint=_BY_A_FUNCTION
        )
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    given = list(items(node.child().output()))
    columns = places(given[:width])
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


def _with(schema: Any, window: Any) -> Any:
    from pyspark.sql.types import StructType

    if window.name.lower() in [name.lower() for name in schema.names]:
        raise QueryDefinitionError(
            f"the stream has a column {window.name!r}, which is the name of the windows' column",
            hint="Rename it before the windows: withColumnRenamed",
        )
    return StructType([*schema.fields, window])


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

"""Spark's own methods on a causal stream: `select`, `where`, `withColumn` and their like, with Spark's expressions.

They cost no operator, no process and no exchange. Right behind `causal(df)` Spark does them, as if they stood before
it; behind an operator its replicas do (`clonos.spark.derivation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from clonos.errors import QueryDefinitionError
from clonos.spark.derivation import Derived, derived, followed
from clonos.spark.plan import EventTime
from clonos.spark.stream_columns import StreamColumns, check_has_rows
from clonos.spark.types import check_columns, united

if TYPE_CHECKING:
    from clonos.api.streams import CausalStream


class SparksExpressions:
    """What a causal stream has of a DataFrame's methods."""

    def __getitem__(self: Any, item: Any) -> Any:
        """As of a DataFrame: a Column by its name or place, the rows for which a Column is true, or a list of columns.
        A Column is for expressions of this stream, and of those that still have the column."""
        if isinstance(item, str | int):
            return self._spark_columns.column(item)
        if isinstance(item, list | tuple):
            return self.select(*item)
        if is_expression(item):
            return self.where(item)
        raise QueryDefinitionError(f"a column is named by text or a number, not by {item!r}")

    def select(self: Any, *cols: Any) -> CausalStream:
        """Columns and expressions of columns, as Spark's `select`."""
        return derived_stream(self, lambda df: df.select(*cols))

    def selectExpr(self: Any, *expr: Any) -> CausalStream:
        """SQL expressions, as Spark's `selectExpr`."""
        return derived_stream(self, lambda df: df.selectExpr(*expr))

    def where(self: Any, condition: Any) -> CausalStream:
        """The rows for which a condition, a Column or SQL, is true."""
        return derived_stream(self, lambda df: df.where(condition))

    def drop(self: Any, *cols: Any) -> CausalStream:
        """Without these columns."""
        return derived_stream(self, lambda df: df.drop(*cols))

    def withColumn(self: Any, colName: str, col: Any) -> CausalStream:
        """With one column more, or another one under its name."""
        return derived_stream(self, lambda df: df.withColumn(colName, col))

    def withColumns(self: Any, *colsMap: Mapping[str, Any]) -> CausalStream:
        """With columns more, or others under their names."""
        return derived_stream(self, lambda df: df.withColumns(*colsMap))

    def withColumnRenamed(self: Any, existing: str, new: str) -> CausalStream:
        """With another name for a column."""
        return derived_stream(self, lambda df: df.withColumnRenamed(existing, new))

    def withColumnsRenamed(self: Any, colsMap: Mapping[str, str]) -> CausalStream:
        """With other names for columns."""
        return derived_stream(self, lambda df: df.withColumnsRenamed(colsMap))

    def toDF(self: Any, *cols: str) -> CausalStream:
        """With other names for all columns, in their order."""
        return derived_stream(self, lambda df: df.toDF(*cols))


def is_expression(given: Any) -> bool:
    """Whether it is a condition of Spark's, and no function."""
    return isinstance(given, str) or hasattr(given, "_jc")


def derived_stream(stream: CausalStream, own: Callable[[Any], Any]) -> CausalStream:
    """Raises QueryDefinitionError, and what Spark raises of an expression that is not valid."""
    from clonos.api.streams import CausalStream

    check_has_rows(stream.plan)
    made = [derived(stream._spark_columns, upstream, own) for upstream in stream.plan]
    schema = reduce(united, [each.schema for each in made])
    check_columns(schema, "the stream", stream._spark)
    event_time = _followed(stream.event_time, made)
    upstream = tuple(each.upstream for each in made)
    columns = StreamColumns(stream._spark, upstream, schema, made[0].asked)
    return CausalStream(stream._spark, upstream, schema, event_time, columns)


def _followed(given: EventTime | None, made: list[Derived]) -> EventTime | None:
    """Event time under the name that its column has now."""
    if given is None:
        return None
    column, computed = given.column, frozenset[str]()
    for each in made:
        found = followed(each.given, each.asked, given.column, given.computed)
        if found.name is None and given.inherited:
            return None
        if found.name is None:
            raise QueryDefinitionError(
                f"the column {given.column!r} is gone, which withWatermark() has made event time",
                hint="Keep it, or call withWatermark() behind",
            )
        if found.drops_rows and not given.inherited:
            raise QueryDefinitionError(
                f"where() asks for {given.column!r}, which withWatermark() has made event time, or for what was "
                "computed from it: do rows that it drops let time pass?",
                hint="Call where() before withWatermark(): then they do not",
            )
        column, computed = found.name, computed | found.computed
    return given._replace(column=column, computed=computed)

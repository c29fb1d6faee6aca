"""The columns of a causal stream as Spark knows them: what `stream["amount"]` is, and what tells it from another's.

To Spark a column is an attribute with an id of its own, and an expression over other ids is refused. So a stream has a
DataFrame that stands for it: that of its source, or one without rows. What Spark analyses for the stream it analyses
over the same ids, for each of the stream's upstreams.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from clonos.errors import QueryDefinitionError
from clonos.spark.before_causal import items
from clonos.spark.plan import SourcePlan, Upstream, schema_of
from clonos.spark.session import analysing_session


class StreamColumns:
    """Of one stream. `frame` is made when it is asked for first: most streams are never asked."""

    def __init__(self, spark: Any, upstream: tuple[Upstream, ...], schema: Any, frame: Any = None) -> None:
        self._spark = spark
        self._upstream = upstream
        self._schema = schema
        if frame is not None:
            self.frame = frame

    @cached_property
    def frame(self) -> Any:
        """The DataFrame that stands for the stream."""
        if self._upstream and isinstance(self._upstream[0], SourcePlan):
            return self._upstream[0].df
        return without_rows(analysing_session(self._spark), self._schema)

    def frame_for(self, upstream: Upstream) -> Any:
        """The same of one of its upstreams: a source's own rows, or none."""
        ids = [attribute.exprId() for attribute in attributes(self.frame)]
        if not isinstance(upstream, SourcePlan):
            return _under_ids(without_rows(self.frame.sparkSession, schema_of(upstream)), ids)
        own = [attribute.exprId().id() for attribute in attributes(upstream.df)]
        return upstream.df if own == [each.id() for each in ids] else _projected(upstream.df, ids)

    def without_rows(self, more: Any = None) -> Any:
        """A DataFrame of the stream's columns, and of one more, whose field is given."""
        from pyspark.sql.types import StructType

        schema = self._schema if more is None else StructType([*self._schema.fields, more])
        empty = without_rows(self.frame.sparkSession, schema)
        ids = [attribute.exprId() for attribute in attributes(self.frame)]
        return _under_ids(empty, [*ids, *[each.exprId() for each in attributes(empty)[len(ids) :]]])

    def name_of(self, column: Any) -> str | None:
        """Which column a Column is; None where it is an expression. Raises what Spark raises where it is not the
        stream's."""
        chosen = list(items(self.frame.select(column)._jdf.queryExecution().analyzed().output()))
        own = {attribute.exprId().id() for attribute in attributes(self.frame)}
        return str(chosen[0].name()) if [each.exprId().id() in own for each in chosen] == [True] else None

    def column(self, item: str | int) -> Any:
        """By its name, as Spark resolves it, or by its place."""
        return self.frame[item]


def attributes(df: Any) -> list[Any]:
    """The columns of a DataFrame, as attributes of Spark's."""
    return list(items(df._jdf.queryExecution().analyzed().output()))


def check_has_rows(upstream: tuple[Upstream, ...]) -> None:
    """Raises QueryDefinitionError for a stream of `clonos.testing.driver` in front of the operator."""
    if not upstream:
        raise QueryDefinitionError(
            "Spark's expressions in front of an operator are Spark's to evaluate, and a driver has no Spark",
            hint="Define the operator on a stream of the columns that it gets, and feed it such rows",
        )


def without_rows(spark: Any, schema: Any) -> Any:
    session = spark._jsparkSession
    rows = spark._jvm.java.util.ArrayList()
    return _frame(spark, session.createDataFrame(rows, session.parseDataType(schema.json())))


def _under_ids(empty: Any, ids: list[Any]) -> Any:
    """A DataFrame without rows, its columns known by these ids."""
    spark, plan = empty.sparkSession, empty._jdf.queryExecution().analyzed()
    output = [attribute.withExprId(id_) for attribute, id_ in zip(attributes(empty), ids, strict=True)]
    same = plan.copy(_sequence(spark, output), plan.data(), plan.isStreaming(), plan.stream())
    return of_plan(spark, same)


def _projected(df: Any, ids: list[Any]) -> Any:
    """The same rows, their columns known by these ids."""
    spark, plans = df.sparkSession, df.sparkSession._jvm.org.apache.spark.sql.catalyst
    nothing, none = _sequence(spark, []), spark._jvm.scala.Option.empty()
    columns = [
        plans.expressions.Alias(attribute, attribute.name(), id_, nothing, none, nothing)
        for attribute, id_ in zip(attributes(df), ids, strict=True)
    ]
    project = plans.plans.logical.Project(_sequence(spark, columns), df._jdf.queryExecution().analyzed())
    return of_plan(spark, project)


def of_plan(spark: Any, plan: Any) -> Any:
    return _frame(spark, spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan))


def _frame(spark: Any, dataset: Any) -> Any:
    from pyspark.sql import DataFrame

    return DataFrame(dataset, spark)


def _sequence(spark: Any, given: list[Any]) -> Any:
    made = spark._jvm.java.util.ArrayList()
    for each in given:
        made.add(each)
    return spark._jvm.scala.jdk.javaapi.CollectionConverters.asScala(made).toSeq()

"""Rows that the driver's JVM keeps, as Spark has them inside.

As Python's datetimes they would be other rows: those are of the process's time zone, where two instants are one when
clocks are put back, and of the years 1 to 9999.
"""

from __future__ import annotations

from typing import Any

from clonos.spark.stream_columns import of_plan, without_rows


class KeptRows:
    """Of one schema; more come, and none go."""

    def __init__(self, spark: Any, schema: Any) -> None:
        self._spark = spark
        self._none = without_rows(spark, schema)._jdf.queryExecution().analyzed()
        self._rows = self._none.data()

    def add(self, df: Any) -> None:
        """The rows of a DataFrame with these columns, as they are now."""
        found = df._jdf.queryExecution().executedPlan().executeCollect()
        sequences = self._spark._jvm.scala.collection.immutable.ArraySeq
        self._rows = self._rows.concat(sequences.unsafeWrapArray(found))

    def frame(self) -> Any:
        """A DataFrame of them, which stays as it is."""
        plan = self._none
        same = plan.copy(plan.output(), self._rows, plan.isStreaming(), plan.stream())
        return of_plan(self._spark, same)

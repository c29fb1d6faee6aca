"""What Spark's own sinks do, as functions of a `foreachBatch`: `console`, `memory`, a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clonos.errors import QueryDefinitionError
from clonos.spark.kept_rows import KeptRows

Function = Callable[[Any, int], object]


def console(options: Mapping[str, str]) -> Function:
    """Shows each batch, as Spark's console sink does; `numRows` and `truncate` as there, in whatever case."""
    given = {name.lower(): value for name, value in options.items()}
    said, cut = given.get("numrows", "20"), given.get("truncate", "true").lower() != "false"
    try:
        rows = int(said)
    except ValueError:
        raise QueryDefinitionError(
            f"the console's option numRows is {said!r}", hint="It is a whole number"
        ) from None

    def show(df: Any, batch: int) -> None:
        line = "-" * 43
        sys.stdout.write(f"{line}\nBatch: {batch}\n{line}\n")
        df.show(rows, truncate=cut)

    return show


def memory(spark: Any, name: str, schema: Any) -> Function:
    """A temporary view of the rows since this start, which the driver holds in memory."""
    known = KeptRows(spark, schema)

    def append(df: Any, batch: int) -> None:
        known.add(df)
        known.frame().createOrReplaceTempView(name)

    known.frame().createOrReplaceTempView(name)
    return append


def table(name: str, source: str | None, partition_by: Sequence[str], options: Mapping[str, str]) -> Function:
    """Appends each batch to a table of Spark's catalog."""

    def append(df: Any, batch: int) -> None:
        writer = df.write.mode("append").options(**options)
        if source is not None:
            writer = writer.format(source)
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        writer.saveAsTable(name)

    return append

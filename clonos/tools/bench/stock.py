"""What stock Spark needs to be at its best in a comparison: settings, and sinks that show rows as early as they can.

In micro-batch mode that is a `foreach` sink with one transaction per partition and batch. In Real-Time Mode `foreach`
in Python holds rows back by the hundred, for seconds; a last `mapInArrow` that writes each row as it comes does not.

On neither side SQLite syncs each commit to the disk (`synchronous=normal`, `durable=False`): processes are killed here,
the power is not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from clonos.testing.faults import FaultInjector, Point, read_script
from clonos.tools.nexmark.native import SINK, at_work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

REALTIME_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Python in Real-Time Mode, with rows handed on one by one; without effect on the causal side.
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    "spark.python.udf.pipelined.enabled": "true",
    "spark.buffer.size": "256",
    # Spark refuses what it cannot give watermarks to; the jobs that need this have none.
    "spark.sql.streaming.unsupportedOperationCheck": "false",
}
BUFFERS = {
    True: {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
        "spark.sql.execution.pandas.udf.buffer.size": "256",
    },
    False: {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.pandas.udf.buffer.size": "65536",
    },
}
"""In Real-Time Mode (True), where a buffer is latency, and in micro-batch mode, where it is throughput."""


@dataclass(frozen=True)
class Trouble:
    """How a sink can be made to fail: where its processes leave their numbers, faults for `clonos.testing.faults`,
    their marks.

    The one point of a sink is AFTER_COMMIT: rows are visible, and the task may fail.
    """

    workers: Path
    marks: Path
    script: str = ""

    @contextmanager
    def at_work(self) -> Iterator[FaultInjector]:
        with at_work(self.workers, SINK):
            yield FaultInjector(read_script(self.script), operator=SINK, instance=None, marks=self.marks)


class Appender:
    """A foreach sink with one transaction per partition and batch."""

    def __init__(self, database: str, table: str, trouble: Trouble | None = None) -> None:
        self._database = database
        self._table = table
        self._trouble = trouble

    def open(self, partition_id: int, epoch_id: int) -> bool:
        self._work = ExitStack()
        self._faults = self._work.enter_context(_injector(self._trouble))
        self._connection = sqlite3.connect(self._database, timeout=60, isolation_level="DEFERRED")
        self._connection.execute("pragma synchronous=normal")
        return True

    def process(self, row: Any) -> None:
        marks = ", ".join("?" * len(row))
        self._connection.execute(f"insert into {self._table} values ({marks})", tuple(row))

    def close(self, error: Exception | None) -> None:
        with self._work:
            if error is None:
                self._connection.commit()
            self._connection.close()
            if error is None and self._faults is not None:
                self._faults.reached(Point.AFTER_COMMIT, -1)


def _injector(trouble: Trouble | None) -> AbstractContextManager[FaultInjector | None]:
    return nullcontext() if trouble is None else trouble.at_work()


def create_table(database: str, table: str, columns: Iterable[str]) -> None:
    """In a database that reader and writers share."""
    named = ", ".join(f'"{name}"' for name in columns)
    connection = sqlite3.connect(database)
    with connection:
        connection.execute("pragma journal_mode=wal")
        connection.execute(f"create table {table} ({named})")
    connection.close()


def tune(spark: Any, *, realtime: bool) -> None:
    """Buffers as the mode wants them."""
    for name, value in BUFFERS[realtime].items():
        spark.conf.set(name, value)


def shown(
    frame: DataFrame,
    database: str,
    table: str,
    output_mode: str,
    *,
    each_row: bool,
    trouble: Trouble | None = None,
) -> DataStreamWriter:
    """The stream with its rows in the table: each as it comes, or those of a batch together."""
    if each_row:
        return (
            written(frame, database, table, trouble)
            .writeStream.format("console")
            .option("numRows", 0)
            .outputMode("update")
        )
    return frame.writeStream.foreach(Appender(database, table, trouble)).outputMode(output_mode)


def written(frame: DataFrame, database: str, table: str, trouble: Trouble | None = None) -> DataFrame:
    """The frame, each row of it in the table, in a transaction of its own."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        connection = sqlite3.connect(database, timeout=60, isolation_level=None)
        connection.execute("pragma synchronous=normal")
        with closing(connection), _injector(trouble) as faults:
            for batch in batches:
                marks = ", ".join("?" * batch.num_columns)
                for row in zip(*(column.to_pylist() for column in batch.columns)):
                    connection.execute(f"insert into {table} values ({marks})", row)
                if faults is not None and faults.active:
                    faults.reached(Point.AFTER_COMMIT, -1)
                yield batch

    return frame.mapInArrow(run, frame.schema)

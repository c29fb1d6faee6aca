"""A stage as stock Spark runs it: the same function, with the plain clock, and nothing recorded.

For queries that Spark's SQL cannot say. In micro-batch mode it stands behind PySpark's own `transformWithState`: the
clock is the batch's, state is one JSON value per key. In Real-Time Mode Spark has no stateful operator in Python; there
it is a `mapInArrow` behind a repartition, without timers, its state in the worker's memory and gone with the worker.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from clonos.operators.rows import make_row
from clonos.spark.types import struct_type
from clonos.tools.nexmark.query import Input, Source, Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
"""What a session needs for it."""

FUNCTION, SINK = "function", "sink"
"""What processes of the native side do."""


class PlainContext:
    """The causal services, the plain way, in `transformWithState`."""

    def __init__(self, handle: Any, now_ms: int, state: dict[str, Any]) -> None:
        self._handle = handle
        self._now_ms = now_ms
        self.state = state

    def now_us(self) -> int:
        return self._now_ms * 1000

    def timer(self, *, at: int, event: bool = False) -> int:
        self._handle.registerTimer(at // 1000)
        return at


class PlainTimer:
    """A timer that is due."""

    def __init__(self, due_ms: int) -> None:
        self.due_us = due_ms * 1000


class MemoryContext:
    """The causal services, the plain way, in `mapInArrow`."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def timer(self, *, at: int, event: bool = False) -> int:
        return at


def by_key(source: Source, frame: DataFrame, stage: Stage) -> DataFrame:
    """The stage over a stream, in micro-batch mode."""
    mode = "None" if stage.on_timer is None else "ProcessingTime"
    processor = _processor(stage, source.workers)
    return frame.groupBy(*stage.key).transformWithState(processor, stage.output, "update", mode)


def in_arrow(source: Source, inputs: tuple[Input, ...], stages: tuple[Stage, ...]) -> DataFrame:
    """A whole query in Real-Time Mode."""
    from pyspark.sql.pandas.types import to_arrow_schema

    frame = reduce(lambda one, other: one.union(other), map(source.read, inputs))
    instances = int(source.spark.conf.get("spark.sql.shuffle.partitions") or 1)
    for stage in stages:
        schema = to_arrow_schema(struct_type(stage.output))
        function = _batches(stage, schema, source.workers)
        frame = frame.repartition(instances, *stage.key).mapInArrow(function, stage.output)
    return frame


@contextmanager
def at_work(workers: Path, role: str) -> Iterator[None]:
    """While a process works its number is left where the benchmark finds it to kill it."""
    workers.mkdir(exist_ok=True)
    note = workers / f"{role}-{os.getpid()}"
    note.touch()
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def _batches(stage: Stage, schema: pa.Schema, workers: Path) -> Callable[..., Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        states: dict[tuple[Any, ...], dict[str, Any]] = {}
        with at_work(workers, FUNCTION):
            for batch in batches:
                rows: list[tuple[Any, ...]] = []
                names = tuple(batch.schema.names)
                for values in zip(*(column.to_pylist() for column in batch.columns)):
                    row: Any = make_row(names, values)
                    key = tuple(row[name] for name in stage.key)
                    rows.extend(stage.fn(key, row, MemoryContext(states.setdefault(key, {}))) or ())
                if rows:
                    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows), schema)]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return run


def _processor(stage: Stage, workers: Path) -> Any:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Native(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._work = ExitStack()
            self._work.enter_context(at_work(workers, FUNCTION))
            self._handle = handle
            self._state = handle.getValueState("state", "value string")
            self._row = Row(*stage.columns)

        def handleInputRows(self, key: Any, rows: Iterable[Any], timerValues: Any) -> Iterator[Any]:
            ctx = self._context(timerValues)
            for row in rows:
                yield from self._rows(stage.fn(key, row, ctx))
            self._keep(ctx)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            ctx = self._context(timerValues)
            if stage.on_timer is not None:
                timer = PlainTimer(expiredTimerInfo.getExpiryTimeInMs())
                yield from self._rows(stage.on_timer(key, timer, ctx))
            self._keep(ctx)

        def _context(self, times: Any) -> PlainContext:
            kept = json.loads(self._state.get()[0]) if self._state.exists() else {}
            return PlainContext(self._handle, times.getCurrentProcessingTimeInMs(), kept)

        def _keep(self, ctx: PlainContext) -> None:
            if getattr(ctx, "state", None):
                self._state.update((json.dumps(ctx.state),))
            else:
                self._state.clear()

        def _rows(self, made: Iterable[tuple[Any, ...]] | None) -> Iterator[Any]:
            for values in made or ():
                yield self._row(*values)

        def close(self) -> None:
            self._work.close()

    return Native()

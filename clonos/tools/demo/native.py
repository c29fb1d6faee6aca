"""The job as well as stock Spark can do it: the same two user functions, the plain clock, random numbers and
HTTP.

In micro-batch mode, two chained `applyInPandasWithState` (append mode, the only one in which Spark chains
them) and an appending `foreach` sink. Spark keeps the state and retries a failed task; rows already appended
stay.

In Real-Time Mode Spark has no Python stateful operator, so the two stages are `mapInArrow` behind a
repartition, with state in the worker that is saved to a file at the end of each batch and loaded at the start
of the next: what was saved by a batch that never committed is left aside. A restart of the query is by hand.

Both are what a careful user would write today; neither can make the clock, the draws, the answers and the
order of a repeated batch come out as before.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa

from clonos.tools.demo.job import TABLE, Job, Role
from clonos.tools.flights.operators import (
    COMPENSATION_COLUMNS,
    COMPENSATION_SCHEMA,
    LEGS_COLUMNS,
    LEGS_SCHEMA,
    compensation,
    legs,
)

__all__ = ["STATE_SCHEMA", "Appender", "arrow_stage", "create_table", "grouped_stage"]

STATE_SCHEMA = "value string"

UserFunction = Callable[[Any, Any, Any], Iterable[tuple[Any, ...]]]


class PlainContext:
    """The services of a causal context, done the plain way."""

    random = random.Random()

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def now(self) -> datetime:
        return datetime.now(UTC)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


def user_function(role: Role, weather: str) -> tuple[UserFunction, str, tuple[str, ...]]:
    """The function of a stage, the column that it is grouped by, and the columns of its output."""
    if role == "legs":
        return legs(weather), "tailnum", LEGS_COLUMNS
    return compensation, "carrier", COMPENSATION_COLUMNS


def fire(faults: str, point: str) -> bool:
    """Whether the fault was asked for; only one process gets to say yes."""
    path = Path(faults, point)
    if not path.exists():
        return False
    try:
        path.rename(path.with_suffix(f".fired-{os.getpid()}"))
    except FileNotFoundError:
        return False
    return True


def report_for_work(workers: str, role: Role, instance: int) -> None:
    """Leave a note that this process does `role` now, for the harness, which kills by role."""
    path = Path(workers, str(os.getpid()))
    text = f"{role} {instance}"
    try:
        same = path.read_text() == text
    except FileNotFoundError:
        same = False
    if same:
        os.utime(path)
    else:
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(path)  # a reader finds all of it


def _plain(value: Any) -> Any:
    """Whole numbers as such: pandas makes floats of a column of them that has a null."""
    if isinstance(value, float):
        return None if value != value else int(value)
    return value


def grouped_stage(role: Role, job: Job) -> Callable[..., Iterator[pd.DataFrame]]:
    """The function for `applyInPandasWithState`."""

    def stage(key: Any, frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        report_for_work(job.workers, role, _partition())
        function, _, columns = user_function(role, job.weather)
        kept = json.loads(state.get[0]) if state.exists else {}
        context = PlainContext(kept)
        for frame in frames:
            rows: list[tuple[Any, ...]] = []
            names = list(frame.columns)
            for values in frame.astype(object).itertuples(index=False, name=None):
                if fire(job.faults, f"task-{role}"):
                    raise RuntimeError("injected: the task fails here")
                row = SimpleNamespace(**{n: _plain(v) for n, v in zip(names, values, strict=True)})
                rows.extend(function(key, row, context))
            yield pd.DataFrame(rows, columns=list(columns), dtype=object)
        state.update((json.dumps(kept),))

    return stage


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context else 0


class SavedState:
    """The state of one instance of a `mapInArrow` stage: one file per batch, the newest of an earlier batch
    counts.
    """

    def __init__(self, folder: Path, batch: int) -> None:
        self._folder = folder
        self._batch = batch
        folder.mkdir(parents=True, exist_ok=True)
        earlier = [int(path.stem) for path in folder.glob("*.json") if int(path.stem) < batch]
        newest = folder / f"{max(earlier)}.json" if earlier else None
        self.by_key: dict[str, dict[str, Any]] = json.loads(newest.read_text()) if newest else {}
        for old in sorted(earlier)[:-2]:
            (folder / f"{old}.json").unlink(missing_ok=True)

    def save(self) -> None:
        fresh = self._folder / f"{self._batch}.tmp{os.getpid()}"
        fresh.write_text(json.dumps(self.by_key))
        fresh.rename(self._folder / f"{self._batch}.json")


def arrow_stage(role: Role, job: Job, schema: pa.Schema) -> Callable[..., Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`; `schema` is that of its output."""

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        instance = task.partitionId()
        batch_id = int(task.getLocalProperty("streaming.sql.batchId") or 0)
        report_for_work(job.workers, role, instance)
        function, key_column, _ = user_function(role, job.weather)
        saved = SavedState(Path(job.folder, "state", role, str(instance)), batch_id)
        for batch in batches:
            rows: list[tuple[Any, ...]] = []
            for record in batch.to_pylist():
                if fire(job.faults, f"task-{role}"):
                    raise RuntimeError("injected: the task fails here")
                key = record[key_column]
                context = PlainContext(saved.by_key.setdefault(key, {}))
                rows.extend(function((key,), SimpleNamespace(**record), context))
            if rows:
                arrays = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        saved.save()

    return stage


_SQL_TYPES = {"string": "TEXT", "int": "INTEGER", "bigint": "INTEGER"}


def create_table(database: str) -> None:
    """The output table, in a database that readers and writers can share."""
    columns = ", ".join(
        f"{name} {_SQL_TYPES[kind]}" for name, kind in (c.split() for c in COMPENSATION_SCHEMA.split(","))
    )
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} ({columns})")
    connection.close()


class Appender:
    """The foreach sink: every row is inserted, and committed, as it comes."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._connection: sqlite3.Connection | None = None
        self._partition = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"_job": self._job, "_connection": None, "_partition": 0}

    def open(self, partition_id: int, epoch_id: int) -> bool:
        self._connection = sqlite3.connect(self._job.database, timeout=60, isolation_level=None)
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._partition = partition_id
        return True

    def process(self, row: Any) -> None:
        assert self._connection is not None
        report_for_work(self._job.workers, "sink", self._partition)
        marks = ", ".join("?" * len(row))
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(f"INSERT INTO {TABLE} VALUES ({marks})", tuple(row))
        if fire(self._job.faults, "sink-sink"):
            os.kill(os.getpid(), signal.SIGKILL)
        self._connection.execute("COMMIT")
        if fire(self._job.faults, "task-sink"):
            raise RuntimeError("injected: the task fails here")

    def close(self, error: Exception | None) -> None:
        if self._connection is not None:
            self._connection.close()


def ddl(role: Role) -> str:
    """The output schema of a stage."""
    return LEGS_SCHEMA if role == "legs" else COMPENSATION_SCHEMA

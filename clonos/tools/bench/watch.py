"""Follows an output table from the outside: when each row became visible. And when each input was appended."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from clonos.sources import read
from clonos.tools.bench.metrics import Samples
from clonos.tools.nexmark.events import events
from clonos.tools.nexmark.feed import log_of, partition_of
from clonos.tools.nexmark.query import Query, Run

TABLE = "output"
_POLL_S = 0.002


class Watch(threading.Thread):
    """Reads the table until `done` is set; the rows and the moments at which they were first seen."""

    def __init__(self, database: Path, query: Query) -> None:
        super().__init__(name="bench-watch", daemon=True)
        self._database = database
        self._query = query
        self.done = threading.Event()
        self.rows: list[tuple[Any, ...]] = []
        self.seen: list[float] = []

    def run(self) -> None:
        while not self._database.exists() and not self.done.wait(0.02):
            pass
        connection = sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, isolation_level=None)
        try:
            last = 0
            while not self.done.is_set():
                last = self._look(connection, last)
            self._look(connection, last)
        finally:
            connection.close()

    def _look(self, connection: sqlite3.Connection, last: int) -> int:
        columns = ", ".join(f'"{name}"' for name in self._query.columns)
        text = f"select rowid, {columns} from {TABLE} where rowid > ? order by rowid"
        try:
            found = connection.execute(text, (last,)).fetchall()
        except sqlite3.OperationalError:  # the table is not there yet, or is just being created
            found = []
        if not found:
            time.sleep(_POLL_S)
            return last
        now = time.time()
        self.rows += [row[1:] for row in found]
        self.seen += [now] * len(found)
        return int(found[-1][0])

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self._query.columns, row)) for row in self.rows]


def appended(run: Run, folder: str | Path) -> tuple[dict[int, float], int]:
    """When each event was appended, seconds since 1970, and the bytes of all: a partition has its events in order."""
    found: dict[int, float] = {}
    size = 0
    made = events(run.workload, 0, run.count)
    for kind in run.workload.kinds:
        ids = made.batch(kind).column("event").to_numpy()
        where = partition_of(run.workload, ids, run.partitions)
        for partition in range(run.partitions):
            mine = pa.array(ids[np.flatnonzero(where == partition)]).to_pylist()
            for event, record in zip(mine, read(log_of(folder, kind), partition)):
                found[event] = record.appended / 1e6
                size += len(record.payload)
    return found, size


def samples(watch: Watch, times: dict[int, float]) -> Samples:
    """A sample for each row whose origins are known."""
    origins = [watch._query.columns.index(name) for name in watch._query.origins]
    at, latency = [], []
    for row, seen in zip(watch.rows, watch.seen):
        came = [times[row[place]] for place in origins if row[place] in times]
        if came:
            at.append(seen)
            latency.append((seen - max(came)) * 1000)
    return Samples(np.array(at), np.array(latency))

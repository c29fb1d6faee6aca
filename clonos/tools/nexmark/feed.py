"""Events into embedded logs: one log for each kind, below one folder.

Which partition an event goes to is drawn for its id, as everything about it, and is no function of its keys. `write`
puts in a range as fast as it can; `Feeder` writes each event when it is due.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from clonos.sources.log_writer import LogWriter
from clonos.tools.nexmark.draw import Ids, below, words
from clonos.tools.nexmark.events import events
from clonos.tools.nexmark.payload import payloads
from clonos.tools.nexmark.workload import Kind, Workload

AT_ONCE = (
    20_000  # events made at a time: what a vector operation costs is spread, and the arrays stay in the cache
)
SLOT_S = 0.01


def partition_of(workload: Workload, ids: Ids, partitions: int) -> Ids:
    """The source partition of each event."""
    return below(words(workload.seed, "partition", ids), partitions)


def partitions_of(workload: Workload, ids: list[int], partitions: int) -> list[int]:
    """The same for a list."""
    found: list[int] = partition_of(workload, np.array(ids, dtype=np.int64), partitions).tolist()
    return found


def log_of(folder: str | Path, kind: Kind) -> Path:
    """Where the log of a kind lies."""
    return Path(folder) / f"{kind.value}s"


class EventLogs:
    """The logs of a workload, open for writing. Use it as a context manager."""

    def __init__(self, workload: Workload, folder: str | Path, partitions: int) -> None:
        self._workload = workload
        self._partitions = partitions
        self._writers: dict[Kind, LogWriter] = {}
        try:
            for kind in Kind:
                if kind in workload.kinds:
                    self._writers[kind] = LogWriter(log_of(folder, kind), partitions)
        except BaseException:
            self.close()
            raise

    def write(self, first: int, count: int) -> None:
        """Append `count` events from number `first` on."""
        for start in range(first, first + count, AT_ONCE):
            made = events(self._workload, start, min(AT_ONCE, first + count - start))
            for kind, writer in self._writers.items():
                self._append(writer, made.batch(kind))

    def _append(self, writer: LogWriter, batch: pa.RecordBatch) -> None:
        records = payloads(batch)
        if self._partitions == 1:
            writer.append_many(0, records.to_pylist())
            return
        where = partition_of(self._workload, batch.column("event").to_numpy(), self._partitions)
        for partition in range(self._partitions):
            mine = records.take(pa.array(np.flatnonzero(where == partition)))
            writer.append_many(partition, mine.to_pylist())

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Feeder(threading.Thread):
    """Writes each event when it is due, from the moment of `start` until `done` is set or `count` are written.

    The first `written` of them are there already; the next comes when it is due all the same.
    """

    def __init__(
        self,
        logs: EventLogs,
        workload: Workload,
        count: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        written: int = 0,
    ) -> None:
        super().__init__(name="nexmark-feeder", daemon=True)
        self._logs = logs
        self._pace = workload.pace
        self._count = count
        self._clock = clock
        self.done = threading.Event()
        self.written = written

    def run(self) -> None:
        began = self._clock()
        while not self.done.is_set() and self.written != self._count:
            due = self._pace.due_by(int((self._clock() - began) * 1_000_000))
            if self._count is not None:
                due = min(due, self._count)
            if due > self.written:
                self._logs.write(self.written, due - self.written)
                self.written = due
            self.done.wait(SLOT_S)

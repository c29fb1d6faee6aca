"""The two sides of a comparison: a query started natively or causally, with output in a SQLite table.

Natively a restart after a failure is by hand: here at once, over the same checkpoint, the best that can be done.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import clonos
from clonos.errors import NotRunning
from clonos.testing import faults
from clonos.tools.bench.calls import Calls
from clonos.tools.bench.cell import Cell, Failure, Mode, Protection
from clonos.tools.bench.stock import REALTIME_SETTINGS, Trouble, create_table, shown, tune
from clonos.tools.bench.watch import TABLE
from clonos.tools.nexmark.native import SINK, STATE_STORE
from clonos.tools.nexmark.query import Native, Run, Source, causal

TRIGGERS = {Mode.MICROBATCH: {"processingTime": "0 seconds"}, Mode.REALTIME: {"realTime": "5 minutes"}}
INSTANCES = 2
SETTINGS = REALTIME_SETTINGS | STATE_STORE | {"spark.sql.shuffle.partitions": str(INSTANCES)}


def session(slots: int = 12) -> Any:
    """One Spark session for both sides."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = clonos.configure(SparkSession.builder).master(f"local[{slots},4]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def task_faults(cell: Cell) -> str:
    """For `clonos.testing.faults`: failures of tasks, each when a file with its number is left among the marks.

    On the causal side in the first operator, one instance after the other; natively, where it runs in one stage with
    the sink, after what the sink has just shown.
    """
    if cell.failure is not Failure.TASK:
        return ""
    found = []
    for number in range(len(cell.moments)):
        if cell.protection is Protection.NONE:
            place = faults.Fault(
                point=faults.Point.AFTER_COMMIT, strike=faults.Strike.TASK, operator=SINK, asked=str(number)
            )
        else:
            place = faults.Fault(
                point=faults.Point.INPUT,
                strike=faults.Strike.TASK,
                operator=cell.what.stages[0].name,
                instance=number % INSTANCES,
                asked=str(number),
            )
        found.append(place)
    return faults.script(*found)


def held_back(cell: Cell) -> int:
    """How many records may wait in the end for what no longer comes: in Real-Time Mode each Python worker of Spark's
    holds one back until it gets the next. They are late, not lost."""
    native = cell.what.native
    if native is None or (cell.protection, cell.mode) != (Protection.NONE, Mode.REALTIME):
        return 0
    sinks, functions = 1, len(cell.what.stages) if native.realtime is not native.build else 0
    return INSTANCES * (sinks + functions)


class Side:
    """A running cell."""

    def __init__(self, spark: Any, cell: Cell, folder: Path) -> None:
        self._spark = spark
        self._cell = cell
        self._folder = folder
        self._source = Source(spark, str(folder))
        self.database = folder / "output.db"
        self.checkpoint = folder / "checkpoint"
        self.restarts = 0
        self.native = cell.protection is Protection.NONE
        self._calls = None if self.native or cell.failure is Failure.NONE else Calls(folder / "calls")
        if self.native:
            create_table(str(self.database), TABLE, cell.what.columns)
        self.query = self._start()

    def _start(self) -> Any:
        self.started = time.time()
        trigger = TRIGGERS[self._cell.mode]
        query, native = self._cell.what, self._cell.what.native
        if self.native and native is not None:
            writer = self._native_writer(native)
            return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()
        protection = self._cell.protection
        standby = protection.value if protection.stands_by else "none"
        self._spark.conf.set("spark.clonos.recovery", protection.recovery.value)
        if self._calls is not None:
            query = self._calls.counted(query)
        stream = causal(query, self._source, INSTANCES, standby)
        return (
            stream.writeStream.to(clonos.sinks.sql(f"sqlite:///{self.database}", TABLE, durable=False))
            .option("checkpointLocation", str(self.checkpoint))
            .option("clonos.faults", task_faults(self._cell))
            .trigger(**trigger)
            .start()
        )

    def _native_writer(self, native: Native) -> Any:
        realtime = self._cell.mode is Mode.REALTIME
        tune(self._spark, realtime=realtime)
        build, each_row = native.build, False
        if realtime and native.realtime is not None:
            build, each_row = native.realtime, True
        trouble = Trouble(self.workers, self.marks, task_faults(self._cell))
        frame, table = build(self._source), str(self.database)
        return shown(frame, table, TABLE, native.output_mode, each_row=each_row, trouble=trouble)

    @property
    def workers(self) -> Path:
        """Where processes of the native side leave their numbers."""
        return self._source.workers

    @property
    def marks(self) -> Path:
        """Where faults are asked for, and say that they have fired."""
        return self._folder / "faults" if self.native else self.checkpoint / "clonos" / "local" / "faults"

    @property
    def works(self) -> bool:
        """Whether Spark says that there is input left. In Real-Time Mode it does not say."""
        if self._cell.mode is Mode.REALTIME:
            return False
        return bool(self.query.status["isDataAvailable"])

    def cancel(self) -> None:
        """An error in every job that the Spark query has now; between two jobs there is none."""
        for query in self._spark.streams.active:
            # Spark's own, whose jobs go by its run; a causal query keeps one over restarts
            if query.id == self.query.id:
                self._spark.sparkContext.cancelJobGroup(query.runId)

    @property
    def runs(self) -> int:
        """How often the Spark query was started again."""
        return self.restarts if self.native else len(self.query.restarts)

    def keep(self) -> None:
        """Start a native query again that has ended. A causal one restarts itself as long as that can help."""
        if self.query.isActive:
            return
        if not self.native:
            raise NotRunning(f"the causal query has ended: {self.query.exception()}")
        self.restarts += 1
        self.query = self._start()

    def account(self, since: float) -> dict[str, Any]:
        """What a side says of itself. Causally: bytes of determinants recorded, and handed on with so many bytes of
        rows; how long recoveries took, since a moment; snapshots, and how long they took to be durable. Natively:
        commits of state stores, those of one batch side by side, of the last hundred batches."""
        if self.native:
            stores = [store for batch in self.query.recentProgress for store in batch["stateOperators"]]
            commits = [store["commitTimeMs"] / max(1, store["numStateStoreInstances"]) for store in stores]
            snapshots = {"snapshots": len(commits), "snapshot_s": sum(commits) / 1000}
            return {
                "log_bytes": None,
                "output_bytes": None,
                "delta_bytes": None,
                "restart_ms": [],
                **snapshots,
            }
        status = self.query.causal_status()
        replicas = [replica for replica in status["replicas"] if not replica["standby"]]
        restarts = [recovery["ms"] for recovery in status["recoveries"] if recovery["at"] >= since]

        def total(name: str) -> float:
            return float(sum(replica["done"].get(name, 0) for replica in replicas))

        return {
            "log_bytes": sum(replica["log_bytes"] or 0 for replica in replicas),
            "output_bytes": total("output_bytes"),
            "delta_bytes": total("delta_bytes"),
            "restart_ms": restarts,
            "snapshots": total("snapshots"),
            "snapshot_s": total("snapshot_seconds"),
        }

    def done_again(self, fed: Run) -> int | None:
        """How many records the first operator had more than once; None natively, where calls are not counted, and
        without a failure, where none is."""
        return None if self._calls is None else self._calls.again(self._cell.what, fed)

    def stop(self) -> list[str]:
        """Stop it; why it was restarted."""
        reasons = list(self.query.restarts) if not self.native else ["the query had ended"] * self.restarts
        self.query.stop()
        return reasons

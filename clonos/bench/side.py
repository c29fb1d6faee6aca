"""The two sides of a comparison: a query started natively or causally, with output in a SQLite table, and its victims.

Natively a restart after a failure is by hand: here at once, over the same checkpoint, the best that can be done.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import clonos
from clonos.bench.cell import Cell, Mode, Protection
from clonos.bench.stock import REALTIME_SETTINGS, create_table, shown, tune
from clonos.bench.watch import TABLE
from clonos.nexmark.native import STATE_STORE
from clonos.nexmark.query import Native, Source, causal

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


class Side:
    """A running cell."""

    def __init__(self, spark: Any, cell: Cell, folder: Path) -> None:
        self._spark = spark
        self._cell = cell
        self._folder = folder
        self._source = Source(spark, str(folder))
        self.database = folder / "output.db"
        self.restarts = 0
        self._native = cell.protection is Protection.NONE
        if self._native:
            create_table(str(self.database), TABLE, cell.what.columns)
        self._query = self._start()

    def _start(self) -> Any:
        trigger, checkpoint = TRIGGERS[self._cell.mode], str(self._folder / "checkpoint")
        query, native = self._cell.what, self._cell.what.native
        if self._native and native is not None:
            writer = self._native_writer(native)
            return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        standbys = 1 if self._cell.protection is Protection.HOT else 0
        stream = causal(query, self._source, INSTANCES, standbys)
        sink = clonos.sinks.sql(f"sqlite:///{self.database}", TABLE)
        return stream.writeStream.to(sink).option("checkpointLocation", checkpoint).trigger(**trigger).start()

    def _native_writer(self, native: Native) -> Any:
        realtime = self._cell.mode is Mode.REALTIME
        tune(self._spark, realtime=realtime)
        build, each_row = native.build, False
        if realtime and native.realtime is not None:
            build, each_row = native.realtime, True
        frame = build(self._source)
        return shown(frame, str(self.database), TABLE, native.output_mode, each_row=each_row)

    def kill_one(self) -> None:
        """SIGKILL to one process that runs the user's function."""
        if self._native:
            left = [int(path.name) for path in self._source.workers.iterdir()]
            pids = [pid for pid in left if _alive(pid)]
        else:
            first = min(r["node"] for r in self._query.replicas())
            pids = [r["pid"] for r in self._query.replicas() if r["node"] == first and not r["standby"]]
        os.kill(min(pids), signal.SIGKILL)

    def keep(self) -> None:
        """Start a native query again that has ended."""
        if self._native and not self._query.isActive:
            self.restarts += 1
            self._query = self._start()

    def account(self, since: float) -> dict[str, Any]:
        """What the causal side says of itself: bytes of determinants recorded, and how long recoveries took."""
        if self._native:
            return {"log_bytes": None, "restart_ms": []}
        status = self._query.causal_status()
        logs = [replica["log_bytes"] or 0 for replica in status["replicas"] if not replica["standby"]]
        restarts = [recovery["ms"] for recovery in status["recoveries"] if recovery["at"] >= since]
        return {"log_bytes": sum(logs), "restart_ms": restarts}

    def stop(self) -> list[str]:
        """Stop it; why it was restarted."""
        reasons = list(self._query.restarts) if not self._native else ["the query had ended"] * self.restarts
        self._query.stop()
        return reasons


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

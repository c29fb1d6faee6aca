"""Downtime: Spark's example of `transformWithStateInPandas` with timers, exact through failures.

Whenever a device was not heard of for a second, a row says for how long; and again, as long as it stays silent.

    python examples/downtime.py [--mode realtime] [--kill]
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

from clonos import causal

PATIENCE_MS = 1000


class DetectDowntime(StatefulProcessor):
    """When a device was last heard of, and a timer for its silence."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._last = handle.getValueState("last", StructType([StructField("ms", LongType())]))

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        for _ in rows:
            pass
        for timer in self._handle.listTimers():
            self._handle.deleteTimer(timer)
        now = timerValues.getCurrentProcessingTimeInMs()
        self._last.update((now,))
        self._handle.registerTimer(now + PATIENCE_MS)
        yield pd.DataFrame({"id": [key[0]], "silent_ms": [0]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        now = timerValues.getCurrentProcessingTimeInMs()
        (last,) = self._last.get()
        self._handle.registerTimer(now + PATIENCE_MS)
        yield pd.DataFrame({"id": [key[0]], "silent_ms": [now - last]})

    def close(self) -> None:
        pass


def silences(pings: Any) -> Any:
    """What plain Spark would be given, too."""
    return pings.groupBy("id").transformWithStateInPandas(
        statefulProcessor=DetectDowntime(),
        outputStructType="id string, silent_ms long",
        outputMode="Update",
        timeMode="ProcessingTime",
    )


def main() -> None:
    from running import arguments, run

    given = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)

        def query(spark: SparkSession) -> Any:
            lines = spark.readStream.format("clonos").load(str(base / "in"))
            return silences(causal(lines.selectExpr("cast(value as string) as id")))

        for row in run(query, base, ["pump", "valve"], given, rows=6):
            print(json.dumps(row))


if __name__ == "__main__":
    main()

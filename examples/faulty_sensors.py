"""Faulty sensors: Spark's example of `transformWithState` with a value state, exact through failures.

A sensor's readings above a limit are counted in state; a row out for every call says how many there were by then.

    python examples/faulty_sensors.py [--mode realtime] [--kill]
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from clonos import causal

LIMIT = 100
OUTPUT = StructType(
    [
        StructField("id", StringType()),
        StructField("readings", LongType()),
        StructField("violations", IntegerType()),
    ]
)


class CountViolations(StatefulProcessor):
    """Readings and violations of one sensor."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        kept = StructType([StructField("readings", LongType()), StructField("violations", IntegerType())])
        self._counts = handle.getValueState("counts", kept)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        readings, violations = self._counts.get() if self._counts.exists() else (0, 0)
        for row in rows:
            if row.temperature is not None:
                readings += 1
                violations += row.temperature > LIMIT
        self._counts.update((readings, violations))
        yield Row(id=key[0], readings=readings, violations=violations)

    def close(self) -> None:
        pass


def violations(readings: Any) -> Any:
    """What plain Spark would be given, too."""
    return readings.groupBy("id").transformWithState(CountViolations(), OUTPUT, "Update", "None")


def main() -> None:
    from running import arguments, run

    given = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)

        def query(spark: SparkSession) -> Any:
            lines = spark.readStream.format("clonos").load(str(base / "in"))
            readings = lines.selectExpr("from_json(cast(value as string), 'id string, temperature int') as r")
            return violations(causal(readings.select("r.*")))

        lines = [json.dumps({"id": f"s{n % 2}", "temperature": 80 + 7 * n}) for n in range(10)]
        for row in run(query, base, lines, given, rows=2):
            print(json.dumps(row))


if __name__ == "__main__":
    main()

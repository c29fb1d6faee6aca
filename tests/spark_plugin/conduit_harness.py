"""Causal stages on real Spark with scripted replicas behind them: what the tests of the plugin share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_replica import Replicas
from one_session import one_session
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

OPERATOR, SINK = 2, 3


def plugin_session(jar: Path) -> SparkSession:
    """A session that knows the plugin's classes and has nothing of the library's settings."""
    settings = {
        "spark.jars": str(jar),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        # Exchanges hand rows on because the task waits, or not before the batch ends.
        "spark.shuffle.manager.incremental": "org.clonos.spark.exchange.PromptShuffleManager",
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "3600000",
        "spark.sql.streaming.realTimeMode.minBatchDuration": "1s",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    builder = SparkSession.builder.master("local[8,1]").appName("conduit")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = one_session(builder, log_level="ERROR")
    return session


class Rig:
    """source -> exchange -> operator (echo) -> exchange -> sink, both stages played by `Replicas`."""

    def __init__(
        self, spark: SparkSession, folder: Path, mode: str, *, parallelism: int = 2, **settings: Any
    ) -> None:
        self.parallelism = parallelism
        self.spark, self.folder, self.mode, self.settings = spark, folder, mode, settings
        self.socket = str(folder / "s")
        assert spark._jvm is not None
        self.reports = spark._jvm.org.apache.spark.util.CollectionAccumulator()
        self.reports.register(spark.sparkContext._jsc.sc(), spark._jvm.scala.Option.empty(), True)
        self.replicas: Replicas
        self.query: StreamingQuery

    def stage(self, frame: DataFrame, node: int) -> DataFrame:
        specification = {
            "node": node,
            "name": f"node {node}",
            "servers": [{"near": f"unix:{self.socket}"}],
            "token": "secret",
            "generation": 1,
            "mode": self.mode,
            "spill_dir": str(self.folder / "spill"),
            "parallelism": self.parallelism,
            "route": [0, 1],
            **self.settings,
        }
        assert self.spark._jvm is not None
        layer = {"nodes": [specification], "partitions": [[0, at] for at in range(self.parallelism)]}
        plugin = self.spark._jvm.org.clonos.spark
        stage = plugin.CausalStage.apply(frame._jdf, json.dumps(layer), self.reports)
        return DataFrame(stage, self.spark)

    def start(self, log: Path, columns: list[str], **script: Any) -> None:
        """Starts on an embedded log; the columns are SQL expressions."""
        source = self.spark.readStream.format("clonos").load(str(log))
        identity = [
            "cast(_clonos_source_partition as long) * 64 + 1 as _clonos_channel",
            "_clonos_source_position as _clonos_position",
            "pmod(hash(_clonos_source_position), 2) as _clonos_destination_0",
        ]
        self.start_on(source.selectExpr(*identity, *columns), **script)

    def start_on(
        self, identified: DataFrame, *, realtime: str = "2 seconds", timed: bool = False, **script: Any
    ) -> None:
        """`timed`: a column of event times stands behind the destination."""
        user = StructType(identified.schema.fields[3 + timed :])
        arrow = to_arrow_schema(user, timezone="UTC")
        self.replicas = Replicas(
            self.socket, {OPERATOR: arrow, SINK: arrow}, sinks=frozenset({SINK}), **script
        )
        assert self.spark._jvm is not None
        packing = self.spark._jvm.org.clonos.spark.PackingStage
        limits = (self.settings.get("bundle_rows", 4096), self.settings.get("bundle_bytes", 1 << 20))
        told = ([0], [0], [self.parallelism]) if timed else ([], [], [])
        packed = DataFrame(packing.apply(identified._jdf, 1, *told, *limits), self.spark)
        operator = self.stage(exchanged(packed), OPERATOR)
        writer = self.stage(exchanged(operator), SINK).writeStream
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        if self.mode == "realtime":
            writer = writer.outputMode("update").trigger(realTime=realtime)
        else:
            writer = writer.outputMode("append").trigger(processingTime="0 seconds")
        assert self.spark._jvm is not None
        writer._jwrite.foreach(self.spark._jvm.org.clonos.spark.DiscardingWriter())
        self.query = writer.start()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.replicas.collected[SINK]

    def wait(self, condition: Callable[[], bool], seconds: float = 180) -> None:
        end = time.monotonic() + seconds
        while not condition():
            failure = self.query.exception()
            assert failure is None, str(failure)[:2000]
            assert time.monotonic() < end, f"{len(self.rows)} rows, violations {self.replicas.violations}"
            time.sleep(0.01)

    def committed(self) -> list[int]:
        folder = self.folder / "checkpoint" / "commits"
        return sorted(int(path.name) for path in folder.glob("[0-9]*")) if folder.exists() else []

    def stop(self) -> None:
        self.query.stop()
        self.replicas.close()


def exchanged(blocks: DataFrame) -> DataFrame:
    return blocks.repartitionById(2, F.col("_clonos_destination")).drop("_clonos_destination")


def conduit_threads(spark: SparkSession) -> list[str]:
    assert spark._jvm is not None
    names = [str(thread.getName()) for thread in spark._jvm.java.lang.Thread.getAllStackTraces().keySet()]
    return [name for name in names if name.startswith("clonos-")]


def arrow_memory(spark: SparkSession) -> int:
    assert spark._jvm is not None
    return int(spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator().getAllocatedMemory())

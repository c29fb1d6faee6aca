"""The embedded source on Spark: identity of records after any projection, limits, restarts, damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from conduit_harness import Rig, plugin_session
from pyspark.sql import DataFrame, SparkSession, functions as F

from clonos.sources import LogWriter, read


@pytest.fixture(scope="module")
def spark(plugin_jar: Path) -> SparkSession:
    return plugin_session(plugin_jar)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    with LogWriter(tmp_path / "log", 2) as writer:
        yield writer


def source(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.readStream.format("clonos").options(**options).load(str(path))


def collected(frame: DataFrame, checkpoint: Path) -> tuple[list[Any], list[int]]:
    """Runs a query over what is available now; its rows, and how many there were in each batch."""
    rows: list[Any] = []
    batches: list[int] = []

    def keep(batch: DataFrame, _: int) -> None:
        found = batch.collect()
        rows.extend(found)
        batches.append(len(found))

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination(90)
    return rows, batches


def reshaped(frame: DataFrame) -> DataFrame:
    """Everything of the source's own columns is projected away."""
    parsed = frame.select(F.from_json(F.col("value").cast("string"), "a int").alias("v")).select("v.*")
    return parsed.filter("a % 3 < 2").withColumn("b", F.col("a") * 2).withColumnRenamed("a", "c")


def test_identity_survives_projections_in_micro_batches(
    spark: SparkSession, tmp_path: Path, log: LogWriter
) -> None:
    positions = {number: log.append(number % 2, b'{"a": %d}' % number) for number in range(30)}
    frame = reshaped(source(spark, tmp_path / "log"))
    rows, _ = collected(
        frame.select("*", "_clonos_source_partition", "_clonos_source_position"), tmp_path / "ck"
    )
    assert frame.columns == ["c", "b"]
    expected = {(n, n * 2, n % 2, positions[n]) for n in range(30) if n % 3 < 2}
    assert {tuple(row) for row in rows} == expected


def test_identity_survives_projections_in_real_time(
    spark: SparkSession, tmp_path: Path, log: LogWriter
) -> None:
    rig = Rig(spark, tmp_path, "realtime")
    identity = [
        "cast(_clonos_source_partition as long) * 64 + 1 as _clonos_channel",
        "_clonos_source_position as _clonos_position",
        "cast(pmod(_clonos_source_position, 2) as int) as _clonos_destination_0",
        "_clonos_source_partition as p",
        "_clonos_source_position as o",
    ]
    rig.start_on(reshaped(source(spark, tmp_path / "log")).selectExpr(*identity, "c"))
    positions = {number: log.append(number % 2, b'{"a": %d}' % number) for number in range(30)}
    rig.wait(lambda: len(rig.rows) >= 20)
    rig.stop()
    assert {(row["c"], row["p"], row["o"]) for row in rig.rows} == {
        (n, n % 2, positions[n]) for n in range(30) if n % 3 < 2
    }


def test_columns_and_limits_and_restart(spark: SparkSession, tmp_path: Path, log: LogWriter) -> None:
    log.append_many(0, [b"%d" % number for number in range(10)])
    log.append_many(1, [b"%d" % number for number in range(100, 103)])
    frame = source(spark, tmp_path / "log", maxRecordsPerBatch=8)
    rows, batches = collected(frame, tmp_path / "ck")
    assert batches == [7, 4, 2]
    by_partition = {part: [row for row in rows if row["partition"] == part] for part in (0, 1)}
    for part, found in by_partition.items():
        records = list(read(tmp_path / "log", part))
        assert [(bytes(row["value"]), row["position"]) for row in found] == [
            (record.payload, record.position) for record in records
        ]
        assert [int(row["timestamp"].timestamp() * 1e6) // 10 for row in found] == [
            record.appended // 10 for record in records
        ]
    log.append(1, b"later")
    rows, batches = collected(source(spark, tmp_path / "log", maxBytesPerTrigger="1"), tmp_path / "ck")
    assert [bytes(row["value"]) for row in rows] == [b"later"]


def test_a_torn_tail_waits_and_damage_is_an_error(
    spark: SparkSession, tmp_path: Path, log: LogWriter
) -> None:
    log.append_many(0, [b"first", b"second"])
    file = tmp_path / "log" / "0.log"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    rows, _ = collected(source(spark, tmp_path / "log"), tmp_path / "ck")
    assert [bytes(row["value"]) for row in rows] == [b"first"]
    file.write_bytes(whole[:-1] + b"X")
    with pytest.raises(Exception, match=r"corrupt entry in .*0\.log at offset 29: its checksum does not fit"):
        collected(source(spark, tmp_path / "log"), tmp_path / "ck")


def test_what_is_no_log_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"there is no embedded log at .*_meta\.json is missing"):
        source(spark, tmp_path)
    with pytest.raises(Exception, match="needs a path"):
        spark.readStream.format("clonos").load()

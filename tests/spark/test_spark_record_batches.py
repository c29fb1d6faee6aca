"""Functions of record batches on real Spark: beside Spark's own, and by the ledger while replicas are killed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from modes import mostly
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from streams import TRIGGERS, Place

import clonos
from clonos.testing.driver import OperatorDriver, stream
from clonos.testing.ledger import LEDGER_SCHEMA, extend, judge, micros

pytestmark = pytest.mark.spark
COLUMNS = [column.split()[0] for column in LEDGER_SCHEMA.split(", ")]
STEPS = 4
PER_STEP = 24
KINDS = (
    "b boolean, i8 tinyint, i32 int, i64 bigint, f32 float, f64 double, s string, raw binary, day date, "
    "at timestamp, wall timestamp_ntz, span interval day to second, price decimal(20,4), many array<int>, "
    "map_ map<string,timestamp>, one struct<x:int,at:timestamp,of:array<struct<y:string>>>"
)
SAID = "kinds string, given string"


def test_functions_are_given_what_spark_gives_them(spark: Any) -> None:
    def said_of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kinds = [str(field.type) for field in batch.schema]
            values = batch.to_pylist()
            yield pa.record_batch(
                {"kinds": [repr(kinds)] * len(values), "given": [repr(row) for row in values]}
            )

    def said_of_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            kinds = [str(kind) for kind in frame.dtypes]
            given = [
                repr([(type(value).__name__, value) for value in row]) for row in frame.itertuples(False)
            ]
            yield pd.DataFrame({"kinds": [repr(kinds)] * len(frame), "given": given})

    noon = dt.datetime(2026, 7, 1, 12)
    row = (
        True, 1, 2, 3, 1.5, -0.0, "käse", bytearray(b"\xff"), dt.date(1, 1, 1), noon, noon, dt.timedelta(1),
        Decimal("1.5"), [1, 2], {"a": noon}, {"x": None, "at": noon, "of": [{"y": "z"}]},
    )  # fmt: skip
    zone = spark.conf.get("spark.sql.session.timeZone")
    df = spark.createDataFrame([row], StructType.fromDDL(KINDS)).coalesce(1)
    given = stream(KINDS, timezone=zone)
    for function, method in ((said_of_batches, "mapInArrow"), (said_of_frames, "mapInPandas")):
        theirs = [tuple(said) for said in getattr(df, method)(function, SAID).collect()]
        with OperatorDriver(getattr(given, method)(function, SAID)) as driver:
            assert [tuple(said) for said in driver.feed([row])] == theirs, method


def drawn(batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.RecordBatch]:
    half = ctx.call(lambda rows: rows // 2, batch.num_rows)
    for part in (batch.slice(0, half), batch.slice(half)):
        yield pa.record_batch(
            {
                "k": pc.binary_join_element_wise("k", pc.cast(pc.bit_wise_and(part["n"], 3), "string"), ""),
                "at": pa.array([micros(ctx.now())] * part.num_rows, "int64"),
                "n": part["n"],
                "draw": pa.array([ctx.random.getrandbits(48) for _ in range(part.num_rows)], "int64"),
                "t": part["t"],
            }
        )


def keep(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield extend(ctx.state, key[0], row.id, row.draw, row.at).row()


def with_a_draw(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    ctx = clonos.current()
    for frame in frames:
        yield frame.assign(luck=[ctx.random.random() for _ in range(len(frame))])


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_ledgers_behind_batches_are_exact(place: Place, mode: str) -> None:
    one, two = (place.causal("n long, t timestamp", log) for log in ("one", "two"))
    scored = (
        one.union(two)
        .withWatermark("t", "1 minute")
        .map_batches(drawn, "k string, n long, draw long, at long, t timestamp", name="drawn", parallelism=2)
        .where("n >= 0")
        .select("k", f.col("n").cast("string").alias("id"), "draw", "at")
    )
    kept = scored.groupBy("k").process(keep, LEDGER_SCHEMA, name="kept", parallelism=2)
    shown = kept.mapInPandas(with_a_draw, f"{LEDGER_SCHEMA}, luck double", parallelism=1).drop("luck")
    writer = (
        shown.writeStream.to(clonos.sinks.jsonl(place.output, durable=False))
        .option("checkpointLocation", str(place.checkpoint))
        .trigger(**TRIGGERS[mode])
    )
    place.query = writer.start()
    for step, (node, instance) in enumerate([(3, 0), (5, 0), (3, 1), (4, 0)]):
        numbers = range(PER_STEP * step, PER_STEP * (step + 1))
        for log, of in (("one", numbers[::2]), ("two", numbers[1::2])):
            place.write([{"n": n, "t": "2026-01-01 12:00:00"} for n in of], log)
        place.until(lambda: len(place.rows()) >= PER_STEP * (step + 1), step)  # noqa: B023
        place.kill(node, instance)
        if step == STEPS // 2:
            place.stop()
            place.query = writer.start()
    rows = place.await_rows(PER_STEP * STEPS)
    entries = [tuple(row[column] for column in COLUMNS) for row in rows]
    verdict = judge(entries, [str(n) for n in range(PER_STEP * STEPS)])
    assert verdict.exact, verdict

"""Two ledgers in a row, read and keyed through expressions, judge themselves while every replica is killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from modes import mostly
from pyspark.sql import functions as f
from streams import TRIGGERS, Place

import clonos
from clonos.testing.ledger import LEDGER_SCHEMA, extend, judge, micros

pytestmark = pytest.mark.spark
COLUMNS = [column.split()[0] for column in LEDGER_SCHEMA.split(", ")]
STEPS = 6
PER_STEP = 20


def keep(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield extend(ctx.state, key[0], row.id, ctx.random.getrandbits(48), micros(ctx.now())).row()


def entries(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in COLUMNS) for row in rows]


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_ledgers_behind_expressions_are_exact(place: Place, mode: str) -> None:
    source = (
        place.causal("n long")
        .selectExpr("cast(n as string) AS id", "concat('k', n % 7) AS k")
        .where("k != 'k3'")
    )
    first = source.groupBy("k").process(keep, LEDGER_SCHEMA, name="first", parallelism=2)
    bucketed = first.where("cast(input_id as bigint) % 2 = 0").select(
        f.concat(f.lit("b"), f.col("draw") % 5).alias("bucket"), f.col("hash").alias("id")
    )
    second = bucketed.groupBy("bucket").process(keep, LEDGER_SCHEMA, name="second", parallelism=2)
    shown = first.withColumn("even", f.col("n") % 2 == 0).where("even OR NOT even").drop("even")
    other = Place(place.spark, place.base / "second")
    writer = (
        shown.writeStream.to(clonos.sinks.jsonl(place.output, durable=False), name="shown")
        .to(
            clonos.sinks.jsonl(other.output, durable=False),
            name="other",
            stream=second.selectExpr("*", "n + 1 AS m"),
        )
        .option("checkpointLocation", str(place.checkpoint))
        .trigger(**TRIGGERS[mode])
    )
    place.query = writer.start()
    for step, (node, instance) in enumerate([(2, 0), (3, 1), (4, 0), (2, 1), (3, 0), (5, 0)]):
        place.write([{"n": n} for n in range(PER_STEP * step, PER_STEP * (step + 1))])
        due = [n for n in range(PER_STEP * (step + 1)) if n % 7 != 3]
        place.until(
            lambda: len(place.rows()) >= len(due) and len(other.rows()) >= sum(n % 2 == 0 for n in due),  # noqa: B023
            step,
        )
        place.kill(node, instance)
        if step == STEPS // 2:
            place.stop()
            place.query = writer.start()
    place.write([{"n": 3}, {"n": 10}])  # which are dropped
    place.query.processAllAvailable()
    due = [n for n in range(PER_STEP * STEPS) if n % 7 != 3]
    rows = place.await_rows(len(due))
    verdict = judge(entries(rows), [str(n) for n in due])
    assert verdict.exact, verdict
    hashes = [row["hash"] for row in rows if int(row["input_id"]) % 2 == 0]
    behind = other.await_rows(len(hashes))
    verdict = judge(entries(behind), hashes)
    assert verdict.exact, verdict
    assert all(row["m"] == row["n"] + 1 for row in behind)

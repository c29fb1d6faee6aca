"""Two causal queries, joined by a topic in which the first one's rows are visible at once: exact from end to end."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka_broker import KafkaBroker
from kafka_job import KafkaRun
from ledger_job import (
    FIRST,
    LATER,
    SECOND,
    SOON,
    TRIGGERS,
    assert_exact,
    await_end,
    entropy,
    fault,
    first,
    running,
)
from modes import in_turns

import clonos
from clonos.kafka import without_repetitions
from clonos.testing.faults import Fault, Point, Strike, script
from clonos.testing.ledger import extend

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

P, REPLICA, TASK = Point, Strike.REPLICA, Strike.TASK
# Of the first query, and of the second.
SCRIPTS: list[tuple[tuple[Fault, ...], tuple[Fault, ...]]] = [
    (
        (
            fault(P.BEFORE_COMMIT, REPLICA, "sink", SOON, 30),
            fault(P.AFTER_COMMIT, TASK, "sink", LATER, 20),
            fault(P.INPUT, REPLICA, "first", LATER, 30),
        ),
        (fault(P.INPUT, REPLICA, "second", SOON, 40),),
    ),
    (
        (fault(P.BEFORE_COMMIT, TASK, "sink", SOON, 30), fault(P.AFTER_COMMIT, REPLICA, "sink", LATER)),
        (
            fault(P.INPUT, REPLICA, "without_repetitions", SOON, 30),
            fault(P.BEFORE_COMMIT, TASK, "sink", LATER, 20),
        ),
    ),
]


def second(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """As that of the one query, over the messages of the other."""
    entry = extend(ctx.state, key[0], row.a_hash, ctx.call(entropy), ctx.now_us(exact=True))
    yield (*entry.row(), *row[4:])


@dataclass
class JoinedRun(KafkaRun):
    """One operator in each query; all else is of the second one."""

    faults_before: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parallelism = 1
        self.middle = self.broker.topic(partitions=1)
        self.query_before: Any = None

    def _start(self, spark: Any) -> Any:
        from pyspark.sql import functions as f

        given = self.input(spark).select(
            f.from_json(f.col("value").cast("string"), "k string, id string").alias("j")
        )
        rows = (
            clonos.causal(given.select("j.*")).groupBy("k").process(first, FIRST, name="first", parallelism=1)
        )
        shown = clonos.sinks.kafka(self.broker.servers, topic=self.middle, key="a_key", mode="at_once")
        self.query_before = self._written(rows, shown, self.base / "before", self.faults_before)
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.broker.servers)
        source = source.options(subscribe=self.middle, startingOffsets="earliest", includeHeaders="true")
        parsed = f.from_json(f.col("value").cast("string"), FIRST).alias("j")
        messages = source.load().select("topic", "partition", "offset", "headers", parsed)
        stream = clonos.causal(messages.select("topic", "partition", "offset", "headers", "j.*"))
        judged = stream.transform(without_repetitions, parallelism=1).groupBy("bucket")
        return self._written(
            judged.process(second, SECOND, name="second", parallelism=1),
            self.sink(),
            self.checkpoint,
            self.faults,
        )

    def _written(self, rows: Any, sink: Any, checkpoint: Path, faults: str) -> Any:
        writer = rows.writeStream.to(sink, parallelism=1).option("checkpointLocation", str(checkpoint))
        return writer.option("clonos.faults", faults).trigger(**TRIGGERS[self.mode]).start()

    def allow(self, asked: str) -> None:
        super().allow(asked)
        marks = self.base / "before" / "clonos" / "local" / "faults"
        marks.mkdir(parents=True, exist_ok=True)
        (marks / asked).touch()

    def fired(self) -> list[str]:
        marks = self.base / "before" / "clonos" / "local" / "faults"
        return super().fired() + sorted(f"before-{path.name}" for path in marks.glob("[0-9]*-*"))


def name_of(scripts: tuple[tuple[Fault, ...], tuple[Fault, ...]]) -> str:
    return "+".join(f"{f.point.value}-{f.strike.value}-{f.operator}" for faults in scripts for f in faults)


@pytest.mark.parametrize(("faults", "mode"), in_turns(SCRIPTS, name_of))
def test_exact_from_end_to_end(
    spark: Any,
    tmp_path: Path,
    broker: KafkaBroker,
    mode: str,
    faults: tuple[tuple[Fault, ...], tuple[Fault, ...]],
) -> None:
    before, after = faults
    setup = JoinedRun(
        tmp_path,
        mode=mode,
        broker=broker,
        faults=script(*after),
        faults_before=script(*before),
        sink_mode="at_once",
    )
    try:
        with running(spark, setup) as query:
            await_end(query, setup)
    finally:
        with contextlib.suppress(AttributeError):
            setup.query_before.stop()
    assert len(setup.fired()) == len(before) + len(after), setup.fired()
    assert_exact(setup)
    shown = [json.loads(message.value())["id"] for message in broker.read(setup.middle, committed=False)]
    assert len(shown) >= setup.count
    assert set(shown) == set(map(str, range(setup.count)))

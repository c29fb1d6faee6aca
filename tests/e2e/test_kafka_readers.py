"""Spark reads a topic whose rows may have come again, each once: as a table, a stream of its own, a causal stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_broker import KafkaBroker
from modes import mostly
from repeated_topic import RepeatedTopic

import clonos
from clonos.errors import ConfigurationError, QueryDefinitionError
from clonos.kafka import spark_stream, without_repetitions

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def topic(broker: KafkaBroker) -> RepeatedTopic:
    made = RepeatedTopic(broker)
    for content in (b"mine", b"mine"):
        made.send_without_id(content)
    return made


@pytest.fixture
def rocksdb(spark: Any) -> Iterator[None]:
    few = {spark_stream._PROVIDER: spark_stream._ROCKSDB, "spark.sql.shuffle.partitions": "2"}
    for name, value in few.items():
        spark.conf.set(name, value)
    yield
    for name in few:
        spark.conf.unset(name)


def reading(reader: Any, topic: RepeatedTopic, **more: str) -> Any:
    options = {"kafka.bootstrap.servers": topic.broker.servers, "subscribe": topic.name}
    options |= {"includeHeaders": "true", "startingOffsets": "earliest", **more}
    return reader.format("kafka").options(**options).load()


def ids(rows: list[Any]) -> list[str]:
    return sorted(bytes(row.value).decode() for row in rows)


def test_a_table_has_each_row_once(spark: Any, topic: RepeatedTopic) -> None:
    given = reading(spark.read, topic)
    kept = without_repetitions(given)
    assert kept.schema == given.schema
    rows = kept.collect()
    assert ids(rows) == sorted(topic.expected)
    assert all(dict(row.headers)["b"] == b"\0\xff" for row in rows if row.headers)
    assert len(given.collect()) == topic.sent + 2


@pytest.mark.usefixtures("rocksdb")
def test_a_stream_of_stock_spark_has_each_row_once(spark: Any, tmp_path: Path, topic: RepeatedTopic) -> None:
    """Over restarts, too: what came before is in its checkpoint."""
    seen: list[str] = []
    for more in (100, 100, 0):
        given = reading(spark.readStream, topic, maxOffsetsPerTrigger="40")
        kept = without_repetitions(given)
        assert kept.schema == given.schema
        writer = kept.writeStream.foreachBatch(lambda df, _: seen.extend(ids(df.collect())))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query.start().awaitTermination()
        assert sorted(seen) == sorted(topic.expected)
        topic.send(more)


@pytest.mark.usefixtures("rocksdb")
def test_a_stream_in_real_time_has_each_row_once(spark: Any, tmp_path: Path, topic: RepeatedTopic) -> None:
    target = topic.broker.topic()
    kept = without_repetitions(reading(spark.readStream, topic)).select("value")
    writer = kept.writeStream.format("kafka").outputMode("update").trigger(realTime="2 seconds")
    writer = writer.option("kafka.bootstrap.servers", topic.broker.servers).option("topic", target)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        await_rows(query, topic, target)
        topic.send(100)
        await_rows(query, topic, target)
    finally:
        query.stop()


def await_rows(query: Any, topic: RepeatedTopic, target: str) -> None:
    seen: list[str] = []
    while len(seen) < len(topic.expected):
        assert query.isActive, query.exception()
        seen = [message.value().decode() for message in topic.broker.read(target)]
    assert sorted(seen) == sorted(topic.expected)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_causal_stream_has_each_row_once(
    spark: Any, tmp_path: Path, topic: RepeatedTopic, mode: str
) -> None:
    messages = clonos.causal(reading(spark.readStream, topic).drop("timestamp", "timestampType"))
    kept = messages.transform(without_repetitions).map(
        lambda row: (bytes(row.value).decode(),), "value string", name="text", pure=True
    )
    trigger: dict[str, Any] = (
        {"realTime": "2 seconds"} if mode == "realtime" else {"processingTime": "0 seconds"}
    )
    writer = kept.writeStream.to(clonos.sinks.jsonl(tmp_path / "out", durable=False)).trigger(**trigger)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    seen: list[str] = []
    try:
        while len(seen) < len(topic.expected):
            assert query.isActive, query.exception()
            lines = [
                line for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().split("\n")
            ]
            seen = [json.loads(line)["value"] for line in lines if line.endswith("}")]
    finally:
        query.stop()
    assert sorted(seen) == sorted(topic.expected)


def test_what_is_missing_is_named(spark: Any, topic: RepeatedTopic) -> None:
    with pytest.raises(QueryDefinitionError, match="headers are missing") as refused:
        without_repetitions(reading(spark.read, topic, includeHeaders="false"))
    assert "includeHeaders" in str(refused.value)
    with pytest.raises(ConfigurationError, match="RocksDB") as needed:
        without_repetitions(reading(spark.readStream, topic))
    assert spark_stream._PROVIDER in str(needed.value)

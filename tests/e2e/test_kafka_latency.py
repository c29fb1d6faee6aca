"""From a topic to a topic: how long rows took, and how many the source has not read, as `clonos status` has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_broker import KafkaBroker
from standby_conduit import until

import clonos
from clonos.tools.live_query import find
from clonos.tools.status.describe import describe

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

TRIGGERS: dict[str, dict[str, str]] = {
    "microbatch": {"processingTime": "1 hour"},
    "realtime": {"realTime": "2 seconds"},
}


@pytest.mark.parametrize(("mode", "read"), [("microbatch", 10), ("realtime", 40)])
def test_a_topic_is_so_far_behind_and_its_rows_are_counted(
    spark: Any, tmp_path: Path, broker: KafkaBroker, mode: str, read: int
) -> None:
    """One batch of a part of the records; in real time all of them."""
    given, shown = broker.topic(partitions=2), broker.topic(partitions=1)
    producer = broker.producer()
    for number in range(40):
        producer.produce(given, b"%d" % number, partition=number % 2)
    assert producer.flush(240) == 0
    options = {"kafka.bootstrap.servers": broker.servers, "subscribe": given, "startingOffsets": "earliest"}
    if mode == "microbatch":
        options["maxOffsetsPerTrigger"] = "10"
    stream = clonos.causal(spark.readStream.format("kafka").options(**options).load())
    mapped = stream.map(lambda row, ctx: (bytes(row.value).decode(),), "value string", name="text")
    writer = mapped.writeStream.to(clonos.sinks.kafka(broker.servers, topic=shown, value="value"))
    checkpoint = str(tmp_path / "checkpoint")
    query = writer.option("checkpointLocation", checkpoint).trigger(**TRIGGERS[mode]).start()

    def said() -> dict[str, Any]:
        assert query.isActive, query.exception()
        return describe(find(checkpoint))

    def sink() -> dict[str, Any]:
        (instance,) = said()["operators"][-1]["instances"]
        return instance["latency"] or {"rows": [], "sum": 0}

    try:
        until(lambda: sum(sink()["rows"]) == read)
        assert sink()["sum"] > 0
        until(lambda: [each["behind"] for each in said()["sources"]] == [40 - read])
        (source,) = said()["sources"]
        assert source["unit"] == "records"
        nodes = {node["number"]: node["kind"] for node in find(checkpoint).checkpoint.shape()[1]["nodes"]}
        assert nodes[source["node"]] == "source"
    finally:
        query.stop()

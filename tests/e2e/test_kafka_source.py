"""Kafka as source, over a real broker: what a query reads, and what it is told where records are gone."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions, OffsetSpec
from kafka_broker import KafkaBroker
from kafka_job import KafkaRun, TopicWriter
from ledger_job import assert_exact, await_, await_end, run, running
from modes import mostly
from secured_kafka import client, secured_broker, spark_options

from clonos.errors import InputLost
from clonos.spark.checkpoint import Checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def await_commit(query: Any, setup: KafkaRun, rows: int) -> None:
    """Until so many rows are visible, and an epoch has committed after that."""
    await_(query, setup, lambda: setup.visible() >= rows)
    last = max(setup.epochs("commits"), default=-1)
    if setup.mode == "realtime":
        await_(query, setup, lambda: max(setup.epochs("commits"), default=-1) > last)
    else:
        await_(query, setup, lambda: setup.epochs("commits") == setup.epochs("offsets"))


# ----------------------------------------------------------- what is read


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_tls_and_passwords_are_passed_through(spark: Any, tmp_path: Path, brokers: Any, mode: str) -> None:
    with secured_broker(brokers, tmp_path / "certificates") as broker:
        certificates = tmp_path / "certificates"
        setup = KafkaRun(tmp_path, mode=mode, broker=broker, count=200)
        setup.options, setup.sink_options = spark_options(certificates, "root"), client(certificates, "root")
        run(spark, setup)
        assert_exact(setup)
        [topics] = Checkpoint(str(setup.checkpoint)).topics().values()
        assert list(topics) == [setup.topics[0]]  # also the ids are asked for with these options


class GrowingWriter(TopicWriter):
    """Deals records out over all partitions of all topics of a pattern, whichever there are."""

    def __init__(self, broker: KafkaBroker, places: list[tuple[str, int]]) -> None:
        super().__init__(broker, "")
        self._places, self._known, self._count = places, 0, 0

    def append(self, partition: int, content: bytes) -> None:
        # The client hears of partitions now and then, or when it is asked
        if len(self._places) != self._known:
            self._known = len(self._places)
            self._producer.list_topics(timeout=60)
        topic, at = self._places[self._count % self._known]
        self._count += 1
        self._producer.produce(topic, content, partition=at)


@dataclass
class GrowingRun(KafkaRun):
    places: list[tuple[str, int]] = field(default_factory=list)

    def writer(self) -> TopicWriter:
        return GrowingWriter(self.broker, self.places)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_partitions_and_topics_are_added_while_it_runs(
    spark: Any, tmp_path: Path, broker: KafkaBroker, mode: str
) -> None:
    """A pattern: each partition of each topic is a channel, whichever comes when. In real time each takes a slot."""
    prefix = broker.topic(partitions=2)
    setup = GrowingRun(
        tmp_path, mode=mode, broker=broker, goes_on=True, parallelism=1, places=[(prefix, 0), (prefix, 1)]
    )
    setup.options = {"subscribePattern": f"{prefix}.*", "kafka.metadata.max.age.ms": "500"}
    with running(spark, setup) as query:
        await_commit(query, setup, 100)
        admin = broker.admin()
        admin.create_partitions([NewPartitions(prefix, 3)])[prefix].result(60)
        setup.places.append((prefix, 2))
        other = broker.topic(f"{prefix}-more", partitions=1)
        setup.places.append((other, 0))
        await_commit(query, setup, setup.visible() + 200)
        await_end(query, setup)
    assert_exact(setup)
    read = json.loads(
        (setup.checkpoint / "offsets" / str(max(setup.epochs("offsets")))).read_text().split("\n")[2]
    )
    assert {(topic, int(at)) for topic, partitions in read.items() for at in partitions} == set(setup.places)


class AbortingWriter(TopicWriter):
    """Commits each record, and aborts a transaction with another one before it."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self._producer = broker.producer(**{"transactional.id": topic})
        self._producer.init_transactions(240)
        self._topic = topic
        self._producer.begin_transaction()

    def append(self, partition: int, content: bytes) -> None:
        if json.loads(content)["id"].endswith("5"):
            self._producer.commit_transaction(240)
            self._producer.begin_transaction()
            self._producer.produce(self._topic, b'{"k": "k1", "id": "77777"}', partition=partition)
            self._producer.flush(240)
            self._producer.abort_transaction(240)
            self._producer.begin_transaction()
        super().append(partition, content)

    def flush(self) -> None:
        self._producer.commit_transaction(240)
        self._producer.begin_transaction()


@dataclass
class TransactionalRun(KafkaRun):
    def writer(self) -> TopicWriter:
        return AbortingWriter(self.broker, self.topics[0])


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_records_of_transactions_that_were_aborted_are_not_read(
    spark: Any, tmp_path: Path, broker: KafkaBroker, mode: str
) -> None:
    setup = TransactionalRun(tmp_path, mode=mode, broker=broker, count=200)
    setup.options = {"kafka.isolation.level": "read_committed"}
    run(spark, setup)
    assert_exact(setup)


# ------------------------------------------------------------ what is gone


def lose(broker: KafkaBroker, topic: str, *, keep: int) -> dict[int, int]:
    """All records of the topic but the last ones of each partition, as retention would; where partitions begin now."""
    admin = broker.admin()
    asked = {TopicPartition(topic, each): OffsetSpec.latest() for each in (0, 1)}
    ends = {at.partition: future.result(60).offset for at, future in admin.list_offsets(asked).items()}
    begin = {partition: end - keep for partition, end in ends.items()}
    for future in admin.delete_records([TopicPartition(topic, *each) for each in begin.items()]).values():
        future.result(60)
    return begin


def half_read(spark: Any, setup: KafkaRun) -> None:
    """The first half is read and committed, and the second is there."""
    setup.prepare()
    query = setup.start(spark)
    try:
        await_commit(query, setup, setup.count // 2)
    finally:
        query.stop()
    with setup.writer() as writer:
        setup.append(writer, setup.count)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_records_that_retention_has_passed_are_told_and_the_hint_is_a_way_on(
    spark: Any, tmp_path: Path, broker: KafkaBroker, mode: str
) -> None:
    setup = KafkaRun(tmp_path, mode=mode, broker=broker, count=200)
    half_read(spark, setup)
    shown = setup.visible()
    lose(broker, setup.topics[0], keep=3)
    query = setup.start(spark)
    with pytest.raises(InputLost, match=f"gone from Kafka.*{setup.topics[0]}") as told:
        query.awaitTermination(240)
    assert not query.restarts
    assert setup.visible() == shown
    assert "failOnDataLoss" in str(told.value)
    setup.options = {"failOnDataLoss": "false"}
    setup.trigger = {"availableNow": True}
    query = setup.start(spark)
    assert query.awaitTermination(240)
    assert setup.visible() == shown + 6
    setup.trigger = None
    with setup.writer() as writer:
        setup.append(writer, setup.count + 20)
    query = setup.start(spark)
    try:
        await_(query, setup, lambda: setup.visible() == shown + 26)
    finally:
        query.stop()


def made_anew(broker: KafkaBroker, setup: KafkaRun, more: int) -> str:
    """The topic, deleted and made anew, with so many records in each partition; what is in front is not read."""
    topic = setup.topics[0]
    admin = broker.admin()
    admin.delete_topics([topic])[topic].result(60)
    await_gone(broker, topic)
    broker.topic(topic)
    with setup.writer() as writer:
        for number in range(more):
            for partition in (0, 1):
                writer.append(partition, json.dumps({"k": "k1", "id": str(900 + number)}).encode())
    return topic


@pytest.mark.parametrize("more", [1, 200])
@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_topic_that_was_made_anew_is_told(
    spark: Any, tmp_path: Path, broker: KafkaBroker, mode: str, more: int
) -> None:
    """With fewer messages than had been read, or with more."""
    setup = KafkaRun(tmp_path, mode=mode, broker=broker, count=200)
    half_read(spark, setup)
    shown, topic = setup.visible(), made_anew(broker, setup, more)
    with pytest.raises(InputLost, match=f"{topic} that 'source-1' reads was deleted and made anew") as told:
        setup.start(spark)
    assert setup.visible() == shown
    assert "new checkpointLocation" in str(told.value)
    if more == setup.count:  # the other way on that the hint names
        setup.options = {"failOnDataLoss": "false"}
        query = setup.start(spark)
        try:
            await_(query, setup, lambda: setup.visible() == shown + 2 * more - setup.count // 2)
        finally:
            query.stop()


def await_gone(broker: KafkaBroker, topic: str) -> None:
    """Deletion goes on after it has been answered."""
    admin = broker.admin()
    while topic in admin.list_topics(timeout=60).topics:
        pass

"""The job that judges itself, from a topic to a topic, as a reader sees it: of committed messages, or of ids."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from kafka_broker import KafkaBroker
from ledger_job import Run

import clonos
from clonos.kafka.repetitions import Repetitions
from clonos.sinks.kafka_ids import ID_HEADER

COLUMNS = (
    "a_key a_n id a_draw a_at a_prev a_hash bucket b_key b_n b_id b_draw b_at b_prev b_hash clonos_id".split()
)


class TopicWriter:
    """As `clonos.sources.LogWriter`, to a topic."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        # A broker that dies makes a client send again what it has, and the topic would have it twice.
        self._producer, self._topic = broker.producer(), topic

    def append(self, partition: int, content: bytes) -> None:
        self._producer.produce(self._topic, content, partition=partition)

    def flush(self) -> None:
        assert self._producer.flush(240) == 0

    def __enter__(self) -> TopicWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


class Follower:
    """Reads a topic as it grows, and keeps what it has seen in a table."""

    def __init__(self, broker: KafkaBroker, topic: str, level: str = "read_committed") -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.servers,
                "group.id": uuid.uuid4().hex,
                "isolation.level": level,
                "auto.offset.reset": "earliest",
                **broker.client,
            }
        )
        partitions = broker.admin().list_topics(topic, timeout=60).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        self._came = {each: Repetitions() for each in partitions}
        self.table = sqlite3.connect(":memory:")
        self.table.execute(f"create table out ({', '.join(COLUMNS)})")

    def look(self) -> None:
        """Take what has come."""
        while messages := self._consumer.consume(1000, 0.02):
            for message in messages:
                assert message.error() is None or message.error().retriable(), message.error()
                if message.error() is None:
                    message_id = dict(message.headers())[ID_HEADER].decode()
                    if not self._came[message.partition()].takes(message_id):
                        continue
                    row, row_id = json.loads(message.value()), message_id.rpartition("/")[2]
                    self.table.execute(
                        f"insert into out values ({', '.join('?' * len(COLUMNS))})",
                        [row_id if name == "clonos_id" else row[name] for name in COLUMNS],
                    )

    def close(self) -> None:
        self._consumer.close()


@dataclass
class KafkaRun(Run):
    """From one topic of the broker to another."""

    broker: Any = None
    options: Mapping[str, str] = field(default_factory=dict)  # of the source
    sink_mode: str = "transactions"
    sink_options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topics = self.broker.topic(), self.broker.topic()
        self._follower: Follower | None = None

    @property
    def source(self) -> Path:
        """There once `prepare` has run."""
        return self.base / "prepared"

    def prepare(self) -> None:
        super().prepare()
        self.source.mkdir()

    def writer(self) -> TopicWriter:
        return TopicWriter(self.broker, self.topics[0])

    def input(self, spark: Any) -> Any:
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.broker.servers)
        topics = {} if "subscribePattern" in self.options else {"subscribe": self.topics[0]}
        options = {**topics, "startingOffsets": "earliest", **self.options}
        return source.options(**options).load()

    def sink(self) -> Any:
        return clonos.sinks.kafka(
            self.broker.servers,
            topic=self.topics[1],
            key="a_key",
            patience=self.patience,
            mode=self.sink_mode,  # type: ignore[arg-type]
            options=self.sink_options,
        )

    def rows(self, columns: str = "count(*)") -> list[tuple[Any, ...]]:
        if self._follower is None:
            level = "read_committed" if self.sink_mode == "transactions" else "read_uncommitted"
            self._follower = Follower(self.broker, self.topics[1], level)
        self._follower.look()
        return self._follower.table.execute(f"select {columns} from out order by rowid").fetchall()

"""A cluster of Kafka, as a sink asks it (`kafka_port`). Clients are made where they are used, never before a fork."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from clonos.errors import ClonosError, SinkUnavailable
from clonos.sinks.kafka_port import WAIT_S, Message, Page
from clonos.sinks.kafka_sender import Sender
from clonos.sinks.kafka_transactions import TRANSACTION_TIMEOUT_MS, KafkaTransactions
from clonos.sinks.kafka_verdict import NO_CONNECTION, NO_TOPIC, verdict

LOG = logging.getLogger("clonos.kafka")
PAGE_BYTES: Final = 16 << 20
_KEPT_FOR_EVER: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class KafkaCluster:
    """See `Cluster`. `settings` are those of librdkafka."""

    def __init__(self, settings: Mapping[str, Any], patience: float) -> None:
        self._settings = {"log_level": 2, "logger": LOG, **settings, "error_cb": self._hear}
        self._refusal: Any = None  # that a connection met, while a request only timed out
        self._patience = patience
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None
        self._sender: Sender | None = None

    @property
    def _servers(self) -> str:
        return str(self._settings["bootstrap.servers"])

    def ensure_topic(self, topic: str, partitions: int) -> None:
        with self._told(f"the topic {topic}"):
            there = self._partitions(topic)
            if there == 0:
                made = NewTopic(topic, partitions, -1, config=dict(_KEPT_FOR_EVER))
                _result(self._admin_client().create_topics([made])[topic], KafkaError.TOPIC_ALREADY_EXISTS)
            elif there < partitions:
                grown = self._admin_client().create_partitions([NewPartitions(topic, partitions)])[topic]
                _result(grown, KafkaError.INVALID_PARTITIONS)
                self._producer = None  # it would not look for the new ones soon
            if there < partitions and self._partitions(topic) < partitions:
                raise SinkUnavailable(
                    f"the topic {topic} has been made, and its brokers have not heard of it yet"
                )

    def partitions(self, topic: str) -> int:
        with self._told(f"the topic {topic}"):
            return self._partitions(topic)

    def append(self, topic: str, partition: int, message: bytes) -> int:
        if self._producer is None:
            with self._told(topic):
                self._producer = Producer(
                    {**self._settings, "acks": "all", "linger.ms": 0}
                    | {"delivery.timeout.ms": int(WAIT_S * 1000)}
                )
        place, producer = f"partition {partition} of the topic {topic}", self._producer
        answers: list[tuple[Any, Any]] = []
        try:
            producer.produce(
                topic, message, partition=partition, on_delivery=lambda *answer: answers.append(answer)
            )
            deadline = time.monotonic() + 2 * WAIT_S
            while not answers and time.monotonic() < deadline:
                producer.poll(0.1)
            error = answers[0][0] if answers else KafkaError(KafkaError._TIMED_OUT)
        except KafkaException as failure:
            error = failure.args[0]
        if error is None:
            return int(answers[0][1].offset())
        self._producer = None  # so that nothing of it is under way when it is tried again
        if error.code() == KafkaError._UNKNOWN_PARTITION:
            raise SinkUnavailable(f"Kafka at {self._servers}, {place}: this client has not heard of it yet")
        raise self._verdict(error, place)

    def read(self, topic: str, partition: int, begin: int) -> Page:
        place = f"partition {partition} of the topic {topic}"
        with self._told(place):
            if self._partitions(topic) <= partition:
                return Page([])
            end = self._offset(topic, partition, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
            deadline = time.monotonic() + max(self._patience, WAIT_S)
            while self._offset(topic, partition, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED) < end:
                if time.monotonic() > deadline:
                    raise SinkUnavailable(f"Kafka at {self._servers}, {place}: a transaction stays open")
            first = self._offset(topic, partition, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
            if max(first, begin) >= end:
                return Page([])
            consumer = Consumer(
                {**self._settings, "group.id": "clonos-reader", "isolation.level": "read_committed"}
                | {"enable.partition.eof": True, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
                | {"fetch.wait.max.ms": 5}  # the end is known: there is nothing to wait for
            )
            try:
                consumer.assign([TopicPartition(topic, partition, max(first, begin))])
                return self._page(consumer, end, place)
            finally:
                consumer.close()

    def _page(self, consumer: Consumer, end: int, place: str) -> Page:
        messages: list[tuple[int, bytes]] = []
        size = 0
        while size < PAGE_BYTES:
            first = consumer.poll(WAIT_S)
            if first is None:
                raise SinkUnavailable(f"Kafka at {self._servers}, {place}: nothing comes for {WAIT_S:g} s")
            for message in [first, *consumer.consume(1000, 0)]:  # it would wait for as many as are asked for
                error = message.error()
                if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    continue  # it asks for its group, which nothing is made of here
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise self._verdict(error, place)
                if error is not None or message.offset() >= end:
                    return Page(messages)
                content = message.value() or b""
                messages.append((message.offset(), content))
                size += len(content)
        return Page(messages, messages[-1][0] + 1)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        with self._told(f"partition {partition} of the topic {topic}"):
            at = TopicPartition(topic, partition, offset)
            [deleted] = self._admin_client().delete_records([at]).values()
            _result(deleted, KafkaError.OFFSET_OUT_OF_RANGE)

    def transactions(self, identity: str, topic: str) -> KafkaTransactions:
        with self._told(f"the transactions of {identity}"):
            producer = Producer(
                {
                    "linger.ms": 0,
                    "partitioner": "murmur2_random",  # as Kafka's own client and Spark's
                    **self._settings,
                    "transactional.id": identity,
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "delivery.report.only.error": True,
                }
            )
            producer.list_topics(topic, timeout=WAIT_S)  # with a connection it need not wait for one
            producer.init_transactions(max(self._patience, WAIT_S))
        return KafkaTransactions(producer, self._servers)

    def send(self, messages: Sequence[Message]) -> None:
        if self._sender is None:
            self._sender = Sender(self._settings)
        try:
            self._sender.send(messages)
        except BaseException:
            self._sender = None  # so that nothing of it is under way when it is tried again
            raise

    def close(self) -> None:
        self._admin = self._producer = self._sender = None

    # ------------------------------------------------------------------ parts

    def _admin_client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self._settings)
        return self._admin

    def _partitions(self, topic: str) -> int:
        # Not by list_topics: where brokers create what is asked for, that would.
        asked = self._admin_client().describe_topics(TopicCollection([topic]), request_timeout=WAIT_S)
        try:
            return len(asked[topic].result(timeout=2 * WAIT_S).partitions)
        except KafkaException as error:
            if error.args[0].code() in NO_TOPIC:
                return 0
            raise

    def _offset(self, topic: str, partition: int, spec: OffsetSpec, level: IsolationLevel) -> int:
        asked = self._admin_client().list_offsets(
            {TopicPartition(topic, partition): spec}, isolation_level=level
        )
        [answer] = asked.values()
        return int(answer.result(timeout=2 * WAIT_S).offset)

    def _hear(self, error: Any) -> None:
        if error.code() in NO_CONNECTION:
            self._refusal = error

    @contextlib.contextmanager
    def _told(self, place: str) -> Iterator[None]:
        self._refusal = None
        try:
            yield
        except KafkaException as error:
            if self._admin is not None:
                self._admin.poll(0)  # what was heard meanwhile
            self._admin = None  # what it has heard of brokers may be why it failed
            raise self._verdict(self._refusal or error.args[0], place) from error
        except (BufferError, TimeoutError) as error:
            self._admin = None
            raise SinkUnavailable(f"Kafka at {self._servers}, {place}: {error}") from error

    def _verdict(self, error: Any, place: str) -> ClonosError:
        return verdict(error, f"Kafka at {self._servers}, {place}")


def _result(future: Any, passed_over: int) -> None:
    """Of an administrator's request; that it was done before is no failure."""
    try:
        future.result(timeout=2 * WAIT_S)
    except KafkaException as error:
        if error.args[0].code() != passed_over:
            raise

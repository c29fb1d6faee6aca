"""What a Kafka sink asks of a cluster, with Kafka's failures told apart.

Nothing here knows what the messages mean. What can pass by itself is `SinkUnavailable`; what waiting cannot mend is
`SinkError`, and nothing of it is visible then. Clients are made where they are used, and never before a fork.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

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

from clonos.errors import ClonosError, SinkError, SinkUnavailable

LOG = logging.getLogger("clonos.kafka")
WAIT_S: Final = 5.0
"""How long one request is waited for; the sink's patience asks again."""
PAGE_BYTES: Final = 16 << 20
TRANSACTION_TIMEOUT_MS: Final = 15_000
"""After so long the cluster ends the transaction of a writer that has stopped. Until then, or until its successor has
begun, readers of committed messages do not get past it."""

_KEPT_FOR_EVER: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_NOT_ALLOWED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})
_NO_TOPIC: Final = frozenset(
    {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}
)
_REFUSED: Final = frozenset(
    {
        KafkaError.INVALID_MSG,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_CONFIG,
    }
    | {KafkaError._INVALID_ARG, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, KafkaError.INVALID_RECORD}
)


@dataclass(frozen=True, slots=True)
class Message:
    """Of a user's topic; `row` is the id of the row, for errors."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    row: str


@dataclass(frozen=True, slots=True)
class Page:
    """Messages of a partition, each with its offset, and where the next page begins, if there is one."""

    messages: Sequence[tuple[int, bytes]]
    then: int | None = None


class Transactions(Protocol):
    """One incarnation of a transactional id: whatever held it before can commit nothing any more."""

    def commit(self, messages: Sequence[Message], topic: str, partition: int, entry: Sequence[bytes]) -> None:
        """All of it in one transaction. After SinkUnavailable it may have taken effect, and this is of no use any
        more; after SinkError it has not."""
        ...

    def close(self) -> None: ...


class Cluster(Protocol):
    """What a Kafka sink asks of a cluster. Every method raises SinkUnavailable and SinkError."""

    def ensure_topic(self, topic: str, partitions: int) -> None:
        """It is there and has so many partitions, or more; its messages are kept for ever."""
        ...

    def has_topic(self, topic: str) -> bool: ...

    def append(self, topic: str, partition: int, message: bytes) -> int:
        """Returns the offset. After SinkUnavailable it may come to lie there still, any time later."""
        ...

    def read(self, topic: str, partition: int, begin: int) -> Page:
        """Messages from the offset on, and of transactions only those of committed ones. All that were committed before
        this was asked for are there, here or in the pages that follow; none where there is no such partition."""
        ...

    def delete_before(self, topic: str, partition: int, offset: int) -> None: ...

    def transactions(self, identity: str, topic: str) -> Transactions:
        """Of a transactional id; see there. Returns when nothing of its predecessor is under way. `topic` is there."""
        ...

    def close(self) -> None: ...


class KafkaCluster:
    """See `Cluster`. `settings` are those of librdkafka."""

    def __init__(self, settings: Mapping[str, Any], patience: float) -> None:
        self._settings = {"log_level": 2, "logger": LOG, **settings}
        self._patience = patience
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None

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
            if there < partitions and self._partitions(topic) < partitions:
                raise SinkUnavailable(
                    f"the topic {topic} has been made, and its brokers have not heard of it yet"
                )

    def has_topic(self, topic: str) -> bool:
        with self._told(f"the topic {topic}"):
            return self._partitions(topic) > 0

    def append(self, topic: str, partition: int, message: bytes) -> int:
        if self._producer is None:
            with self._told(topic):
                self._producer = Producer(
                    {**self._settings, "acks": "all", "linger.ms": 0}
                    | {"delivery.timeout.ms": int(WAIT_S * 1000)}
                )
        answers: list[tuple[Any, Any]] = []
        with self._told(f"partition {partition} of the topic {topic}"):
            self._producer.produce(
                topic, message, partition=partition, on_delivery=lambda *answer: answers.append(answer)
            )
            deadline = time.monotonic() + 2 * WAIT_S
            while not answers and time.monotonic() < deadline:
                self._producer.poll(0.1)
        error = answers[0][0] if answers else KafkaError(KafkaError._TIMED_OUT)
        if error is not None:
            self._producer = None  # so that nothing of it is under way when it is tried again
            raise self._verdict(error, f"partition {partition} of the topic {topic}")
        return int(answers[0][1].offset())

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

    def close(self) -> None:
        self._admin = self._producer = None

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
            if error.args[0].code() in _NO_TOPIC:
                return 0
            raise

    def _offset(self, topic: str, partition: int, spec: OffsetSpec, level: IsolationLevel) -> int:
        asked = self._admin_client().list_offsets(
            {TopicPartition(topic, partition): spec}, isolation_level=level
        )
        [answer] = asked.values()
        return int(answer.result(timeout=2 * WAIT_S).offset)

    @contextlib.contextmanager
    def _told(self, place: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._verdict(error.args[0], place) from error
        except (BufferError, TimeoutError) as error:
            raise SinkUnavailable(f"Kafka at {self._servers}, {place}: {error}") from error

    def _verdict(self, error: Any, place: str) -> ClonosError:
        return verdict(error, f"Kafka at {self._servers}, {place}")


class KafkaTransactions:
    """See `Transactions`."""

    def __init__(self, producer: Producer, servers: str) -> None:
        self._producer: Producer | None = producer
        self._servers = servers
        self._failures: list[tuple[Any, str]] = []

    def commit(self, messages: Sequence[Message], topic: str, partition: int, entry: Sequence[bytes]) -> None:
        producer = self._producer
        if producer is None:
            raise SinkUnavailable("the producer of these transactions is gone")
        self._failures.clear()
        try:
            producer.begin_transaction()
            for each in messages:
                self._produce(producer, each)
            for part in entry:
                produce(producer, topic=topic, value=part, partition=partition)
            commit(producer)
        except KafkaException as error:
            raise self._failed(producer, error.args[0]) from error
        except SinkError:
            self._abort(producer)
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """An open transaction of it is ended by its successor, or when it has timed out."""
        self._producer = None

    def _produce(self, producer: Producer, message: Message) -> None:
        row = message.row

        def heard(error: Any, _: Any) -> None:
            self._failures.append((error, row))

        try:
            produce(
                producer,
                topic=message.topic,
                value=message.value,
                key=message.key,
                headers=message.headers,
                on_delivery=heard,
            )
        except KafkaException as error:
            if error.args[0].code() in _TOO_LARGE:
                raise _refused_row(row, error.args[0]) from error
            raise

    def _failed(self, producer: Producer, error: Any) -> ClonosError:
        """Of a transaction that did not end as it should; what of it is in doubt is SinkUnavailable."""
        if not error.txn_requires_abort() or not self._abort(producer):
            self.close()
            told = self._verdict(error, "a transaction")
            return told if error.code() in _NOT_ALLOWED else SinkUnavailable(told.message, hint=told.hint)
        for cause, row in self._failures:
            told = self._verdict(cause, f"row {row}")
            if cause.code() in _TOO_LARGE | _REFUSED:
                return _refused_row(row, cause)
            if isinstance(told, SinkError):
                return told
        return self._verdict(error, "a transaction")

    def _verdict(self, error: Any, place: str) -> ClonosError:
        return verdict(error, f"Kafka at {self._servers}, {place}")

    def _abort(self, producer: Producer) -> bool:
        """Whether it is known to have been aborted; if not, the producer is of no use any more."""
        try:
            producer.abort_transaction(WAIT_S)
        except KafkaException:
            self.close()
            return False
        return True


def produce(producer: Producer, **message: Any) -> None:
    """Into the client's queue, as soon as there is room."""
    while True:
        try:
            producer.produce(**message)
            return
        except BufferError:  # full: what waits in it goes out meanwhile
            producer.poll(0.1)


def commit(producer: Producer) -> None:
    """Of the transaction under way. Asking again for the same commit is safe."""
    deadline = time.monotonic() + 2 * TRANSACTION_TIMEOUT_MS / 1000
    while True:
        try:
            producer.commit_transaction(WAIT_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def verdict(error: Any, place: str) -> ClonosError:
    """What a KafkaError means for the sink."""
    code, text = error.code(), f"{place}: {error.str()}"
    if code in _NOT_ALLOWED:
        return SinkError(
            text,
            hint="The user whom the sink's options= name needs the right to write to the topic; to create, alter, read "
            "and write topics that begin with the sink's prefix=, and delete records of them; and to use transactional "
            "ids that begin so",
        )
    if code in _NO_TOPIC:
        return SinkError(
            text, hint="Create the topic; a Kafka sink does not. Nothing of this bundle is visible"
        )
    if code in _TOO_LARGE | _REFUSED:
        return SinkError(text)
    return SinkUnavailable(text)


def _refused_row(row: str, error: Any) -> SinkError:
    hint = "Nothing of its bundle is visible. "
    if error.code() in _TOO_LARGE:
        hint += "Let the topic take larger messages (max.message.bytes), and the sink's client too: "
        hint += "options={'message.max.bytes': ...}"
    return SinkError(f"row {row} cannot be written to Kafka: {error.str()}", hint=hint.strip())


def _result(future: Any, passed_over: int) -> None:
    """Of an administrator's request; that it was done before is no failure."""
    try:
        future.result(timeout=2 * WAIT_S)
    except KafkaException as error:
        if error.args[0].code() != passed_over:
            raise

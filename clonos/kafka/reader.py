"""A consumer of confluent-kafka that shows each row once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from clonos.errors import ConfigurationError, ReaderError
from clonos.kafka.repetitions import Repetitions
from clonos.sinks.kafka_ids import ID_HEADER

_OWN: Final = {
    "enable.auto.commit": "call commit(): what came before is kept with the offsets",
    "enable.auto.offset.store": "call commit(): what came before is kept with the offsets",
}
_Place = tuple[str, int]


class Reader:
    """Messages of topics, without those that came before.

    `settings`: those of librdkafka for a consumer, with `bootstrap.servers` and `group.id`. `topics`: names, or
    patterns that begin with "^".

        with clonos.kafka.Reader({"bootstrap.servers": "localhost:9092", "group.id": "mail"}, ["decisions"]) as reader:
            for message in reader:
                send(message.key(), message.value())
                reader.commit()

    `commit` keeps with each offset which messages came before (in the offset's metadata, some 10 bytes for each
    instance that writes to the partition), so that a reader of the same group that goes on there knows it. What was
    shown and not committed is shown again, as by any consumer. A message without the sink's id is shown as it is. To a
    group that begins in the middle of a topic, a repetition of a row from before that may be new, once.

    For a transaction of your own that takes in what you have read, `offsets()` is what `send_offsets_to_transaction`
    takes; `consumer` is the consumer behind it, for all else but `seek`. Not for several threads.
    """

    def __init__(self, settings: Mapping[str, Any], topics: Sequence[str]) -> None:
        for name in sorted(set(settings) & set(_OWN)):
            raise ConfigurationError(f"a Reader cannot be told {name}: {_OWN[name]}")
        if isinstance(topics, str):
            raise ConfigurationError("a Reader takes a list of topics", hint=f"Write [{topics!r}]")
        self.consumer = Consumer({**settings, "enable.auto.commit": False, "enable.auto.offset.store": False})
        self._came: dict[_Place, Repetitions] = {}
        self._next: dict[_Place, int] = {}
        self._given_up: set[_Place] = set()
        self._closed = False
        self.consumer.subscribe(
            list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def poll(self, timeout: float | None = None) -> Message | None:
        """The next message, or None after `timeout` seconds (None: wait). Raises ReaderError, LogCorrupt."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            with _told():
                message = self.consumer.poll(-1 if until is None else max(0.0, until - time.monotonic()))
            if message is None or self._shows(message):
                return message

    def consume(self, count: int, timeout: float) -> list[Message]:
        """Up to so many messages; fewer, perhaps none, after `timeout` seconds. Raises ReaderError, LogCorrupt."""
        with _told():
            messages = self.consumer.consume(count, timeout)
        return [message for message in messages if self._shows(message)]

    def __iter__(self) -> Iterator[Message]:
        while not self._closed:
            message = self.poll(1.0)
            if message is not None:
                yield message

    def offsets(self) -> list[TopicPartition]:
        """Behind the last message of each partition, and with it what came before."""
        return [
            TopicPartition(topic, partition, offset, self._came[topic, partition].packed())
            for (topic, partition), offset in sorted(self._next.items())
        ]

    def commit(self) -> None:
        """All that was shown. Raises ReaderError."""
        offsets = self.offsets()
        if not offsets:
            return
        with _told():
            answers = self.consumer.commit(offsets=offsets, asynchronous=False)
        for each in answers or ():
            if each.error is not None:
                raise _failed(each.error)

    def close(self) -> None:
        """Leave the group. May be called twice."""
        if not self._closed:
            self._closed = True
            self.consumer.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ parts

    def _shows(self, message: Message) -> bool:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return False
            raise _failed(error)
        place = (str(message.topic()), int(message.partition() or 0))
        came = self._came.get(place)
        if came is None and place in self._given_up:
            return False  # fetched before it went to another member, which shows it
        if came is None:
            raise ConfigurationError(
                f"partition {place[1]} of the topic {place[0]} was not assigned by the group",
                hint="Give topics to Reader(settings, topics); do not assign partitions to its consumer",
            )
        shows = came.takes(_id_of(message))
        self._next[place] = int(message.offset() or 0) + 1
        return shows

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Go on where the group has committed, with what came before that."""
        for each in consumer.committed(partitions, timeout=30):
            place = (each.topic, each.partition)
            self._next.pop(place, None)
            self._given_up.discard(place)
            self._came[place] = Repetitions.unpack(
                each.metadata or "", f"partition {each.partition} of the topic {each.topic}"
            )

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            place = (each.topic, each.partition)
            self._came.pop(place, None)
            self._next.pop(place, None)
            self._given_up.add(place)


def _id_of(message: Message) -> str | None:
    for name, content in message.headers() or ():
        if name == ID_HEADER and content is not None:
            return bytes(content).decode("ascii", "replace")
    return None


class _told:
    """What Kafka raises, as ReaderError."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KafkaException):
            raise _failed(error.args[0]) from error


def _failed(error: Any) -> ReaderError:
    hint = None
    if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
        hint = "So many instances write to one partition that what came before does not fit beside its offset. Let the "
        hint += "brokers take more (offset.metadata.max.bytes), or give each query a topic of its own"
    return ReaderError(f"Kafka: {error.str()}", hint=hint)

"""A consumer of confluent-kafka that shows each row once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from clonos.errors import ConfigurationError, LogCorrupt, ReaderError
from clonos.kafka.repetitions import Repetitions
from clonos.sinks.kafka_ids import ID_HEADER

_OWN: Final = {
    "enable.auto.commit": "call commit(): what came before is kept with the offsets",
    "enable.auto.offset.store": "call commit(): what came before is kept with the offsets",
}
_Place = tuple[str, int]
_COMMITTED_S: Final = 30.0


class Reader:
    """Messages of topics, without those that came before.

    `settings`: those of librdkafka for a consumer, with `bootstrap.servers` and `group.id`. `topics`: names, or
    patterns that begin with "^".

        with clonos.kafka.Reader({"bootstrap.servers": "localhost:9092", "group.id": "mail"}, ["decisions"]) as reader:
            for message in reader:
                send(message.key(), message.value())
                reader.commit()

    `commit` keeps with each offset which messages came before (in the offset's metadata, some 10 bytes for each
    pair of a sink instance and one before it), so that a reader of the same group that goes on there knows it. What was
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
        self._assigned_to_me: set[_Place] = set()
        self._given_up: set[_Place] = set()
        self._sought: dict[_Place, int] = {}
        self._held_back: Exception | None = None
        self._closed = False
        self.consumer.subscribe(
            list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def poll(self, timeout: float | None = None) -> Message | None:
        """The next message, or None after `timeout` seconds (None: wait). Raises ReaderError, LogCorrupt."""
        self._raise_held_back()
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            with _told():
                message = self.consumer.poll(-1 if until is None else max(0.0, until - time.monotonic()))
            if message is None or self._shows(message):
                return message

    def consume(self, count: int, timeout: float) -> list[Message]:
        """Up to so many messages; fewer, perhaps none, after `timeout` seconds. Raises ReaderError, LogCorrupt;
        what came beside an error is given first, and the error raised by the next call."""
        self._raise_held_back()
        with _told():
            messages = self.consumer.consume(count, timeout)
        shown = []
        for message in messages:
            try:
                if self._shows(message):
                    shown.append(message)
            except (ReaderError, LogCorrupt, ConfigurationError) as error:
                self._held_back = self._held_back or error
        if not shown:
            self._raise_held_back()
        return shown

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

    def _raise_held_back(self) -> None:
        error, self._held_back = self._held_back, None
        if error is not None:
            raise error

    def _shows(self, message: Message) -> bool:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return False
            raise _failed(error)
        place = (str(message.topic()), int(message.partition() or 0))
        if place in self._given_up:
            return False  # fetched before it went to another member, which shows it
        offset = int(message.offset() or 0)
        if place not in self._came:
            if offset > self._sought.get(place, offset):
                return False  # fetched before the position was set back: it comes again
            try:
                self._came[place] = self._came_before(place)
            except BaseException:
                self._sought[place] = offset
                self.consumer.seek(TopicPartition(*place, offset))
                raise
            self._sought.pop(place, None)
        shows = self._came[place].takes(_id_of(message))
        self._next[place] = offset + 1
        return shows

    def _came_before(self, place: _Place) -> Repetitions:
        """What the group has committed for a partition that it has assigned to this member."""
        where = f"partition {place[1]} of the topic {place[0]}"
        if place not in self._assigned_to_me:
            raise ConfigurationError(
                f"{where} was not assigned by the group",
                hint="Give topics to Reader(settings, topics); do not assign partitions to its consumer",
            )
        with _told():
            [found] = self.consumer.committed([TopicPartition(*place)], timeout=_COMMITTED_S)
        if found.error is not None:
            raise _failed(found.error)
        return Repetitions.unpack(found.metadata or "", where)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """What came before is looked up when a message comes: here an error would go lost."""
        for each in partitions:
            place = self._forgotten(each)
            self._given_up.discard(place)
            self._assigned_to_me.add(place)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            place = self._forgotten(each)
            self._assigned_to_me.discard(place)
            self._given_up.add(place)

    def _forgotten(self, partition: TopicPartition) -> _Place:
        """What is known of it begins anew."""
        place = (partition.topic, partition.partition)
        for known in (self._came, self._next, self._sought):
            known.pop(place, None)
        return place


def _id_of(message: Message) -> str | None:
    for name, content in message.headers() or ():
        if name == ID_HEADER and content is not None:
            return bytes(content).decode("ascii", "replace")
    return None


@contextmanager
def _told() -> Iterator[None]:
    """What Kafka raises, as ReaderError."""
    try:
        yield
    except KafkaException as error:
        raise _failed(error.args[0]) from error


def _failed(error: Any) -> ReaderError:
    hint = None
    if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
        hint = "So many instances write to one partition that what came before does not fit beside its offset. Let the "
        hint += "brokers take more (offset.metadata.max.bytes), or give each query a topic of its own"
    return ReaderError(f"Kafka: {error.str()}", hint=hint)

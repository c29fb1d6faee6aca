"""Rows and an entry of the sink's own topic, in one transaction of Kafka's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from clonos.errors import ClonosError, SinkError, SinkUnavailable
from clonos.sinks.kafka_port import WAIT_S, Message
from clonos.sinks.kafka_verdict import NO_CONNECTION, NOT_ALLOWED, TOO_LARGE, row_verdict, verdict

TRANSACTION_TIMEOUT_MS: Final = 15_000
"""After so long the cluster ends the transaction of a writer that has stopped. Until then, or until its successor has
begun, readers of committed messages do not get past it."""
_UNSEEN: Final = "Nothing of its bundle is visible."


class KafkaTransactions:
    """See `Transactions`."""

    def __init__(self, producer: Producer, servers: str) -> None:
        self._producer: Producer | None = producer
        self._servers = servers
        self._failures: list[tuple[Any, str]] = []
        self.aborted = 0

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
            if error.args[0].code() in TOO_LARGE:
                raise self._row_verdict(row, error.args[0]) from error
            raise

    def _failed(self, producer: Producer, error: Any) -> ClonosError:
        """Of a transaction that did not end as it should; what of it is in doubt is SinkUnavailable."""
        if not error.txn_requires_abort() or not self._abort(producer):
            self.close()
            told = self._verdict(error, "a transaction")
            return (
                told
                if error.code() in NOT_ALLOWED | NO_CONNECTION
                else SinkUnavailable(told.message, hint=told.hint)
            )
        for cause, row in self._failures:
            told = self._row_verdict(row, cause)
            if isinstance(told, SinkError):
                return told
        return self._verdict(error, "a transaction")

    def _verdict(self, error: Any, place: str) -> ClonosError:
        return verdict(error, f"Kafka at {self._servers}, {place}")

    def _row_verdict(self, row: str, error: KafkaError) -> ClonosError:
        return row_verdict(row, error, f"Kafka at {self._servers}", visible=_UNSEEN)

    def _abort(self, producer: Producer) -> bool:
        """Whether it is known to have been aborted; if not, the producer is of no use any more."""
        try:
            producer.abort_transaction(WAIT_S)
        except KafkaException:
            self.close()
            return False
        self.aborted += 1
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

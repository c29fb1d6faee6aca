"""Rows into a user's topic without a transaction: visible as soon as the brokers have them.

Readers pass over a message whose position is not above the last one of its channel. So in each partition, what has come
of a send that failed must be the first of its messages, without a gap: a row that is missing there would be passed over
when it comes again. librdkafka keeps that with `enable.gapless.guarantee`, unless a message times out; none does here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from clonos.errors import ClonosError, SinkUnavailable
from clonos.sinks.kafka_port import WAIT_S, Message
from clonos.sinks.kafka_transactions import produce
from clonos.sinks.kafka_verdict import TOO_LARGE, row_verdict, verdict

_ASKED_AFTER_FATAL: Final = 3
_SEEN: Final = "Other rows of its bundle may be visible; they are the same when they come again."


class Sender:
    """One producer. After an error of its `send` it is of no use any more: messages may be under way still."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._place = f"Kafka at {settings['bootstrap.servers']}"
        self._producer = Producer(
            {"linger.ms": 0, **settings, "acks": "all", "enable.idempotence": True}
            | {"enable.gapless.guarantee": True, "delivery.timeout.ms": 0}
            | {"delivery.report.only.error": True}
        )

    def send(self, messages: Sequence[Message]) -> None:
        """Until the brokers have all of them. Raises SinkUnavailable, SinkError."""
        failures: list[tuple[str, Any]] = []
        try:
            for each in messages:
                self._produce(each, failures)
            left = self._await(failures)
        except (KafkaException, KafkaError, SystemError) as error:
            self._hear()
            if not failures and isinstance(error, KafkaException):
                raise verdict(error.args[0], self._place) from error
            if not failures:
                raise SinkUnavailable(f"{self._place}: {error}") from error
        if failures:
            told = [row_verdict(row, error, self._place, visible=_SEEN) for row, error in failures]
            raise next((each for each in told if not isinstance(each, SinkUnavailable)), told[0])
        if left:
            raise SinkUnavailable(f"{self._place}: {left} rows have had no answer for {2 * WAIT_S:g} s")

    def _hear(self) -> None:
        """A fatal error is raised in the middle of what tells of rows: the rest of that."""
        for _ in range(_ASKED_AFTER_FATAL):
            with contextlib.suppress(KafkaException, KafkaError, SystemError):
                self._producer.flush(0.1)

    def _await(self, failures: list[tuple[str, Any]]) -> int:
        """How many have had no answer when there was none at all for a while."""
        left = len(self._producer)
        deadline = time.monotonic() + 2 * WAIT_S
        while (now := int(self._producer.flush(0.1))) and not failures and time.monotonic() < deadline:
            if now < left:
                left, deadline = now, time.monotonic() + 2 * WAIT_S
        if now:
            self._producer.purge()  # what was not sent yet, so that it does not come late
        return now

    def _produce(self, message: Message, failures: list[tuple[str, Any]]) -> None:
        row = message.row
        try:
            produce(
                self._producer,
                topic=message.topic,
                value=message.value,
                key=message.key,
                headers=message.headers,
                partition=-1 if message.partition is None else message.partition,
                on_delivery=lambda error, _: failures.append((row, error)),
            )
        except KafkaException as error:
            if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:  # of which a new client would know
                raise SinkUnavailable(
                    f"{self._place}, partition {message.partition}: not known yet"
                ) from error
            if error.args[0].code() in TOO_LARGE:
                refused: ClonosError = row_verdict(row, error.args[0], self._place, visible=_SEEN)
                raise refused from error
            raise

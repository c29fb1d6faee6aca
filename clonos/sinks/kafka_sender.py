"""Rows into a user's topic without a transaction: visible as soon as the brokers have them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from clonos.errors import ClonosError, SinkUnavailable
from clonos.sinks.kafka_port import Message
from clonos.sinks.kafka_transactions import produce
from clonos.sinks.kafka_verdict import TOO_LARGE, row_verdict, verdict

_WAIT_S: Final = 5.0
_SEEN: Final = "Other rows of its bundle may be visible; they are the same when they come again."


class Sender:
    """One producer. After an error of its `send` it is of no use any more: messages may be under way still."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._place = f"Kafka at {settings['bootstrap.servers']}"
        self._producer = Producer(
            {"linger.ms": 0, **settings, "acks": "all", "enable.idempotence": True}
            | {"delivery.timeout.ms": int(_WAIT_S * 1000), "delivery.report.only.error": True}
        )

    def send(self, messages: Sequence[Message]) -> None:
        """Until the brokers have all of them. Raises SinkUnavailable, SinkError."""
        failures: list[tuple[str, Any]] = []
        try:
            for each in messages:
                self._produce(each, failures)
            deadline = time.monotonic() + 2 * _WAIT_S
            while (left := self._producer.flush(0.1)) and not failures and time.monotonic() < deadline:
                pass
        except KafkaException as error:
            raise verdict(error.args[0], self._place) from error
        if failures:
            told = [row_verdict(row, error, self._place, visible=_SEEN) for row, error in failures]
            raise next((each for each in told if not isinstance(each, SinkUnavailable)), told[0])
        if left:
            raise SinkUnavailable(f"{self._place}: {left} rows have had no answer for {2 * _WAIT_S:g} s")

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

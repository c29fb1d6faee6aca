"""A topic as a sink that writes at once may leave it: rows of some channels, many of them more than once."""

from __future__ import annotations

import random
import uuid
from typing import Any

from kafka_broker import KafkaBroker

from clonos.sinks.kafka_ids import ID_HEADER


class RepeatedTopic:
    """`expected`: the ids that a reader shows, each once."""

    def __init__(self, broker: KafkaBroker, rows: int = 300, partitions: int = 2, seed: int = 1) -> None:
        self.broker, self.group = broker, uuid.uuid4().hex
        self.name = broker.topic(partitions=partitions)
        self.expected: list[str] = []
        self.sent = 0
        self._rng, self._partitions = random.Random(seed), partitions
        self._last: dict[tuple[int, int], int] = {}
        self.send(rows)

    def send(self, rows: int) -> None:
        producer = self.broker.producer()
        for _ in range(rows):
            partition, channel = self._rng.randrange(self._partitions), self._rng.randrange(3)
            last = self._last.get((partition, channel), 0)
            is_new = self._rng.random() < 0.7
            position = last + 2 if is_new else self._rng.randint(1, max(last, 1))
            message_id = f"q/5-{partition}/3-{channel}-{position}"
            if position > last:
                self._last[partition, channel] = position
                self.expected.append(message_id)
            producer.produce(
                self.name,
                message_id.encode(),
                headers={ID_HEADER: message_id, "b": b"\0\xff"},
                partition=partition,
                on_delivery=must_arrive,
            )
            self.sent += 1
        assert producer.flush(60) == 0

    def send_without_id(self, content: bytes) -> None:
        producer: Any = self.broker.producer()
        producer.produce(self.name, content, partition=0, on_delivery=must_arrive)
        self.expected.append(content.decode())
        assert producer.flush(60) == 0


def must_arrive(error: Any, _: Any) -> None:
    """For `on_delivery`: raises from the producer's `flush`."""
    assert error is None, str(error)

"""A topic of a real broker, a Kafka sink that writes to it, and what its reader sees."""

from __future__ import annotations

import json
from typing import Any

from kafka_broker import KafkaBroker, shown_once
from sink_child import make_sink
from sink_support import QUERY

from clonos.sinks.kafka_ids import ID_HEADER

UPTO = 60


class Place:
    """`spec`: for a writer in a process of its own. A topic with one partition has an order."""

    def __init__(
        self, broker: KafkaBroker, mode: str = "transactions", *, partitions: int = 1, **arguments: Any
    ) -> None:
        self.broker = broker
        self.topic = broker.topic(partitions=partitions)
        self.arguments = {"servers": broker.servers, "topic": self.topic, "prefix": f"{self.topic}-"}
        self.arguments |= {"mode": mode, "key": "card", "patience": 60, **arguments}
        self.spec: dict[str, Any] = {"sink": "kafka", "arguments": self.arguments, "upto": UPTO}
        self._is_ordered = partitions == 1
        self._ids = f"{QUERY}/5-0/" if mode == "at_once" else f"{QUERY}/"

    def sink(self, **arguments: Any) -> Any:
        return make_sink({"sink": "kafka", "arguments": {**self.arguments, **arguments}})

    def rows(self) -> list[tuple[Any, ...]]:
        """What a reader sees, of committed messages or of ids: in the topic's order, or if it has none, by number."""
        found = []
        for message in shown_once(self.broker.read(self.topic)):
            value = json.loads(message.value())
            key = message.key()
            assert key is None or key.decode() == value["card"]
            [(name, content)] = message.headers()
            assert name == ID_HEADER
            assert content.decode().startswith(self._ids)
            found.append((content.decode().removeprefix(self._ids), value["card"], value["n"]))
        return found if self._is_ordered else sorted(found, key=lambda row: int(row[0].rpartition("-")[2]))

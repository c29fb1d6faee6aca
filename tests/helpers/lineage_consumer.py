"""A consumer of OpenLineage's events over HTTP, at the path that Marquez has: what it was sent, and how it answers."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from posts import takes_posts


@dataclass
class Consumer:
    """`events` in the order in which they came; `keys` are what requests were authorized by. `status` is what it
    answers; where `answers` is not set, it does so when it is."""

    url: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    status: int = 201
    asked: threading.Event = field(default_factory=threading.Event)
    answers: threading.Event = field(default_factory=threading.Event)

    @property
    def types(self) -> list[str]:
        return [event["eventType"] for event in self.events]

    def facets(self, at: int = -1) -> dict[str, Any]:
        """Of the run, in one event."""
        found: dict[str, Any] = self.events[at]["run"]["facets"]
        return found

    def of(self, kind: str) -> dict[str, Any]:
        """The only event of a type."""
        (event,) = (event for event in self.events if event["eventType"] == kind)
        return event


@contextlib.contextmanager
def lineage_consumer(**given: Any) -> Iterator[Consumer]:
    consumer = Consumer(**given)
    consumer.answers.set()

    def take(path: str, headers: Mapping[str, str], body: bytes) -> int:
        consumer.asked.set()
        consumer.answers.wait()
        consumer.keys.add(headers.get("Authorization"))
        consumer.paths.add(path)
        if consumer.status < 400:
            consumer.events.append(json.loads(body))
        return consumer.status

    with takes_posts(take) as consumer.url:
        try:
            yield consumer
        finally:
            consumer.answers.set()

"""A consumer of OpenLineage's events over HTTP, at the path that Marquez has: what it was sent, and how it answers."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


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

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            consumer.asked.set()
            consumer.answers.wait()
            consumer.keys.add(self.headers.get("Authorization"))
            consumer.paths.add(self.path)
            if consumer.status < 400:
                consumer.events.append(json.loads(body))
            with contextlib.suppress(OSError):  # who has asked may not wait any more
                self.send_response(consumer.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            """Not on the test's standard error."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        consumer.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield consumer
        finally:
            consumer.answers.set()
            server.shutdown()
            thread.join()

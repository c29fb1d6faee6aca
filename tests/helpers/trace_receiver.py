"""A receiver of OpenTelemetry's traces, over gRPC or HTTP, as a collector has: what it was sent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import (
    trace_service_pb2 as messages,
    trace_service_pb2_grpc as service,
)
from posts import takes_posts


@dataclass
class Received:
    """`spans` in the order in which they came, each with the name of the service that it is of."""

    endpoint: str = ""
    spans: list[tuple[str, Any]] = field(default_factory=list)

    def take(self, request: Any) -> None:
        for resource in request.resource_spans:
            said = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(said["service.name"], span) for span in scope.spans]

    def traces(self) -> dict[bytes, list[Any]]:
        """The spans of each trace, by their beginning."""
        found: dict[bytes, list[Any]] = {}
        for _, span in self.spans:
            found.setdefault(span.trace_id, []).append(span)
        return {
            trace: sorted(spans, key=lambda span: span.start_time_unix_nano) for trace, spans in found.items()
        }


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


@contextlib.contextmanager
def over_grpc() -> Iterator[Received]:
    received = Received()

    class Servicer(service.TraceServiceServicer):  # type: ignore[misc]
        def Export(self, request: Any, context: Any) -> Any:
            received.take(request)
            return messages.ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    service.add_TraceServiceServicer_to_server(Servicer(), server)
    received.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield received
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def over_http() -> Iterator[Received]:
    received = Received()

    def take(path: str, headers: Mapping[str, str], body: bytes) -> int:
        assert path == "/v1/traces"
        received.take(messages.ExportTraceServiceRequest.FromString(body))
        return 200

    with takes_posts(take) as received.endpoint:
        yield received

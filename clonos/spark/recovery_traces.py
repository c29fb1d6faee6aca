"""Recoveries as traces of OpenTelemetry: one trace per recovery, a span per phase.

Made on the driver of what its servers tell of recoveries that are over, and sent by OpenTelemetry's own exporter, in
the background: a receiver that is away delays nothing, and its traces are lost. Nothing of the process's own
OpenTelemetry is used or changed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from clonos._version import __version__
from clonos.errors import ConfigurationError
from clonos.extras import installed, missing
from clonos.wire.server_status import ServersStatus
from clonos_standby.server.log import about
from clonos_standby.server.server_stats import NOTICE, REPLACE, kind_of, phases_of

LOG = logging.getLogger("clonos")

LOOK_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 5.0
_PACKAGES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.grpc")
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPANS: Final = {
    NOTICE: "notice the death",
    REPLACE: "choose a replacement",
    "fence": "raise the fence",
    "state": "restore state",
    "log": "fetch determinants",
    "function": "set up the function",
    "sink": "open the sink",
    "replay": "replay",
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where traces go. Without an endpoint of its own the exporter goes by OTEL_EXPORTER_OTLP_*."""

    endpoint: str = ""
    is_http: bool = False

    @classmethod
    def of(cls, setting: str, environment: Mapping[str, str] = os.environ) -> Target | None:
        """None where no traces are asked for: no setting, and no endpoint in the environment, or no exporter there.
        Raises ConfigurationError where the setting asks for them and the packages are missing."""
        is_there = all(map(installed, _PACKAGES))
        if setting:
            if not is_there:
                raise missing("opentelemetry", "spark.clonos.traces.endpoint")
            return cls(setting, is_http=urlsplit(setting).path not in ("", "/"))
        asked = any(environment.get(name) for name in _ENDPOINTS)
        if not is_there or not asked or environment.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
            return None
        said = next((environment[name] for name in _PROTOCOLS if environment.get(name)), "grpc")
        return cls(is_http=said.startswith("http"))

    def exporter(self) -> Any:
        if self.is_http:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

            return OverHttp(endpoint=self.endpoint or None)
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

        return OverGrpc(endpoint=self.endpoint or None)


def check_endpoint(text: str) -> str:
    """For the setting: `http://host:port` is a receiver over gRPC; with a path (`/v1/traces`), one over HTTP."""
    said = urlsplit(text.strip())
    if text.strip() and (said.scheme not in ("http", "https") or not said.hostname):
        raise ValueError(text)
    return text.strip()


class RecoveryTraces:
    """Of one query, from `start` to `stop`."""

    def __init__(
        self, target: Target, query: str, names: Mapping[int, str], status: Callable[[], ServersStatus]
    ) -> None:
        self._query, self._names, self._status = query, names, status
        self._told: set[tuple[float, int, int]] = set()
        self._provider = _provider(target)
        self._tracer = self._provider.get_tracer("clonos", __version__)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="clonos-traces", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is known by now is sent, if the receiver takes it soon. To be called while the servers still answer,
        or where they have not come up."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        flush = threading.Thread(target=self._provider.shutdown, name="clonos-traces-end", daemon=True)
        flush.start()
        flush.join(_FLUSH_SECONDS)  # a receiver that is away would be tried for longer

    def _watch(self) -> None:
        stops = False
        while not stops:
            stops = self._stopping.wait(LOOK_SECONDS)
            try:
                self._look(self._status())
            # A server that is just being started again, or a bug of no consequence
            except Exception as error:
                LOG.debug(
                    "recoveries cannot be looked at now: %s", error, extra=about("traces", query=self._query)
                )

    def _look(self, status: ServersStatus) -> None:
        found = {(each["at"], each["node"], each["instance"]): each for each in status["recoveries"]}
        for key, recovery in found.items():
            if key not in self._told:
                self._tell(recovery)
        self._told = set(found)  # servers keep the last few

    def _tell(self, recovery: Mapping[str, Any]) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context

        parts = list(spans(recovery))
        begin = min([began for _, began, _ in parts], default=recovery["at"] - recovery["ms"] / 1000)
        root = self._tracer.start_span(
            "recovery", Context(), start_time=_ns(begin), attributes=self._attributes(recovery)
        )
        within = trace.set_span_in_context(root, Context())
        for phase, began, ended in parts:
            span = self._tracer.start_span(_SPANS.get(phase, phase), within, start_time=_ns(began))
            span.end(end_time=_ns(ended))
        root.add_event("live", timestamp=_ns(recovery["at"]))
        root.end(end_time=_ns(recovery["at"]))

    def _attributes(self, recovery: Mapping[str, Any]) -> dict[str, Any]:
        node, death = recovery["node"], recovery.get("death") or {}
        said = {
            "clonos.query": self._query,
            "clonos.operator": self._names.get(node, str(node)),
            "clonos.instance": recovery["instance"],
            "clonos.epoch": recovery["epoch"],
            "clonos.fence": recovery.get("fence"),
            "clonos.recovery.kind": str(kind_of(recovery)),
            "clonos.determinants.bytes": recovery["repeated"],
            "clonos.records": recovery.get("records"),
            "clonos.resumed.bytes": recovery.get("resumed"),
            "clonos.death.kind": death.get("kind"),
            "process.pid": death.get("pid"),
        }
        return {name: value for name, value in said.items() if value is not None}


def spans(recovery: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Each phase with its beginning and end, in seconds since 1970. What the new process did ends when it was live;
    between that and its being chosen it loads what it is told of the query."""
    phases = phases_of(recovery)
    if NOTICE in phases:
        yield NOTICE, recovery["noticed_at"] - phases.pop(NOTICE), recovery["noticed_at"]
    if REPLACE in phases:
        yield REPLACE, recovery["replaced_at"] - phases.pop(REPLACE), recovery["replaced_at"]
    at = recovery["at"] - sum(phases.values())
    for phase, seconds in phases.items():
        yield phase, at, at + seconds
        at += seconds


def _provider(target: Target) -> Any:
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    said = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    named = bool(os.environ.get("OTEL_SERVICE_NAME")) or f"{SERVICE_NAME}=" in said
    resource = Resource.create({} if named else {SERVICE_NAME: "clonos"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    try:
        provider.add_span_processor(BatchSpanProcessor(target.exporter()))
    except ValueError as error:  # of what the environment says
        raise ConfigurationError(
            f"traces cannot be sent: {error}", hint="Correct OTEL_EXPORTER_OTLP_*"
        ) from None
    return provider


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)

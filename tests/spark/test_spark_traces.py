"""Traces of recoveries, as a real receiver of OpenTelemetry's gets them."""

from __future__ import annotations

import socket
import time
from typing import Any, cast

import pytest
from trace_receiver import Received, attributes, over_grpc, over_http

from clonos.errors import ConfigurationError
from clonos.spark import recovery_traces
from clonos.spark.recovery_traces import RecoveryTraces, Target
from clonos.spark.settings import read_settings
from clonos.wire.server_status import ServersStatus

AT = 1_700_000_000.0
REPLACED = {
    "at": AT,
    "node": 2,
    "instance": 1,
    "epoch": 7,
    "fresh": False,
    "promoted": False,
    "ms": 100.0,
    "phases": {"state": 50.0, "log": 20.0, "function": 10.0, "replay": 20.0},
    "repeated": 99,
    "records": 5,
    "resumed": None,
    "fence": "g1-a1-n2",
    "since_death_ms": 400.0,
    "death": {"kind": "signal", "pid": 77, "at": AT - 0.4},
    "noticed_at": AT - 0.3,
    "replaced_at": AT - 0.2,
}
ENVIRONMENT = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_SERVICE_NAME")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


def told(target: Target, *recoveries: dict[str, Any]) -> None:
    status = cast(ServersStatus, {"recoveries": list(recoveries)})
    traces = RecoveryTraces(target, "q", {2: "second"}, lambda: status)
    traces.start()
    traces.stop()


def told_by(received: Received, path: str = "") -> list[Any]:
    target = Target.of(received.endpoint + path)
    assert target is not None
    told(target, REPLACED)
    (spans,) = received.traces().values()
    assert {service for service, _ in received.spans} == {"clonos"}
    return spans


def milliseconds(span: Any) -> tuple[int, int]:
    """Beginning and end, before the instance was live."""
    moments = (span.start_time_unix_nano, span.end_time_unix_nano)
    begin, end = (round((moment / 1e9 - AT) * 1000) for moment in moments)
    return begin, end


def test_a_recovery_is_a_trace_whose_spans_are_its_phases() -> None:
    with over_grpc() as received:
        spans = told_by(received)
    (root,) = (span for span in spans if not span.parent_span_id)
    assert {span.parent_span_id for span in spans if span is not root} == {root.span_id}
    assert {span.name: milliseconds(span) for span in spans} == {
        "recovery": (-400, 0),
        "notice the death": (-400, -300),
        "choose a replacement": (-300, -200),
        "restore state": (-100, -50),
        "fetch determinants": (-50, -30),
        "set up the function": (-30, -20),
        "replay": (-20, 0),
    }
    assert [event.name for event in root.events] == ["live"]
    assert attributes(root) == {
        "clonos.query": "q",
        "clonos.operator": "second",
        "clonos.instance": 1,
        "clonos.epoch": 7,
        "clonos.fence": "g1-a1-n2",
        "clonos.recovery.kind": "replaced",
        "clonos.determinants.bytes": 99,
        "clonos.records": 5,
        "clonos.death.kind": "signal",
        "process.pid": 77,
    }


def test_a_path_means_http() -> None:
    with over_http() as received:
        assert len(told_by(received, "/v1/traces")) == 7


def test_each_recovery_is_told_once() -> None:
    with over_grpc() as received:
        other = {**REPLACED, "node": 3, "fresh": True, "phases": {"sink": 81.0, "replay": 0.0}}
        for name in ("death", "noticed_at", "replaced_at"):
            other.pop(name)
        status = cast(ServersStatus, {"recoveries": [REPLACED, other]})
        traces = RecoveryTraces(Target(received.endpoint), "q", {}, lambda: status)
        for _ in range(3):
            traces._look(status)
        traces.start()
        traces.stop()
    names = sorted(len(spans) for spans in received.traces().values())
    assert names == [3, 7]


@pytest.mark.parametrize(("protocol", "receiver"), [("grpc", over_grpc), ("http/protobuf", over_http)])
def test_the_usual_environment_is_enough(
    monkeypatch: pytest.MonkeyPatch, protocol: str, receiver: Any
) -> None:
    with receiver() as received:
        given = {"OTEL_EXPORTER_OTLP_ENDPOINT": received.endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        for name, value in {**given, "OTEL_SERVICE_NAME": "payments"}.items():
            monkeypatch.setenv(name, value)
        target = Target.of("")
        assert target is not None
        told(target, REPLACED)
        assert {service for service, _ in received.spans} == {"payments"}
    assert len(received.spans) == 7


def test_without_being_asked_for_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Target.of("", {}) is None
    asked = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317"}
    assert Target.of("", asked) == Target()
    assert Target.of("", {**asked, "OTEL_TRACES_EXPORTER": "none"}) is None
    monkeypatch.setattr(recovery_traces, "installed", lambda package: False)
    assert Target.of("", asked) is None, "the environment may be for other programs"
    with pytest.raises(ConfigurationError, match=r"clonos-spark\[otel\]"):
        Target.of("http://localhost:4317")


def test_the_setting() -> None:
    key = "spark.clonos.traces.endpoint"
    assert read_settings({}).traces_endpoint == ""
    assert read_settings({key: " https://collector:4317 "}).traces_endpoint == "https://collector:4317"
    for wrong in ("collector:4317", "grpc://collector", "http://"):
        with pytest.raises(ConfigurationError, match="/v1/traces"):
            read_settings({key: wrong})


def test_an_environment_that_says_nonsense_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with over_grpc() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
        target = Target.of("")
        assert target is not None
        with pytest.raises(ConfigurationError, match=r"soon.*Correct OTEL_EXPORTER_OTLP_\*"):
            told(target, REPLACED)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10")
        told(target, REPLACED)
    assert len(received.spans) == 7


def test_what_was_not_started_can_be_stopped() -> None:
    RecoveryTraces(Target("http://127.0.0.1:1"), "q", {}, lambda: cast(ServersStatus, {})).stop()


def test_a_receiver_that_is_away_holds_up_no_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and says nothing
        target = Target.of(f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert target is not None
        began = time.monotonic()
        told(target, REPLACED)
        assert time.monotonic() - began < 60

"""The metrics of a replica server, as a scraper sees them."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from services import Authority
from standby_conduit import PATIENCE, SPEC, Conduit, until

from clonos.errors import ConfigurationError
from clonos.protocol.ids import Origin
from clonos.spark.remote_servers import metrics_place
from clonos.spark.settings import read_settings
from clonos.wire.admin_messages import Done, ReportFailure
from clonos_standby.cluster.launcher import ReplicaServer
from clonos_standby.server import endpoint, running
from clonos_standby.server.endpoint import Endpoint
from clonos_standby.server.event_loop import Loop
from clonos_standby.server.metrics_place import MetricsPlace

QUERY = 'query="tests"'
NAME = 'the "first" \\ one'
SAMPLE = re.compile(r'clonos_\w+(\{\w+="(\\.|[^"\\])*"(,\w+="(\\.|[^"\\])*")*\})? -?[0-9.e+-]+')


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaServer]:
    data = tmp_path_factory.mktemp("data")
    spec = {**SPEC, "metrics": {}, "names": {1: NAME}}
    with ReplicaServer(spec, data, entry="standby_replica:main", determinants=False) as started:
        yield started


def address(server: ReplicaServer) -> str:
    """As an operator finds it."""
    found = running.read(server.data)
    assert found is not None and found.metrics is not None
    assert found.metrics == server.status()["metrics"]
    return found.metrics


def scrape(server: ReplicaServer) -> dict[str, float]:
    with urllib.request.urlopen(address(server), timeout=PATIENCE) as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = response.read().decode().splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert [line for line in samples if not SAMPLE.fullmatch(line)] == []
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in samples}


def test_a_scraper_sees_who_runs_who_died_and_how_long_it_took(server: ReplicaServer) -> None:
    quiet = scrape(server)
    assert (
        quiet[f"clonos_failover_seconds_count{{{QUERY}}}"]
        == quiet[f'clonos_deaths_total{{kind="oom",{QUERY}}}']
        == 0
    )
    assert quiet[f'clonos_failures_total{{error="DivergenceError",{QUERY}}}'] == 0
    with Conduit(server, epoch=5).welcome() as conduit:
        os.kill(conduit.ask("pid"), signal.SIGKILL)
        assert conduit.lost()
    server.commit(4, {})
    shown = NAME.replace("\\", r"\\").replace('"', r"\"")
    labels = f'operator="{shown}",operator_instance="0",{QUERY}'
    place = f"{{{labels}}}"
    with Conduit(server, epoch=5, fresh=False).welcome() as conduit:
        conduit.ask("pid")
        seen = until(lambda: (found := scrape(server)).get(f"clonos_records_total{place}") == 14 and found)
    assert seen[f"clonos_replica_up{place}"] == 1 and seen[f"clonos_epoch{place}"] == 5
    assert seen[f"clonos_log_bytes{place}"] == 1234 and seen[f"clonos_resident_bytes{place}"] > 1 << 20
    assert (
        seen[f"clonos_snapshots_total{place}"] == 2
        and seen[f"clonos_snapshot_seconds_total{place}"] == 0.5
        and seen[f"clonos_forced_checkpoints_total{place}"] == 2
    )
    assert (
        seen[f"clonos_output_bytes_total{place}"] == 1800 and seen[f"clonos_delta_bytes_total{place}"] == 60
    )
    assert seen[f"clonos_watermark_timestamp_seconds{place}"] == 1_700_000_000.25
    assert seen[f"clonos_dead_letters_total{place}"] == 2
    assert seen[f"clonos_bundle_seconds_sum{place}"] == 1.5
    upto = {
        le: seen[f'clonos_bundle_seconds_bucket{{le="{le}",{labels}}}']
        for le in ("0.002", "0.005", "10", "+Inf")
    }
    assert upto == {"0.002": 0, "0.005": 6, "10": 6, "+Inf": 8}
    sink = f'{QUERY},sink="{shown}"'
    assert seen[f"clonos_end_to_end_latency_seconds_sum{{{sink}}}"] == 5
    upto = {
        le: seen[f'clonos_end_to_end_latency_seconds_bucket{{le="{le}",{sink}}}']
        for le in ("0.01", "0.02", "60", "+Inf")
    }
    assert upto == {"0.01": 0, "0.02": 16, "60": 16, "+Inf": 20}
    busy, idle = (seen[f'clonos_replicas{{{QUERY},state="{state}"}}'] for state in ("busy", "idle"))
    assert (busy, idle) == (1, 0)
    assert seen[f"clonos_committed_epoch{{{QUERY}}}"] == 4
    assert sum(count for name, count in seen.items() if name.startswith("clonos_deaths_total")) == 1
    least = f'clonos_failover_seconds_bucket{{le="+Inf",{QUERY}}}'
    assert seen[f"clonos_failover_seconds_count{{{QUERY}}}"] == seen[least] == 1
    assert 0.012 <= seen[f"clonos_failover_seconds_sum{{{QUERY}}}"] < PATIENCE
    assert seen[f'clonos_recoveries_total{{kind="replaced",{QUERY}}}'] == 1
    assert seen[f"clonos_repeated_bytes_total{{{QUERY}}}"] == 99
    took = {
        phase: seen[f'clonos_recovery_phase_seconds_sum{{phase="{phase}",{QUERY}}}']
        for phase in ("notice", "replace", "state", "log", "function", "replay")
    }
    assert took["replay"] == 0.006 and took["notice"] >= 0 and took["replace"] > 0
    buckets = [count for name, count in seen.items() if name.startswith("clonos_failover_seconds_bucket")]
    assert buckets == sorted(buckets)


def test_failed_tasks_are_counted_by_their_error(server: ReplicaServer) -> None:
    for _ in range(2):
        report = ReportFailure(Origin.of(1, 0), generation=1, epoch=3, error="GapError", message="a gap")
        server._ask(report, Done)
    assert scrape(server)[f'clonos_failures_total{{error="GapError",{QUERY}}}'] == 2


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /metrics?a=b HTTP/1.0\r\n\r\n", b"200"),
        (b"\r\n\r\n", b"405"),
        (b"x" * 9000, b"400"),
    ],
)
def test_what_is_asked_wrongly_is_told(server: ReplicaServer, said: bytes, status: bytes) -> None:
    with caller(server) as sock:
        sock.sendall(said)
        assert sock.recv(12) == b"HTTP/1.1 " + status


def caller(server: ReplicaServer) -> socket.socket:
    port = int(address(server).removesuffix("/metrics").rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def test_a_silent_caller_holds_up_no_other(server: ReplicaServer) -> None:
    silent = [caller(server) for _ in range(5)]
    silent[0].sendall(b"GET /metr")
    assert scrape(server)[f"clonos_waiting{{{QUERY}}}"] == 0
    assert silent[0].recv(1) == b"", "it is dropped after a while"
    for sock in silent:
        sock.close()


def test_without_the_setting_there_are_none(tmp_path: Path) -> None:
    with ReplicaServer(SPEC, tmp_path, entry="standby_replica:main", determinants=False) as server:
        assert server.status()["metrics"] is None


def test_a_port_that_is_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "RETRY_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        loop = Loop()
        page = Endpoint(loop, MetricsPlace(port=port), lambda: "", "text/plain", lambda at: loop.stop())
        assert page.address is None
        loop.later(0.05, taken.close)
        loop.run()
    assert page.address == f"http://127.0.0.1:{port}/metrics"
    page.close()
    loop.close()


def test_the_setting() -> None:
    key = "spark.clonos.metrics.port"
    assert read_settings({}).metrics_port is None
    assert read_settings({key: "OFF"}).metrics_port is None
    assert (read_settings({key: "0"}).metrics_port, read_settings({key: "9100"}).metrics_port) == (0, 9100)
    for wrong in ("on", "-1", "70000", ""):
        with pytest.raises(ConfigurationError, match="off, or a port"):
            read_settings({key: wrong})


def get(url: str, token: str | None = None, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Status and text, as a scraper gets them."""
    asked = urllib.request.Request(url)  # a server of this test
    if token is not None:
        asked.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.headers["WWW-Authenticate"]


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_page_for_other_hosts_asks_for_its_token(tmp_path: Path, encrypted: bool) -> None:
    """At all addresses of this host, by its name."""
    (tmp_path / "token").write_text("secret\n")
    tls = Authority(tmp_path / "tls").issue("host", "DNS:localhost") if encrypted else None
    place = MetricsPlace.of("0.0.0.0", 0, str(tmp_path / "token"), tls, "the setting")
    spec = {**SPEC, "metrics": place.to_dict()}
    with ReplicaServer(spec, tmp_path / "data", entry="standby_replica:main", determinants=False) as server:
        scheme, port = re.fullmatch(r"(https?)://0\.0\.0\.0:(\d+)/metrics", address(server)).groups()  # type: ignore[union-attr]
        assert scheme == ("https" if encrypted else "http")
        url = f"{scheme}://localhost:{port}/metrics"
        context = ssl.create_default_context(cafile=tls.ca) if tls is not None else None
        silent = socket.create_connection(("localhost", int(port)))
        assert get(url, context=context) == get(url, "secre", context) == (401, "Bearer")
        status, text = get(url, "secret", context)
        silent.close()
    assert status == 200 and "clonos_replicas" in text


def test_a_page_that_others_reach_is_refused_without_a_token_until_that_is_said(tmp_path: Path) -> None:
    key = "spark.clonos.metrics"
    given = {f"{key}.port": "0", f"{key}.host": "0.0.0.0"}
    with pytest.raises(ConfigurationError, match="open to everyone") as refused:
        metrics_place(read_settings(given))
    (said,) = re.findall(r"say (\S+)=(\S+)", str(refused.value))
    assert metrics_place(read_settings({**given, said[0]: said[1]})) == MetricsPlace(host="0.0.0.0")
    (tmp_path / "token").write_text("secret")
    place = metrics_place(read_settings({**given, said[0]: str(tmp_path / "token")}))
    assert place is not None and place.token == "secret"
    assert metrics_place(read_settings({f"{key}.port": "9400"})) == MetricsPlace(port=9400)
    assert metrics_place(read_settings({})) is None
    with pytest.raises(ConfigurationError, match="cannot be read"):
        metrics_place(read_settings({**given, said[0]: str(tmp_path / "gone")}))


@pytest.mark.parametrize("said", [{"port": 70_000}, {"prot": 1}])
def test_a_place_that_is_none_is_refused(said: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="page of metrics"):
        MetricsPlace.from_dict(said)

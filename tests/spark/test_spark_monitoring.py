"""A real Prometheus reads the page of a real query whose replicas die, and evaluates the board and the alerts."""

from __future__ import annotations

import re
import socket
import urllib.parse
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from free_port import free_port
from monitoring import ALERTS, asked_for, documented, expressions
from prometheus_server import PrometheusServer, prometheus_server
from services import Authority
from streams import Place
from trace_receiver import attributes, over_grpc

from clonos import cli
from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = pytest.mark.spark

ROWS = 600
BEGUN = datetime(2026, 1, 1).timestamp()
"""Of event time, in the time zone of this process, which is the session's."""


def targets(port: int, token: Path, ca: str) -> dict[str, Any]:
    """A configuration as deploy/prometheus/scrape.yml shows it, but in a hurry."""
    return {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {
                "job_name": "clonos",
                "scheme": "https",
                "tls_config": {"ca_file": ca},
                "authorization": {"credentials_file": str(token)},
                "static_configs": [{"targets": [f"localhost:{port}"]}],
            }
        ],
    }


def test_prometheus_sees_a_query_at_work_recover_and_end(place: Place, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    tls = Authority(tmp_path / "tls").issue("host", "DNS:localhost")
    given = {"metrics.port": "0", "metrics.host": "0.0.0.0", "metrics.token.file": str(token)}
    for name, value in {**given, "tls.ca": tls.ca, "tls.cert": tls.cert, "tls.key": tls.key}.items():
        place.spark.conf.set(f"spark.clonos.{name}", value)
    mapped = place.causal("n long").map(lambda row, ctx: (row.n,), "n long", name="maps")
    place.write({"n": n} for n in range(ROWS))
    query = place.start(mapped)
    place.await_rows(ROWS)
    address = urllib.parse.urlparse(query.causal_status()["metrics"])
    assert address.port is not None
    with prometheus_server(targets(address.port, token, tls.ca)) as prometheus:
        place.until(lambda: prometheus.query("clonos_committed_epoch >= 0"), "Prometheus has the page")
        place.kill()
        place.write({"n": n} for n in range(ROWS))
        place.await_rows(2 * ROWS)
        place.until(lambda: prometheus.query('clonos_deaths_total{kind="signal"} >= 1'), "the death is seen")
        place.until(lambda: prometheus.query("sum(clonos_recoveries_total) >= 1"), "the recovery is seen")
        visible = f'sum(clonos_visible_rows_total{{operator="sink"}}) == {2 * ROWS}'
        place.until(lambda: prometheus.query(visible), "all rows are counted")
        latency = f'clonos_end_to_end_latency_seconds_count{{sink="sink"}} == {2 * ROWS}'
        place.until(lambda: prometheus.query(latency), "each row is counted once")
        check_names(prometheus)
        (rules,) = prometheus.ask("rules")["groups"]
        assert [each["lastError"] for each in rules["rules"] if each.get("lastError")] == []
        for each in expressions():
            prometheus.query(each)
        (bundle,) = prometheus.query('sum(clonos_bundle_seconds_count{operator="sink"})')
        assert int(bundle["value"][1]) >= 2
        place.stop()
        pending = 'ALERTS{alertname="ClonosPageMissing", alertstate="pending"}'
        place.until(lambda: prometheus.query(pending), "the end is seen")


def check_names(prometheus: PrometheusServer) -> None:
    """Prometheus knows the metrics that the page is said to have, by the types that the board and the alerts need."""
    known = prometheus.ask("metadata")
    # What the page of a service has beside that of its queries.
    here = {name for name in documented() if not name.startswith("clonos_service_")}
    assert here == known.keys() - {name for name in known if not name.startswith("clonos_")}
    there = {name for name in asked_for() if not name.startswith("clonos_service_")}
    kafka = {name for name in there if name.startswith("clonos_kafka_")}
    samples = set(prometheus.ask("label/__name__/values"))
    assert there - samples <= kafka | {"clonos_standby_follows", "clonos_watermark_timestamp_seconds"}


def test_a_second_server_has_the_next_port_and_the_promotion_of_a_standby_is_traced(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    port = two_free_ports()
    with over_grpc() as received:
        given = {"metrics.port": port, "standby": "hot", "traces.endpoint": received.endpoint}
        for name, value in given.items():
            place.spark.conf.set(f"spark.clonos.{name}", str(value))
        place.write({"n": n, "at": f"2026-01-01 00:00:{n % 60:02}"} for n in range(100))
        fault = Fault(point=Point.INPUT, strike=Strike.REPLICA, operator="maps", instance=0, after=20)
        timed = place.causal("n long, at timestamp").withWatermark("at", "1 second")
        mapped = timed.map(lambda row, ctx: (row.n,), "n long", name="maps")
        query = place.start(mapped, **{"clonos.faults": script(fault)})
        place.await_rows(100)
        assert cli.main(["status", str(place.checkpoint)]) == 0
        assert (
            f"metrics at http://127.0.0.1:{port}/metrics, http://127.0.0.1:{port + 1}/"
            in capsys.readouterr().out
        )
        place.until(lambda: 0 < watermark(port) - BEGUN < 60, "event time is told")
        status = query.causal_status()
        shown = [status["metrics"], *(other["metrics"] for other in status["others"])]
        assert shown == [f"http://127.0.0.1:{at}/metrics" for at in (port, port + 1)]
        place.stop()
        known = query.causal_status()
        assert known["deaths"] > 0 and known["recoveries"] and not known["replicas"] and not known["metrics"]
    roots = [attributes(span) for _, span in received.spans if not span.parent_span_id]
    assert {"promoted", "replaced"} & {
        root["clonos.recovery.kind"] for root in roots if root["clonos.operator"] == "maps"
    }
    assert all(root["clonos.fence"] for root in roots)
    assert {"choose a replacement", "replay"} <= {span.name for _, span in received.spans}


def watermark(port: int) -> float:
    """How far the first instance is, in seconds since 1970; 0 where that is not told yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        found = re.search(
            r'^clonos_watermark_timestamp_seconds\{.*"0".*\} (\S+)$', answer.read().decode(), re.M
        )
    return float(found[1]) if found else 0.0


def two_free_ports() -> int:
    """The first of two that are free now, one after the other."""
    while True:
        port = free_port()
        try:
            socket.create_server(("127.0.0.1", port + 1)).close()
            return port
        except OSError:
            continue

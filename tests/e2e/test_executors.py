"""Replica services that executors have of their own: the self-judging job on a standalone cluster, with hot standbys.

The services are children of executors, found by that. Each is on the host of its executor, so primaries are near their
tasks and standbys on the other host, although no service was started there by hand.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import ELSEWHERE, HERE, Cluster, children, command_line, several_hosts
from command_lines import processes_of
from driver import failed_tasks, until
from ledger_job import Run, assert_exact, await_, await_end, await_quarter, run, running
from modes import MODES
from services import Authority
from test_cluster import RESTARTS, job, kill_executor, kill_replicas, on

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not several_hosts(), reason="this system has one loopback address"),
]

ON_EXECUTORS = {"spark.clonos.replica.servers": "executors", "spark.pyspark.python": sys.executable}
GONE_SECONDS = 120.0


@pytest.fixture
def cluster(plugin_jar: Path, tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    with Cluster(folder) as running:
        yield running
    until(lambda: not processes_of(str(folder)), GONE_SECONDS, "no process of the cluster is left")


def services(cluster: Cluster, host: str) -> list[int]:
    """The service processes of the executors there."""
    return [
        pid
        for executor in cluster.workers[host].executors()
        for pid in children(executor)
        if b"clonos.cli" in command_line(pid)
    ]


def places(query: Any) -> set[str]:
    """The services where primaries or standbys of operators are; the driver's server aside."""
    return {one["place"] for one in query.replicas() if one["busy"] is not None and one["place"] is not None}


def pages_of_metrics(query: Any) -> int:
    """How many pages of metrics answer: the driver's server has one, and each service."""
    status = query.causal_status()
    urls = {server["metrics"] for server in (status, *status["others"]) if server["metrics"]}
    for url in urls:
        with urllib.request.urlopen(url, timeout=GONE_SECONDS) as answer:
            assert b"clonos_" in answer.read(), url
    return len(urls)


def await_there(query: Any, setup: Run, host: str) -> str:
    """The place of a service on that host, once it has replicas."""
    found: list[str] = []

    def look() -> bool:
        found.extend(place for place in places(query) if place.rpartition(":")[0] == host)
        return bool(found)

    await_(query, setup, look)
    return found[0]


def lose_executor(query: Any, setup: Run, cluster: Cluster, host: str) -> None:
    """Its service ends with it, and that of its successor has replicas."""
    place = await_there(query, setup, host)
    (lost,) = services(cluster, host)
    kill_executor(cluster, host)
    await_(query, setup, lambda: not command_line(lost))
    await_(query, setup, lambda: bool(services(cluster, host)))
    assert await_there(query, setup, host) == place


@pytest.mark.parametrize("mode", ["microbatch", pytest.param("realtime", marks=pytest.mark.soak)])
def test_every_executor_has_a_service_and_so_has_its_successor(
    cluster: Cluster, tmp_path: Path, mode: str
) -> None:
    metrics = {"spark.clonos.metrics.port": "0", "spark.clonos.metrics.host": "localhost"}
    with on(cluster, ON_EXECUTORS | metrics) as spark:
        setup = job(tmp_path, mode, feed_seconds=4.0, standby="hot")
        with running(spark, setup) as query:
            await_quarter(query, setup)
            assert [len(services(cluster, host)) for host in (HERE, ELSEWHERE)] == [1, 1]
            await_(query, setup, lambda: pages_of_metrics(query) >= 3)
            await_there(query, setup, ELSEWHERE)
            kill_replicas(query, setup, ((2, 0),))
            assert (query.restarts, failed_tasks(spark)) == ([], 0)
            lose_executor(query, setup, cluster, ELSEWHERE)
            await_end(query, setup)
    assert_exact(setup)
    # In micro-batch it takes one where a task that has just ended is lost before the standby has all of its log.
    assert len(query.restarts) <= max(RESTARTS[mode], 1)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_exact_through_the_loss_of_every_executor_and_service(
    cluster: Cluster, tmp_path: Path, mode: str
) -> None:
    with on(cluster, ON_EXECUTORS) as spark:
        setup = job(tmp_path, mode, feed_seconds=20.0, standby="hot")
        with running(spark, setup) as query:
            await_quarter(query, setup)
            for host in (ELSEWHERE, HERE):
                (lost,) = services(cluster, host)
                os.kill(lost, signal.SIGKILL)
                await_(query, setup, lambda host=host, lost=lost: services(cluster, host) not in ([], [lost]))
                kill_executor(cluster, host)
                await_(query, setup, lambda host=host: bool(services(cluster, host)))
            lose_executor(query, setup, cluster, ELSEWHERE)
            await_end(query, setup)
    assert_exact(setup)


@pytest.mark.soak
def test_executors_without_python_do_their_tasks(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with on(cluster, {**ON_EXECUTORS, "spark.pyspark.python": str(tmp_path / "python")}) as spark:
        setup = job(tmp_path, "microbatch", feed_seconds=1.0, standby="hot")
        with caplog.at_level(logging.WARNING):
            query = run(spark, setup)
        assert caplog.text.count("no replica service at executor") == 2
        assert "cannot be started" in caplog.text and "goes on without standbys" in caplog.text
        assert (query.restarts, failed_tasks(spark)) == ([], 0)
    assert_exact(setup)


@pytest.mark.soak
def test_over_tls(cluster: Cluster, tmp_path: Path) -> None:
    tls = Authority(tmp_path / "tls").issue("host", f"IP:{HERE}", f"IP:{ELSEWHERE}")
    files = {
        "spark.clonos.tls.ca": tls.ca,
        "spark.clonos.tls.cert": tls.cert,
        "spark.clonos.tls.key": tls.key,
    }
    with on(cluster, ON_EXECUTORS | files) as spark:
        setup = job(tmp_path, "realtime", standby="hot")
        with running(spark, setup) as query:
            await_quarter(query, setup)
            await_there(query, setup, ELSEWHERE)
            kill_replicas(query, setup)
            assert (query.restarts, failed_tasks(spark)) == ([], 0)
            await_end(query, setup)
    assert_exact(setup)

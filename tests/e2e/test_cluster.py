"""The self-judging job on a standalone cluster, through the loss of what a cluster can lose.

One worker is on the driver's host, the other one on another, as Spark and the library see it: conduits on the one reach
replicas by a Unix socket, those on the other over TCP.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sessions
from cluster import ELSEWHERE, HERE, SETTINGS, Cluster, executors, several_hosts, talks_over_tcp
from driver import failed_tasks, until
from ledger_job import Run, assert_exact, await_, await_end, await_quarter, await_told, running
from modes import MODES
from services import Authority, service

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not several_hosts(), reason="this system has one loopback address"),
]

TRIGGERS = {"microbatch": {"processingTime": "0 seconds"}, "realtime": {"realTime": "3 seconds"}}
EXECUTORS_SECONDS = 180.0
RESTARTS = {"microbatch": 0, "realtime": 2}  # of the query, at most, for the loss of an executor


@contextlib.contextmanager
def on(cluster: Cluster, settings: Mapping[str, str] = {}) -> Iterator[Any]:
    """A session with an executor on every host."""
    spark = sessions.session(cluster.url, {**SETTINGS, **settings})
    try:
        until(lambda: len(executors(spark)) == len(cluster.workers), EXECUTORS_SECONDS, "executors")
        yield spark
    finally:
        spark.stop()


@pytest.fixture
def cluster(plugin_jar: Path, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster") as running:
        yield running


def job(folder: Path, mode: str, *, feed_seconds: float = 4.0, **settings: str) -> Run:
    """It goes on, for something to be lost in the middle of it, and for Spark to get over it."""
    return Run(
        folder,
        mode=mode,
        count=900,
        feed_seconds=feed_seconds,
        trigger=TRIGGERS[mode],
        goes_on=True,
        settings=settings,
    )


def primaries(query: Any) -> dict[tuple[int, int], int]:
    """The replicas that are at work just now, and have been given records, by node and instance. Before that there is
    nothing to recover, which an instance whose task begins late may be although others have output."""
    found = [
        replica
        for replica in query.replicas()
        if replica["busy"] is not None and replica["records"] and not replica["standby"]
    ]
    return {(replica["node"], replica["instance"]): replica["pid"] for replica in found}


def kill_replicas(query: Any, setup: Run, places: tuple[tuple[int, int], ...] = ((2, 0), (3, 1))) -> None:
    """One after the other, each at work; until another process has recovered in its place."""
    for place in places:
        recoveries = len(query.causal_status()["recoveries"])
        struck: list[int] = []

        def strike(place: tuple[int, int] = place, struck: list[int] = struck) -> bool:
            struck += [pid for where, pid in primaries(query).items() if where == place]
            for pid in struck:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return bool(struck)

        await_(query, setup, strike)
        await_(query, setup, lambda seen=recoveries: len(query.causal_status()["recoveries"]) > seen)


def kill_executor(cluster: Cluster, host: str) -> None:
    for pid in cluster.workers[host].executors():
        os.kill(pid, signal.SIGKILL)


def kill_worker(cluster: Cluster, host: str) -> None:
    """Its executor ends by itself."""
    cluster.workers[host].kill()


def kill_host(cluster: Cluster, host: str) -> None:
    cluster.workers[host].end()


def test_a_query_on_two_hosts_survives_a_replica_and_an_executor(cluster: Cluster, tmp_path: Path) -> None:
    with on(cluster) as spark:
        setup = job(tmp_path, "realtime", feed_seconds=3.0)
        with running(spark, setup) as query:
            await_quarter(query, setup)
            for far in (True, False):
                await_(query, setup, lambda far=far: far in map(talks_over_tcp, primaries(query).values()))
            kill_replicas(query, setup, ((2, 0),))
            assert (query.restarts, failed_tasks(spark)) == ([], 0)
            kill_executor(cluster, ELSEWHERE)
            await_(query, setup, lambda: bool(query.restarts))
            await_end(query, setup)
    assert_exact(setup)
    assert len(query.restarts) <= 2


@pytest.mark.soak
@pytest.mark.parametrize("standby", ["none", "hot"])
@pytest.mark.parametrize("mode", MODES)
def test_a_lost_replica_costs_neither_a_task_nor_the_query(
    cluster: Cluster, tmp_path: Path, mode: str, standby: str
) -> None:
    with on(cluster) as spark:
        setup = job(tmp_path, mode, standby=standby)
        with running(spark, setup) as query:
            await_quarter(query, setup)
            kill_replicas(query, setup)
            assert (query.restarts, failed_tasks(spark)) == ([], 0)
            await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []


@pytest.mark.soak
@pytest.mark.parametrize("host", [HERE, ELSEWHERE])
@pytest.mark.parametrize("strike", [kill_executor, kill_worker, kill_host])
@pytest.mark.parametrize("mode", MODES)
def test_exact_through_the_loss_of(
    cluster: Cluster, tmp_path: Path, mode: str, strike: Callable[[Cluster, str], None], host: str
) -> None:
    """In micro-batches Spark runs again what was lost, with the shuffle files of the epoch; in real time the query."""
    with on(cluster) as spark:
        setup = job(tmp_path, mode, standby="hot")
        with running(spark, setup) as query:
            await_quarter(query, setup)
            await_(query, setup, lambda: bool(primaries(query)))
            strike(cluster, host)
            await_end(query, setup)
            if mode == "microbatch":  # docs/api.md: in real time a batch may lack a word
                await_told(query, setup)
    assert_exact(setup)
    assert len(query.restarts) <= RESTARTS[mode]


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_primaries_are_near_their_tasks_and_the_whole_host_may_be_lost(
    cluster: Cluster, tmp_path: Path, mode: str
) -> None:
    with on(cluster) as spark, service(tmp_path / "service", host=ELSEWHERE, lease=3.0) as where:
        setup = job(tmp_path, mode, standby="hot", **where.settings)
        with running(spark, setup) as query:
            await_quarter(query, setup)

            def places(*, standby: bool) -> set[str | None]:
                replicas = [
                    one for one in query.replicas() if one["busy"] is not None and one["node"] in (2, 3)
                ]
                return {one["place"] for one in replicas if one["standby"] is standby}

            await_(query, setup, lambda: places(standby=False) == {None, where.address})
            await_(query, setup, lambda: places(standby=True) == {None, where.address})
            kill_host(cluster, ELSEWHERE)
            where.kill()
            await_end(query, setup)
    assert_exact(setup)
    assert len(query.restarts) <= RESTARTS[mode]


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_over_tls_between_hosts(cluster: Cluster, tmp_path: Path, mode: str) -> None:
    tls = Authority(tmp_path / "tls").issue("host")
    files = {"tls.ca": tls.ca, "tls.cert": tls.cert, "tls.key": tls.key}
    with on(cluster) as spark:
        setup = job(tmp_path, mode, standby="hot", **files)
        with running(spark, setup) as query:
            await_quarter(query, setup)
            assert not any(map(talks_over_tcp, primaries(query).values()))  # TLS ends before them
            kill_replicas(query, setup)
            kill_executor(cluster, ELSEWHERE)
            await_end(query, setup)
    assert_exact(setup)

"""Standbys on a second server: what takes over, and that a reader of the sink sees no more than a pause."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, assert_exact, await_, await_end, await_quarter, await_told, running
from modes import mostly
from services import Authority, Service, service

from clonos.tools.live_query import find
from clonos.tools.status.describe import describe
from clonos.tools.status.text import render

pytestmark = pytest.mark.spark

STANDBYS = {"standby": "hot"}
STRIKES = 10


def roles(query: Any, node: int, instance: int) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The primary of an instance, and the standby that follows it."""
    mine = [r for r in query.replicas() if (r["node"], r["instance"]) == (node, instance)]
    primary = next((r for r in mine if not r["standby"] and r["busy"] is not None), None)
    standby = next((r for r in mine if r["follows"] and r["busy"] == (primary or {}).get("busy")), None)
    return primary, standby


def promotions(query: Any) -> int:
    return sum(recovery["promoted"] for recovery in query.causal_status()["recoveries"])


def until_promoted(
    query: Any,
    setup: Run,
    strike: Callable[[dict[str, Any], dict[str, Any]], None],
    after: int = 0,
    instances: Sequence[tuple[int, int]] = ((2, 0), (3, 1), (2, 1), (3, 0)),
) -> None:
    """Strike primaries that have a standby until one takes over: an epoch may just be ending, and its task with it."""

    def struck() -> bool:
        for node, instance in instances:
            primary, standby = roles(query, node, instance)
            if primary is not None and standby is not None:
                strike(primary, standby)
                return True
        return False

    for _ in range(STRIKES):
        await_(query, setup, struck)
        with contextlib.suppress(TimeoutError):
            await_(query, setup, lambda: promotions(query) > after, seconds=8.0)
            return
    await_(query, setup, lambda: promotions(query) > after)


def kill(primary: dict[str, Any], standby: dict[str, Any]) -> None:
    os.kill(primary["pid"], signal.SIGKILL)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_standby_takes_over(spark: Any, tmp_path: Path, mode: str) -> None:
    setup = Run(tmp_path, mode=mode, count=900, feed_seconds=2.0, goes_on=True, settings=STANDBYS)
    with running(spark, setup) as query:
        await_quarter(query, setup)
        until_promoted(query, setup, kill)
        said = render(describe(find(str(setup.checkpoint))), time.time())
        await_end(query, setup)
        told = [one.observedMetrics["clonos"].numStandbysPromoted for one in await_told(query, setup)]
        assert sum(told) >= 1
    assert_exact(setup)
    assert "server of standbys process" in said and " as a standby (" in said
    assert query.restarts == []


def test_a_passive_standby_takes_over(spark: Any, tmp_path: Path) -> None:
    """Snapshot after snapshot, so that it has begun again a few times before."""
    settings = {**STANDBYS, "standby": "passive", "snapshot.interval": "300ms"}
    setup = Run(tmp_path, mode="realtime", count=900, feed_seconds=2.0, goes_on=True, settings=settings)
    with running(spark, setup) as query:
        await_quarter(query, setup)
        until_promoted(query, setup, kill)
        seen = setup.visible()
        await_(query, setup, lambda: setup.visible() >= seen + 90)
        until_promoted(query, setup, kill, after=promotions(query))
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []


@pytest.mark.soak
def test_passive_standbys_in_short_epochs(spark: Any, tmp_path: Path) -> None:
    settings = {**STANDBYS, "standby": "passive"}
    setup = Run(tmp_path, mode="microbatch", count=900, feed_seconds=2.0, goes_on=True, settings=settings)
    with running(spark, setup) as query:
        await_quarter(query, setup)
        until_promoted(query, setup, kill)
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []


def test_a_stopped_primary_counts_as_lost_and_finds_itself_fenced(spark: Any, tmp_path: Path) -> None:
    stopped: list[int] = []

    def stop(primary: dict[str, Any], standby: dict[str, Any]) -> None:
        os.kill(primary["pid"], signal.SIGSTOP)
        stopped.append(primary["pid"])

    settings = {**STANDBYS, "replica.deadline": "3s"}
    setup = Run(tmp_path, mode="realtime", count=900, feed_seconds=2.0, goes_on=True, settings=settings)
    with running(spark, setup) as query:
        await_quarter(query, setup)
        until_promoted(query, setup, stop)
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []


def test_primary_and_standby_lost_at_once(spark: Any, tmp_path: Path) -> None:
    def kill_both(primary: dict[str, Any], standby: dict[str, Any]) -> None:
        for replica in (primary, standby):
            with contextlib.suppress(ProcessLookupError):
                os.kill(replica["pid"], signal.SIGKILL)

    setup = Run(tmp_path, mode="realtime", count=900, feed_seconds=2.0, goes_on=True, settings=STANDBYS)
    struck: list[int] = []
    with running(spark, setup) as query:
        await_quarter(query, setup)

        def strike() -> bool:
            for node in (2, 3):
                primary, standby = roles(query, node, 0)
                if node not in struck and primary is not None and standby is not None:
                    kill_both(primary, standby)
                    struck.append(node)
            return len(struck) == 2

        await_(query, setup, strike)
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []


def test_a_lost_server_costs_no_restart(spark: Any, tmp_path: Path) -> None:
    """All primaries on it at once; their standbys are on the other one."""
    setup = Run(tmp_path, mode="realtime", count=900, feed_seconds=2.0, goes_on=True, settings=STANDBYS)
    with running(spark, setup) as query:
        await_quarter(query, setup)
        await_(query, setup, lambda: all(None not in roles(query, node, 0) for node in (2, 3)))
        os.kill(query.causal_status()["pid"], signal.SIGKILL)
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []


def test_a_server_that_stands_still_costs_no_restart(spark: Any, tmp_path: Path) -> None:
    """It is not continued (SIGCONT) but killed and replaced, and standbys take over its instances meanwhile."""
    settings = {**STANDBYS, "replica.deadline": "2s"}
    setup = Run(tmp_path, mode="realtime", count=900, feed_seconds=2.0, goes_on=True, settings=settings)
    with running(spark, setup) as query:
        await_quarter(query, setup)
        await_(query, setup, lambda: all(None not in roles(query, node, 0) for node in (2, 3)))
        primary, _ = roles(query, 2, 0)
        stopped = query.causal_status()["pid"]
        os.kill(stopped, signal.SIGSTOP)
        if primary is not None:  # its epoch may just have ended
            with contextlib.suppress(ProcessLookupError):
                os.kill(primary["pid"], signal.SIGKILL)
        await_(query, setup, lambda: query.causal_status()["pid"] != stopped)
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []


def setup_of(folder: Path, where: Service, **settings: str) -> Run:
    return Run(
        folder,
        mode="realtime",
        count=900,
        feed_seconds=2.0,
        goes_on=True,
        settings={"standby": "hot", **where.settings, **settings},
    )


@pytest.mark.soak
def test_a_standby_on_a_named_server_takes_over(spark: Any, tmp_path: Path) -> None:
    with service(tmp_path / "service") as where:
        setup = setup_of(tmp_path, where)
        with running(spark, setup) as query:
            await_quarter(query, setup)
            until_promoted(query, setup, kill)
            elsewhere = [one for one in query.replicas() if one["place"] == where.address]
            await_end(query, setup)
        assert_exact(setup)
        assert elsewhere and query.restarts == []


def test_over_tls_the_query_survives_the_service_and_uses_it_again(spark: Any, tmp_path: Path) -> None:
    """The local primaries are killed, so that instances live on the named server; then that is lost as well."""
    tls = Authority(tmp_path / "tls").issue("host")
    files = {"tls.ca": tls.ca, "tls.cert": tls.cert, "tls.key": tls.key}
    with service(tmp_path / "service", tls=tls, lease=3.0) as where:
        setup = setup_of(tmp_path, where, **files)
        with running(spark, setup) as query:
            await_quarter(query, setup)
            until_promoted(query, setup, kill)
            where.kill()
            with service(tmp_path / "service", tls=tls, port=int(where.address.rpartition(":")[2])):
                await_(query, setup, lambda: any(one["place"] and one["follows"] for one in query.replicas()))
                said = render(describe(find(str(setup.checkpoint))), time.time())
                await_end(query, setup)
        assert_exact(setup)
        assert f" on {where.address}" in said, said
        assert query.restarts == []


@pytest.mark.soak
@pytest.mark.parametrize("how", ["kill", "end"])
def test_a_named_server_that_is_lost_for_good_is_done_without(spark: Any, tmp_path: Path, how: str) -> None:
    """Also by a later start of the query, which finds its logs with who is left."""
    with service(tmp_path / "service", lease=2.0) as where:
        setup = setup_of(tmp_path, where)
        with running(spark, setup) as query:
            await_quarter(query, setup)
            until_promoted(query, setup, kill)
            where.kill() if how == "kill" else where.end()
            seen = setup.visible()
            await_(query, setup, lambda: setup.visible() > seen)
            assert query.restarts == []
        with running(spark, setup) as query:
            await_end(query, setup)
            assert not [one for one in query.replicas() if one["place"]]
    assert_exact(setup)

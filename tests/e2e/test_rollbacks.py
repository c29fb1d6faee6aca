"""Recoveries that repeat nothing, alone and beside others, on real Spark in real time: exact whatever dies, and nothing
is seen too early."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from chaos import send, striking
from ledger_job import Run, assert_exact, await_, await_end, await_replica, running

pytestmark = pytest.mark.spark

EPOCH_SECONDS = 5
STRIKING_SECONDS = 60.0
SETTINGS = {"recovery.interval": "300ms", "restart.limit": "100"}
RECOVERIES = ("coordinated", "unaligned", "uncoordinated", "communication_induced", "eager", "event_log")
WITH_CAUSAL = {
    "causal, then eager": ("causal", None, "eager"),
    "eager, then causal": ("causal", "eager", None),
    "causal, then event log": ("event_log", "causal", None),
    "event log, then causal": ("causal", "event_log", None),
}
REPLACING = ("eager", "event_log", *WITH_CAUSAL)
MIXED = {
    "eager, then uncoordinated": ("uncoordinated", "eager", None),
    "uncoordinated, then eager": ("uncoordinated", None, "eager"),
    "eager, then batch": ("uncoordinated", "eager", "batch"),
    "event log, then uncoordinated": ("uncoordinated", "event_log", None),
    "uncoordinated, then event log": ("uncoordinated", None, "event_log"),
    "eager, then induced": ("communication_induced", "eager", None),
    "induced, then eager": ("communication_induced", None, "eager"),
    "induced, then event log": ("communication_induced", None, "event_log"),
    "induced, then batch": ("communication_induced", None, "batch"),
    "eager, then coordinated": ("coordinated", "eager", None),
    "coordinated, then eager": ("coordinated", None, "eager"),
    "event log, then unaligned": ("unaligned", "event_log", None),
    "unaligned, then event log": ("unaligned", None, "event_log"),
    **WITH_CAUSAL,
}
"""That of the query, and of the two operators where they have another one."""


def steady(base: Path, recovery: str, *, mode: str = "realtime") -> Run:
    whole, first, second = MIXED.get(recovery, (recovery, None, None))
    return Run(
        base,
        mode=mode,
        goes_on=True,
        trigger={"realTime": f"{EPOCH_SECONDS} seconds"} if mode == "realtime" else None,
        settings={**SETTINGS, "recovery": whole},
        first_recovery=first,
        second_recovery=second,
    )


@pytest.mark.parametrize(
    ("recovery", "mode"),
    [*((each, "realtime") for each in (*RECOVERIES, *MIXED)), ("batch", "realtime"), ("batch", "microbatch")],
)
def test_output_is_exact_although_processes_are_killed(
    spark: Any, tmp_path: Path, recovery: str, mode: str
) -> None:
    """Those of operators and of a sink, one after the other, each when more has been seen."""
    setup = steady(tmp_path, recovery, mode=mode)
    with running(spark, setup) as query:
        for place in [(2, 0), (3, 1), (4, 0), (2, 1)]:
            await_more(query, setup)
            send([await_replica(query, setup, *place)["pid"]], signal.SIGKILL)
        await_more(query, setup)
        await_end(query, setup)
    assert_exact(setup)
    if mode == "realtime":  # in micro-batch Spark runs a lost task again, unless it had ended
        assert bool(query.restarts) == (recovery not in REPLACING), (
            "all go back together, or a process is replaced"
        )


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
@pytest.mark.parametrize("recovery", (*RECOVERIES, *MIXED, "batch"))
@pytest.mark.parametrize("seed", range(20))
def test_minutes_of_random_strikes(spark: Any, tmp_path: Path, seed: int, recovery: str, mode: str) -> None:
    """Processes of operators and of the sink, and the replica server, killed or stopped for a while."""
    if mode == "microbatch" and recovery != "batch":
        pytest.skip("it is for real time")
    setup = steady(tmp_path, recovery, mode=mode)
    setup.settings["replica.deadline"] = "3s"
    with running(spark, setup) as query:
        with striking(query, seed) as chaos:
            until = time.monotonic() + STRIKING_SECONDS
            await_(query, setup, lambda: time.monotonic() > until, 2 * STRIKING_SECONDS)
        await_end(query, setup)
    assert_exact(setup)
    assert chaos.struck


def await_more(query: Any, setup: Run) -> None:
    seen = setup.visible()
    await_(query, setup, lambda: setup.visible() > seen)

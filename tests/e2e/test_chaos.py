"""Minutes of random strikes at a query with standbys: exact, and neither a task nor the query is restarted for them.

What is struck, how and when is drawn from a seed: primaries, standbys, both of an instance at once, and replica
servers, killed or stopped for a while.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, assert_exact, await_end, running
from modes import MODES

pytestmark = [pytest.mark.spark, pytest.mark.soak]

SECONDS = 300.0
RECORDS = 20_000
PAUSE = (0.5, 5.0)
SETTINGS = {"standby": "hot", "replica.deadline": "5s"}
LONGEST = 10.0
"""Seconds for which something is stopped: beyond the deadline it counts as lost."""


class Chaos:
    """Strikes one after the other until it is told to stop."""

    def __init__(self, query: Any, seed: int) -> None:
        self._query = query
        self._dice = random.Random(seed)
        self.struck: list[str] = []

    def run(self, over: threading.Event) -> None:
        while not over.wait(self._dice.uniform(*PAUSE)):
            what = self._dice.choice(("a primary", "a standby", "an instance", "an instance", "a server"))
            lasting = self._dice.choice((None, None, self._dice.uniform(0.2, LONGEST)))
            pids = self._pids(what)
            self.struck.append(f"{what}: {pids} {'killed' if lasting is None else 'stopped'}")
            with stopped(pids) if lasting is not None else contextlib.nullcontext():
                if lasting is None:
                    send(pids, signal.SIGKILL)
                else:
                    over.wait(lasting)

    def _pids(self, what: str) -> list[int]:
        status = self._query.causal_status()
        if what == "a server":
            return [self._dice.choice([status["pid"], *(other["pid"] for other in status["others"])])]
        replicas = status["replicas"]
        if what == "an instance":
            place = self._dice.choice([(2, 0), (2, 1), (3, 0), (3, 1), (4, 0)])
            return [r["pid"] for r in replicas if (r["node"], r["instance"]) == place]
        chosen = [r["pid"] for r in replicas if r["standby"] is (what == "a standby")]
        return [self._dice.choice(chosen)] if chosen else []  # just now there is no such process


@contextlib.contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    send(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        send(pids, signal.SIGCONT)


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_minutes_of_random_strikes(spark: Any, tmp_path: Path, mode: str, seed: int) -> None:
    setup = Run(
        tmp_path, mode=mode, count=RECORDS, feed_seconds=SECONDS, deadline=2 * SECONDS, settings=SETTINGS
    )
    over = threading.Event()
    with running(spark, setup) as query:
        chaos = Chaos(query, seed)
        thread = threading.Thread(target=chaos.run, args=(over,))
        thread.start()
        try:
            await_end(query, setup)
        finally:
            over.set()
            thread.join()
    assert_exact(setup)
    assert query.restarts == [], chaos.struck
    assert len(chaos.struck) > SECONDS / PAUSE[1] / 2

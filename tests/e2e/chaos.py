"""Random strikes at a running query, drawn from a seed.

Primaries, standbys, both of an instance at once, replica servers and, where there is one, the Kafka broker are killed,
or stopped for a while.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator
from typing import Any

PAUSE = (0.5, 5.0)
LONGEST = 10.0
"""Seconds for which something is stopped: beyond the deadline it counts as lost."""


class Chaos:
    """Strikes one after the other until it is told to stop."""

    def __init__(self, query: Any, seed: int, broker: Any = None) -> None:
        self._query = query
        self._broker = broker
        self._dice = random.Random(seed)
        self.struck: list[str] = []

    def run(self, over: threading.Event) -> None:
        while not over.wait(self._dice.uniform(*PAUSE)):
            what = self._dice.choice(
                ("a primary", "a standby", "an instance", "an instance", "a server", "the broker")
            )
            lasting = self._dice.choice((None, None, self._dice.uniform(0.2, LONGEST)))
            if what == "the broker":
                self._strike_broker(over, lasting)
                continue
            pids = self._pids(what)
            self.struck.append(f"{what}: {pids} {'killed' if lasting is None else 'stopped'}")
            with stopped(pids) if lasting is not None else contextlib.nullcontext():
                if lasting is None:
                    send(pids, signal.SIGKILL)
                else:
                    over.wait(lasting)

    def _strike_broker(self, over: threading.Event, lasting: float | None) -> None:
        if self._broker is None:
            return
        self.struck.append(f"the broker {'killed' if lasting is None else 'stopped'}")
        if lasting is None:
            self._broker.kill()
            self._broker.start()
        else:
            with stopped([self._broker.pid]):
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
def striking(query: Any, seed: int, broker: Any = None) -> Iterator[Chaos]:
    """Strikes at the query meanwhile."""
    over = threading.Event()
    chaos = Chaos(query, seed, broker)
    thread = threading.Thread(target=chaos.run, args=(over,))
    thread.start()
    try:
        yield chaos
    finally:
        over.set()
        thread.join()


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

"""Faults by seed, for as long as one likes: `make soak ARGS="tests/e2e -k points"`.

A failing case names its seed and what was done; the same seed draws the same faults.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_lines import processes_of
from driver import Driver, until
from ledger_job import Run, assert_exact, await_end, run, running
from modes import MODES

from clonos.errors import ClonosError
from clonos.sources.log_writer import LogWriter
from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = [pytest.mark.spark, pytest.mark.soak]

KILLS = int(os.environ.get("CLONOS_SOAK_KILLS", "2000"))
SEEDS = range(int(os.environ.get("CLONOS_SOAK_SEEDS", "20")))
OPERATORS = ("first", "second", "sink")
DEPTHS = ("full", "1")
EPOCHS = (None, 0, 1)


def draw_fault(dice: random.Random) -> Fault:
    """Any point that the operator has, any strike that the point has but the driver's."""
    operator = dice.choice(OPERATORS)
    points = set(Point)
    if operator == "sink":
        points -= {Point.OUTPUT}
    else:
        points -= {Point.BEFORE_COMMIT, Point.AFTER_COMMIT}
    point = dice.choice(sorted(points, key=lambda each: each.value))
    strikes = [Strike.REPLICA, Strike.TASK, Strike.STOP]
    if point is Point.BEFORE_SPARK_COMMIT:
        strikes = [Strike.REPLICA]
    by_count = point in (Point.INPUT, Point.OUTPUT, Point.BEFORE_COMMIT, Point.AFTER_COMMIT)
    return Fault(
        point=point,
        strike=dice.choice(strikes),
        operator=operator,
        instance=dice.choice((None, 0, 1)) if operator != "sink" else None,
        epoch=dice.choice(EPOCHS),
        after=dice.choice((0, 1, 20, 60, 120)) if by_count else 0,
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("seed", SEEDS)
def test_points(spark: Any, tmp_path: Path, mode: str, depth: str, seed: int) -> None:
    """One to three faults at scripted points. Not all fire: a recovery needs something to recover from."""
    dice = random.Random(f"points {mode} {depth} {seed}")
    faults = [draw_fault(dice) for _ in range(dice.choice((1, 2, 2, 3)))]
    print(f"seed {seed}:", *faults, sep="\n  ")
    setup = Run(
        tmp_path,
        mode=mode,
        faults=script(*faults),
        all_fire=False,
        settings={
            "sharing.depth": depth,
            "replica.deadline": "1500ms",
            "snapshot.interval": dice.choice(("10s", "200ms")),
        },
    )
    query = run(spark, setup)
    print("fired", setup.fired(), "restarts", query.restarts)
    assert_exact(setup)


@contextlib.contextmanager
def killer(query: Any, dice: random.Random, strikes: list[str]) -> Iterator[None]:
    """Strikes any process of the query at any time."""
    done = threading.Event()

    def strike() -> None:
        while not done.wait(dice.uniform(0.05, 1.2)):
            with contextlib.suppress(Exception):  # the server may be the one that is dead
                status = query.causal_status()
                victims = [("server", status["pid"]), ("determinants", status["grpc_pid"])]
                victims += [(f"{r['node']}/{r['instance']}", r["pid"]) for r in status["replicas"] * 2]
                victims += [("spare", pid) for pid in status["spares"]]
                name, pid = dice.choice(victims)
                number = dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV))
                if name in ("server", "determinants", "spare"):
                    number = signal.SIGKILL
                strikes.append(f"{time.time():.3f} {number.name} {name}")
                os.kill(pid, number)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("seed", SEEDS)
def test_any_process_at_any_time(spark: Any, tmp_path: Path, mode: str, depth: str, seed: int) -> None:
    dice = random.Random(f"processes {mode} {depth} {seed}")
    setup = Run(
        tmp_path,
        mode=mode,
        count=2000,
        feed_seconds=4.0,
        settings={
            "sharing.depth": depth,
            "replica.deadline": "1500ms",
            "snapshot.interval": dice.choice(("10s", "200ms")),
            "restart.limit": "100",
        },
        deadline=240.0,
    )
    strikes: list[str] = []
    try:
        with running(spark, setup) as query:
            with killer(query, dice, strikes):
                until(lambda: setup.appended >= setup.count or not query.isActive, setup.deadline, "input")
            await_end(query, setup)
    finally:
        print(f"seed {seed}:", *strikes, sep="\n  ")
    print("restarts", query.restarts)
    assert_exact(setup)


@pytest.mark.timeout(0)  # every wait in it has its own
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("standby", ("none", "hot"))
def test_kills_in_a_row(spark: Any, tmp_path: Path, mode: str, standby: str) -> None:
    """A quarter of CLONOS_SOAK_KILLS each: as soon as something more is visible, the next process is killed."""
    dice = random.Random(f"kills {mode} {standby}")
    setup = Run(
        tmp_path,
        mode=mode,
        goes_on=True,
        settings={"standby": standby, "restart.limit": "1000", "replica.attempts": "20"},
        deadline=240.0,
    )
    killed: list[str] = []
    with running(spark, setup) as query:
        while len(killed) < KILLS // 4:
            seen = setup.visible()
            until(lambda before=seen: setup.visible() > before or not query.isActive, 120, "progress")
            assert query.isActive, query.exception()
            with contextlib.suppress(ClonosError, OSError, ProcessLookupError):  # it may be dying already
                status = query.causal_status()
                if not status["replicas"]:  # the query is starting again
                    continue
                if dice.random() < 0.02:
                    name, pid = "server", status["pid"]
                else:
                    one = dice.choice(status["replicas"])
                    name, pid = f"{one['node']}/{one['instance']}", one["pid"]
                os.kill(pid, signal.SIGKILL)
                killed.append(name)
        await_end(query, setup)
    print(
        f"{len(killed)} kills, {killed.count('server')} of the server; {setup.count} records; restarts",
        query.restarts,
    )
    assert_exact(setup)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_driver_at_any_time(plugin_jar: Path, tmp_path: Path, mode: str, depth: str, seed: int) -> None:
    """Three drivers are killed, with or without the JVM, each some time after it has started; the fourth ends."""
    dice = random.Random(f"driver {mode} {depth} {seed}")
    temporary = Path(tempfile.mkdtemp(prefix="ct-", dir="/tmp"))
    setup = Run(
        tmp_path,
        mode=mode,
        count=3000,
        feed_seconds=20.0,
        settings={"sharing.depth": depth, "snapshot.interval": dice.choice(("10s", "200ms"))},
        deadline=240.0,
    )
    setup.prepare()
    stop = threading.Event()
    feeder = threading.Thread(target=setup.feed, args=(stop,))
    feeder.start()
    driver = None
    try:
        for _ in range(3):
            driver = Driver(setup, temporary)
            driver.await_start()
            time.sleep(dice.uniform(0.0, 5.0))
            driver.kill(jvm=dice.random() < 0.7)
            until(
                lambda: not processes_of(str(setup.checkpoint)), 30, "the end of every process of the query"
            )
        driver = Driver(setup, temporary)
        driver.await_start()
        stop.set()
        feeder.join()
        with LogWriter(setup.source, 2) as writer:
            setup.append(writer, setup.count)
        until(lambda: setup.visible() >= setup.count or not driver.alive, setup.deadline, "all rows")
        assert driver.stop()["error"] is None
    finally:
        stop.set()
        feeder.join()
        if driver is not None:
            driver.end()
        shutil.rmtree(temporary, ignore_errors=True)
    assert_exact(setup)

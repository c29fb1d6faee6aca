"""The driver is killed; another one continues from the checkpoint. All processes of the old one end meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from command_lines import processes_of
from driver import Driver, until
from ledger_job import LATER, SOON, Run, assert_exact
from modes import MODES, mostly

from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("plugin_jar")]

GONE_SECONDS = 120.0
TRIGGERS = {"microbatch": None, "realtime": {"realTime": "4 seconds"}}


def driver_struck(point: Point, operator: str, when: str = SOON, after: int = 0) -> Fault:
    return Fault(point=point, strike=Strike.DRIVER, operator=operator, asked=when, after=after)


def survive(setup: Run, temporary: Path, kills: int) -> None:
    """Drivers one after the other, the first `kills` of which are killed by the script."""
    setup.prepare()
    stop = threading.Event()
    feeder = threading.Thread(target=setup.feed, args=(stop,))
    feeder.start()
    driver = None
    try:
        for _ in range(kills):
            driver = Driver(setup, temporary)
            driver.wait(setup.deadline)
            await_end_of_all_processes(setup, temporary)
        assert len(setup.fired()) == kills
        driver = Driver(setup, temporary).await_start()
        until(lambda: setup.visible() >= setup.count or not driver.alive, setup.deadline, "all rows")
        ended = driver.stop()
        assert ended["error"] is None
        await_end_of_all_processes(setup, temporary)
    finally:
        stop.set()
        feeder.join()
        if driver is not None:
            driver.end()
    assert_exact(setup)


def await_end_of_all_processes(setup: Run, temporary: Path) -> None:
    until(
        lambda: not processes_of(str(setup.checkpoint)), GONE_SECONDS, "the end of every process of the query"
    )
    until(lambda: not list(temporary.glob("clonos-*")), GONE_SECONDS, "no socket directory left")


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_killed_driver_is_continued(tmp_path: Path, temporary: Path, mode: str) -> None:
    """In the middle of the first epoch, just after the sink has shown something."""
    fault = driver_struck(Point.AFTER_COMMIT, "sink", after=30)
    survive(Run(tmp_path, mode=mode, faults=script(fault), trigger=TRIGGERS[mode]), temporary, 1)


def test_a_killed_driver_is_continued_from_the_last_round(tmp_path: Path, temporary: Path) -> None:
    """With coordinated checkpoints, when a sink has shown some rounds."""
    fault = driver_struck(Point.AFTER_COMMIT, "sink", after=100)
    rounds = {"recovery": "coordinated", "recovery.interval": "300ms"}
    setup = Run(
        tmp_path, mode="realtime", faults=script(fault), trigger={"realTime": "6 seconds"}, settings=rounds
    )
    survive(setup, temporary, 1)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_with_logs_shared_one_hop(tmp_path: Path, temporary: Path, mode: str) -> None:
    """Between the snapshot of a later epoch and Spark's commit of it."""
    fault = driver_struck(Point.AFTER_SNAPSHOT, "second", LATER)
    one_hop = {"sharing.depth": "1"}
    survive(
        Run(tmp_path, mode=mode, faults=script(fault), trigger=TRIGGERS[mode], settings=one_hop), temporary, 1
    )

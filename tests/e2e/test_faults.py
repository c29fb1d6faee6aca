"""Every scripted fault point, on real Spark: exact, without a restart where only a replica was lost.

A test asserts that its faults have fired: one that never does proves nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, assert_exact, in_turns, run

from clonos.faults import Fault, Point, Strike, script

pytestmark = pytest.mark.spark


def fault(point: Point, strike: Strike, operator: str, epoch: int | None, after: int = 0) -> Fault:
    return Fault(point=point, strike=strike, operator=operator, epoch=epoch, after=after)


P, REPLICA, TASK, STOP = Point, Strike.REPLICA, Strike.TASK, Strike.STOP
SINGLE = [
    fault(P.INPUT, REPLICA, "first", 0, 30),
    fault(P.INPUT, REPLICA, "second", 1, 20),
    fault(P.INPUT, REPLICA, "sink", 0, 30),
    fault(P.INPUT, TASK, "first", 1, 20),
    fault(P.INPUT, TASK, "second", 0, 30),
    fault(P.INPUT, TASK, "sink", 1, 20),
    fault(P.OUTPUT, REPLICA, "first", 0, 30),
    fault(P.OUTPUT, REPLICA, "second", 1, 20),
    fault(P.OUTPUT, TASK, "first", 1, 20),
    fault(P.BEFORE_COMMIT, REPLICA, "sink", 0, 30),
    fault(P.BEFORE_COMMIT, TASK, "sink", 1),
    fault(P.AFTER_COMMIT, REPLICA, "sink", 1),
    fault(P.AFTER_COMMIT, TASK, "sink", 0, 30),
    fault(P.BEFORE_SNAPSHOT, REPLICA, "first", 1),
    fault(P.BEFORE_SNAPSHOT, TASK, "second", 0),
    fault(P.BEFORE_SNAPSHOT, REPLICA, "sink", 0),
    fault(P.AFTER_SNAPSHOT, REPLICA, "second", 0),
    fault(P.AFTER_SNAPSHOT, TASK, "first", 0),
    fault(P.AFTER_SNAPSHOT, TASK, "second", 1),
    fault(P.AFTER_SNAPSHOT, TASK, "sink", 0),
    fault(P.BEFORE_SPARK_COMMIT, REPLICA, "first", 0),
    fault(P.BEFORE_SPARK_COMMIT, REPLICA, "sink", 1),
]
PAIRS = [
    # killed during the replay, at the same record
    (fault(P.INPUT, REPLICA, "first", 0, 30), fault(P.INPUT, REPLICA, "first", 0, 30)),
    (fault(P.INPUT, REPLICA, "second", 1, 20), fault(P.RECOVERY, REPLICA, "second", 1)),
    (fault(P.INPUT, TASK, "second", 0, 30), fault(P.RECOVERY, TASK, "second", 0)),
    # two operators at once, and what one of them has handed on to the other
    (fault(P.AFTER_COMMIT, TASK, "sink", 1, 20), fault(P.INPUT, REPLICA, "first", 1, 30)),
    (fault(P.AFTER_SNAPSHOT, TASK, "second", 0), fault(P.OUTPUT, REPLICA, "first", 1, 20)),
]
SCRIPTS = [(one,) for one in SINGLE] + PAIRS


def name_of(faults: tuple[Fault, ...]) -> str:
    return "+".join(f"{f.point.value}-{f.strike.value}-{f.operator}-{f.epoch}" for f in faults)


@pytest.mark.parametrize(("faults", "mode"), in_turns(SCRIPTS, name_of))
def test_exact_through(spark: Any, tmp_path: Path, mode: str, faults: tuple[Fault, ...]) -> None:
    setup = Run(tmp_path, mode=mode, faults=script(*faults))
    query = run(spark, setup)
    assert len(setup.fired()) == len(faults)
    assert_exact(setup)
    if all(f.strike is REPLICA for f in faults):
        assert not query.restarts
        assert len(setup.deaths()) == len(faults)

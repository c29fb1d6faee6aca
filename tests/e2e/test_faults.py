"""Every scripted fault point, on real Spark: exact, without a restart where only a replica was lost.

A test asserts that its faults have fired: one that never does proves nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ledger_job import LATER, SOON, Run, assert_exact, fault, run
from modes import in_soak, in_turns

from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = pytest.mark.spark


P, REPLICA, TASK = Point, Strike.REPLICA, Strike.TASK
SINGLE = [  # each kind of strike in turns in both modes
    fault(P.INPUT, REPLICA, "first", SOON, 30),
    fault(P.INPUT, REPLICA, "sink", SOON, 30),
    fault(P.OUTPUT, REPLICA, "second", LATER, 20),
    fault(P.BEFORE_COMMIT, REPLICA, "sink", SOON, 30),
    fault(P.AFTER_COMMIT, REPLICA, "sink", LATER),
    fault(P.BEFORE_SNAPSHOT, REPLICA, "first", LATER),
    fault(P.BEFORE_SNAPSHOT, REPLICA, "sink", SOON),
    fault(P.AFTER_SNAPSHOT, REPLICA, "second", SOON),
    fault(P.BEFORE_SPARK_COMMIT, REPLICA, "first", SOON),
    fault(P.BEFORE_SPARK_COMMIT, REPLICA, "sink", LATER),
    fault(P.INPUT, TASK, "second", SOON, 30),
    fault(P.INPUT, TASK, "sink", LATER, 20),
    fault(P.OUTPUT, TASK, "first", LATER, 20),
    fault(P.BEFORE_COMMIT, TASK, "sink", LATER),
    fault(P.AFTER_COMMIT, TASK, "sink", SOON, 30),
    fault(P.BEFORE_SNAPSHOT, TASK, "second", SOON),
    fault(P.AFTER_SNAPSHOT, TASK, "first", SOON),
    fault(P.AFTER_SNAPSHOT, TASK, "sink", SOON),
]
PAIRS = [
    # killed during the replay, at the same record
    (fault(P.INPUT, REPLICA, "first", SOON, 30), fault(P.INPUT, REPLICA, "first", SOON, 30)),
    (fault(P.INPUT, REPLICA, "second", LATER, 20), fault(P.RECOVERY, REPLICA, "second", LATER)),
    (fault(P.INPUT, TASK, "second", SOON, 30), fault(P.RECOVERY, TASK, "second", SOON)),
    # two operators at once, and what one of them has handed on to the other
    (fault(P.AFTER_COMMIT, TASK, "sink", LATER, 20), fault(P.INPUT, REPLICA, "first", LATER, 30)),
    (fault(P.AFTER_SNAPSHOT, TASK, "second", SOON), fault(P.OUTPUT, REPLICA, "first", LATER, 20)),
]
SCRIPTS = [(one,) for one in SINGLE] + PAIRS
# The same points in the other operator, which is struck there in the same code: with the soak tests.
ALIKE = [
    fault(P.INPUT, REPLICA, "second", LATER, 20),
    fault(P.INPUT, TASK, "first", LATER, 20),
    fault(P.OUTPUT, REPLICA, "first", SOON, 30),
    fault(P.AFTER_SNAPSHOT, TASK, "second", LATER),
]


def name_of(faults: tuple[Fault, ...]) -> str:
    return "+".join(f"{f.point.value}-{f.strike.value}-{f.operator}-{f.asked or 'soon'}" for f in faults)


@pytest.mark.parametrize(
    ("faults", "mode"), in_turns(SCRIPTS, name_of) + in_soak([(one,) for one in ALIKE], name_of)
)
def test_exact_through(spark: Any, tmp_path: Path, mode: str, faults: tuple[Fault, ...]) -> None:
    setup = Run(tmp_path, mode=mode, faults=script(*faults))
    query = run(spark, setup)
    assert len(setup.fired()) == len(faults)
    assert_exact(setup)
    if all(f.strike is REPLICA for f in faults):
        assert not query.restarts
        # Not who was slow to answer
        killed = [death for death in setup.deaths() if death["kind"] == "signal"]
        assert len(killed) == len(faults)

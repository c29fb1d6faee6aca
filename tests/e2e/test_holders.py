"""Determinants survive at the instances and sinks that depend on them, which hand back what was lost between two runs.

A query is struck in the middle of an epoch, with output visible, and ends. Before it is started again a part of what
its host kept is removed, as if that host had been lost.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ledger_job import LATER, SOON, Run, assert_exact, await_, await_end, run, running
from modes import in_turns, mostly

from clonos.errors import FaultInjected, GapError
from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = pytest.mark.spark

FIRST, SECOND = 2, 3  # node numbers: the source is 1
ATTEMPTS = 4  # of a task, in this session


def struck(spark: Any, tmp_path: Path, mode: str, when: str, **settings: str) -> Run:
    """A run that has ended in the middle of an epoch, with some of its output visible."""
    faults = [Fault(point=Point.AFTER_COMMIT, strike=Strike.TASK, operator="sink", asked=when, after=20)]
    if mode == "microbatch":
        again = Fault(point=Point.RECOVERY, strike=Strike.TASK, operator="sink", asked=when)
        faults += [again] * (ATTEMPTS - 1)
    setup = Run(tmp_path, mode=mode, faults=script(*faults), settings={"restart.limit": "0", **settings})
    setup.prepare()
    with running(spark, setup) as query, pytest.raises(FaultInjected):
        await_(query, setup, lambda: False)
    assert 0 < setup.visible() < setup.count
    setup.faults = ""
    del setup.settings["restart.limit"]
    return setup


def lose(setup: Run, *nodes: int) -> None:
    """The log stores of whole operators; without any, everything that this host keeps."""
    for node in nodes:
        shutil.rmtree(setup.data / "logs" / str(node))
    if not nodes:
        shutil.rmtree(setup.data)


@pytest.mark.parametrize(("when", "mode"), in_turns([SOON, LATER]))
def test_downstream_hands_back_one_operators_logs(spark: Any, tmp_path: Path, mode: str, when: str) -> None:
    """One hop is enough where the next operator is still there."""
    setup = struck(spark, tmp_path, mode, when, **{"sharing.depth": "1"})
    lose(setup, FIRST)
    run(spark, setup)
    assert_exact(setup)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_the_sinks_log_hands_back_the_last_operators_logs(spark: Any, tmp_path: Path, mode: str) -> None:
    setup = struck(spark, tmp_path, mode, SOON, **{"sharing.depth": "1"})
    lose(setup, SECOND)
    run(spark, setup)
    assert_exact(setup)


@pytest.mark.parametrize(("when", "mode"), in_turns([LATER, SOON]))
def test_the_sinks_log_alone_is_enough(spark: Any, tmp_path: Path, mode: str, when: str) -> None:
    """Shared to the full depth, what the outside depends on is kept with the output."""
    setup = struck(spark, tmp_path, mode, when)
    lose(setup)
    run(spark, setup)
    assert_exact(setup)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_more_losses_than_the_depth_covers_stop_the_query(spark: Any, tmp_path: Path, mode: str) -> None:
    """It says whose determinants are missing, and shows nothing that could be wrong, be it that an instance on which
    nothing visible depends has gone on meanwhile; a choice lets it go on."""
    setup = struck(spark, tmp_path, mode, SOON, **{"sharing.depth": "1"})
    shown = setup.rows("*")
    lose(setup)
    with (
        running(spark, setup) as query,
        pytest.raises(GapError, match=r"operator 'first', instance [01], epoch [0-9]"),
    ):
        await_end(query, setup)
    assert not query.restarts
    assert setup.rows("*")[: len(shown)] == shown
    assert all(not (one.repeated or one.contradicted or one.unknown) for one in setup.judge())
    setup.settings["onGap"] = "at_least_once"
    with running(spark, setup) as query:
        await_(query, setup, lambda: len(inputs(setup)) == setup.count)
    assert set(inputs(setup)) == {str(i) for i in range(setup.count)}


def inputs(setup: Run) -> Counter[str]:
    """How often every input is visible."""
    return Counter(row[0] for row in setup.rows("id"))

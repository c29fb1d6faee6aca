"""Functions that know nothing of `ctx` are exact through kills, judged by the ledgers of the self-judging job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import unmodified
from ledger_job import LATER, SOON, Run, assert_exact, fault, run

from clonos.testing.faults import Point, Strike, script

pytestmark = pytest.mark.spark

KILLS = script(
    fault(Point.INPUT, Strike.REPLICA, "first", SOON, 50),
    fault(Point.OUTPUT, Strike.REPLICA, "second", SOON, 40),
    fault(Point.INPUT, Strike.REPLICA, "first", LATER, 20),
)


@pytest.mark.parametrize(
    ("mode", "standby"), [("microbatch", "none"), ("realtime", "none"), ("realtime", "hot")]
)
def test_unmodified_functions_are_exact_through_kills(
    spark: Any, tmp_path: Path, mode: str, standby: str
) -> None:
    setup = Run(
        tmp_path,
        mode,
        faults=KILLS,
        first=unmodified.first,
        second=unmodified.second,
        settings={"intercept": "true", "standby": standby},
    )
    query = run(spark, setup)
    assert_exact(setup)
    assert not query.restarts
    assert len(setup.fired()) == len(setup.deaths()) == 3
    draws = {draw for row in setup.rows("a_draw, b_draw") for draw in row}
    assert len(draws) == 2 * setup.count

"""Minutes of random strikes at a query with standbys: exact, and neither a task nor the query is restarted for them.

What is struck, how and when is drawn from a seed: primaries, standbys, both of an instance at once, and replica
servers, killed or stopped for a while.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chaos import PAUSE, striking
from ledger_job import Run, assert_exact, await_end, running
from modes import MODES

pytestmark = [pytest.mark.spark, pytest.mark.soak]

SECONDS = 300.0
RECORDS = 20_000
SETTINGS = {"standby": "hot", "replica.deadline": "5s"}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_minutes_of_random_strikes(spark: Any, tmp_path: Path, mode: str, seed: int) -> None:
    setup = Run(
        tmp_path, mode=mode, count=RECORDS, feed_seconds=SECONDS, deadline=2 * SECONDS, settings=SETTINGS
    )
    with running(spark, setup) as query, striking(query, seed) as chaos:
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == [], chaos.struck
    assert len(chaos.struck) > SECONDS / PAUSE[1] / 2

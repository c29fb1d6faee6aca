"""The sink of examples/own_sink.py in real queries whose processes are killed: exact, as Clonos' own sinks."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from ledger_job import LATER, SOON, Run, assert_exact, fault, run
from modes import in_turns
from own_sink import OwnSink

from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = pytest.mark.spark

COLUMNS = (
    "a_key a_n id a_draw a_at a_prev a_hash bucket b_key b_n b_id b_draw b_at b_prev b_hash clonos_id".split()
)
SCRIPTS = [
    (
        fault(Point.BEFORE_COMMIT, Strike.REPLICA, "sink", SOON, 30),
        fault(Point.AFTER_COMMIT, Strike.REPLICA, "sink", LATER),
    ),
    (
        fault(Point.AFTER_COMMIT, Strike.TASK, "sink", LATER, 20),
        fault(Point.INPUT, Strike.REPLICA, "first", LATER, 30),
    ),
]


class OwnRun(Run):
    """Writes JSON; what judges it reads columns."""

    def sink(self) -> Any:
        return OwnSink(self.database, patience=self.patience)

    def rows(self, columns: str = "count(*)") -> list[tuple[Any, ...]]:
        parts = ", ".join(f"json_extract(row, '$.{name}') AS {name}" for name in COLUMNS)
        with contextlib.closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            return connection.execute(
                f"SELECT {columns} FROM (SELECT {parts} FROM out ORDER BY rowid)"
            ).fetchall()


def name_of(faults: tuple[Fault, ...]) -> str:
    return "+".join(f"{f.point.value}-{f.strike.value}-{f.operator}" for f in faults)


@pytest.mark.parametrize(("faults", "mode"), in_turns(SCRIPTS, name_of))
def test_exact_through(spark: Any, tmp_path: Path, mode: str, faults: tuple[Fault, ...]) -> None:
    setup = OwnRun(tmp_path, mode=mode, faults=script(*faults))
    run(spark, setup)
    assert len(setup.fired()) == len(faults)
    assert_exact(setup)

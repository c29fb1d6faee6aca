"""The job that judges itself, into a Delta table: exact through every kind of kill."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from ledger_job import LATER, SOON, Run, assert_exact, await_quarter, fault, run, running
from modes import in_turns, mostly
from pyarrow.parquet import read_table

import clonos
from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = pytest.mark.spark

P, REPLICA, TASK = Point, Strike.REPLICA, Strike.TASK
SCRIPTS = [
    (fault(P.BEFORE_COMMIT, REPLICA, "sink", SOON, 30), fault(P.AFTER_COMMIT, REPLICA, "sink", LATER)),
    (fault(P.AFTER_COMMIT, TASK, "sink", LATER, 20), fault(P.INPUT, REPLICA, "first", LATER, 30)),
]


@dataclass
class DeltaRun(Run):
    """Reads the files that each version of the table has added."""

    def __post_init__(self) -> None:
        self._seen: set[str] = set()
        self._table = sqlite3.connect(":memory:")

    @property
    def path(self) -> Path:
        return self.base / "table"

    def sink(self) -> Any:
        return clonos.sinks.delta(self.path, patience=self.patience)

    def rows(self, columns: str = "count(*)") -> list[tuple[Any, ...]]:
        if not DeltaTable.is_deltatable(str(self.path)):
            return [(0,)]
        table = DeltaTable(self.path)
        names = [field.name for field in table.schema().fields]
        self._table.execute(f"create table if not exists out ({', '.join(names)})")
        for uri in sorted(set(table.file_uris()) - self._seen):
            self._seen.add(uri)
            found = read_table(uri).to_pylist()
            values = [
                [row[name].partition("/")[2] if name == "clonos_id" else row[name] for name in names]
                for row in found
            ]
            self._table.executemany(f"insert into out values ({', '.join('?' * len(names))})", values)
        return self._table.execute(f"select {columns} from out order by rowid").fetchall()


def name_of(faults: tuple[Fault, ...]) -> str:
    return "+".join(f"{f.point.value}-{f.strike.value}-{f.operator}" for f in faults)


@pytest.mark.parametrize(("faults", "mode"), in_turns(SCRIPTS, name_of))
def test_exact_through(spark: Any, tmp_path: Path, mode: str, faults: tuple[Fault, ...]) -> None:
    setup = DeltaRun(tmp_path, mode=mode, faults=script(*faults))
    run(spark, setup)
    assert len(setup.fired()) == len(faults)
    assert_exact(setup)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_exact_where_the_query_is_stopped_and_started_again(spark: Any, tmp_path: Path, mode: str) -> None:
    setup = DeltaRun(tmp_path, mode=mode)
    with running(spark, setup) as query:
        await_quarter(query, setup)
    run(spark, setup)
    assert_exact(setup)

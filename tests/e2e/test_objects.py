"""The job that judges itself, into an object store: exact through kills around a step."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ledger_job import LATER, SOON, Run, assert_exact, fault, run
from modes import mostly
from obstore.store import S3Store
from s3_server import S3Server

import clonos
from clonos.testing.faults import Point, Strike, script

pytestmark = [pytest.mark.spark, pytest.mark.s3]
P = Point


@dataclass
class ObjectsRun(Run):
    """Reads the objects that have come since it last looked."""

    store: S3Store = field(kw_only=True)
    bucket: str = field(kw_only=True)
    options: dict[str, Any] = field(kw_only=True)

    def __post_init__(self) -> None:
        self._seen = ""
        self._table = sqlite3.connect(":memory:")

    def sink(self) -> Any:
        return clonos.sinks.jsonl(f"s3://{self.bucket}/rows", options=self.options, patience=self.patience)

    def rows(self, columns: str = "count(*)") -> list[tuple[Any, ...]]:
        """Names rise as objects are written: only those behind the last one are new."""
        parts = [each["path"] for each in self.store.list(offset=self._seen or None).collect()]
        for path in sorted(each for each in parts if not each.startswith("_")):
            found = [json.loads(line) for line in bytes(self.store.get(path).bytes()).splitlines()]
            self._table.execute(f"create table if not exists out ({', '.join(found[0])})")
            values = [
                [each.partition("/")[2] if name == "clonos_id" else each for name, each in row.items()]
                for row in found
            ]
            self._table.executemany(f"insert into out values ({', '.join('?' * len(found[0]))})", values)
            self._seen = path
        if not self._seen:
            return [(0,)]
        return self._table.execute(f"select {columns} from out order by rowid").fetchall()


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_exact_through_kills_around_a_step(spark: Any, tmp_path: Path, mode: str, s3: S3Server) -> None:
    bucket = s3.fresh_bucket()
    faults = (
        fault(P.BEFORE_COMMIT, Strike.REPLICA, "sink", SOON, 30),
        fault(P.AFTER_COMMIT, Strike.TASK, "sink", LATER),
    )
    setup = ObjectsRun(
        tmp_path,
        mode=mode,
        faults=script(*faults),
        store=s3.store(bucket, "rows"),
        bucket=bucket,
        options=s3.options(),
    )
    run(spark, setup)
    assert len(setup.fired()) == len(faults)
    assert_exact(setup)

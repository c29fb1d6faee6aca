"""The job that judges itself, into a stream of a real Redis server: exact through every kind of kill."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ledger_job import LATER, SOON, Run, assert_exact, await_, await_end, await_quarter, fault, run, running
from modes import in_turns, mostly
from redis_server import RedisServer

import clonos
from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = [pytest.mark.spark, pytest.mark.redis]

TEXTS = "a_key id a_prev a_hash bucket b_key b_id b_prev b_hash clonos_id".split()
NUMBERS = "a_n a_draw a_at b_n b_draw b_at".split()
P, REPLICA, TASK = Point, Strike.REPLICA, Strike.TASK
SCRIPTS = [
    (fault(P.BEFORE_COMMIT, REPLICA, "sink", SOON, 30), fault(P.INPUT, REPLICA, "first", LATER, 30)),
    (fault(P.AFTER_COMMIT, REPLICA, "sink", LATER),),
    (fault(P.BEFORE_COMMIT, TASK, "sink", LATER),),
    (fault(P.AFTER_COMMIT, TASK, "sink", LATER, 20),),
]


@dataclass
class RedisRun(Run):
    """To a stream of its own."""

    server: Any = None

    def __post_init__(self) -> None:
        self.name = self.server.fresh_name()
        self._last = "-"
        self._seen = sqlite3.connect(":memory:")
        columns = [*(f"{name} text" for name in TEXTS), *(f"{name} integer" for name in NUMBERS)]
        self._seen.execute(f"create table out ({', '.join(columns)})")

    def sink(self) -> Any:
        return clonos.sinks.redis(self.server.url, self.name, patience=self.patience)

    def rows(self, columns: str = "count(*)") -> list[tuple[Any, ...]]:
        """Reads on where it has read up to."""
        names = [*TEXTS, *NUMBERS]
        with self.server.client(decode_responses=True) as client:
            for entry, fields in client.xrange(self.name, min=self._last):
                self._last = f"({entry}"
                fields["clonos_id"] = fields["clonos_id"].partition("/")[2]
                values = [fields[name] for name in names]
                self._seen.execute(
                    f"insert into out ({', '.join(names)}) values ({', '.join('?' * len(names))})", values
                )
        return self._seen.execute(f"select {columns} from out order by rowid").fetchall()


def name_of(faults: tuple[Fault, ...]) -> str:
    return "+".join(f"{f.point.value}-{f.strike.value}-{f.operator}" for f in faults)


@pytest.mark.parametrize(("faults", "mode"), in_turns(SCRIPTS, name_of))
def test_exact_through(
    spark: Any, tmp_path: Path, redis_of: Callable[..., RedisServer], mode: str, faults: tuple[Fault, ...]
) -> None:
    setup = RedisRun(tmp_path, mode=mode, faults=script(*faults), server=redis_of())
    run(spark, setup)
    assert len(setup.fired()) == len(faults)
    assert_exact(setup)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_exact_where_the_query_is_stopped_and_started_again(
    spark: Any, tmp_path: Path, redis_of: Callable[..., RedisServer], mode: str
) -> None:
    setup = RedisRun(tmp_path, mode=mode, server=redis_of())
    with running(spark, setup) as query:
        await_quarter(query, setup)
    run(spark, setup)
    assert_exact(setup)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_exact_through_the_deaths_of_the_server(
    spark: Any, tmp_path: Path, redis_servers: Any, mode: str
) -> None:
    with redis_servers() as mortal:
        setup = RedisRun(tmp_path, mode=mode, server=mortal, goes_on=True, patience=240.0, deadline=480.0)
        with running(spark, setup) as query:
            for _ in range(2):
                shown = setup.visible()
                await_(query, setup, lambda shown=shown: setup.visible() > shown + 100)
                mortal.kill()
                mortal.start()
            await_end(query, setup)
        assert_exact(setup)

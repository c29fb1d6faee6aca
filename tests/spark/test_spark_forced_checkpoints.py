"""Communication-induced checkpoints: rows force some, and what comes out is exact whatever dies."""

from __future__ import annotations

import zlib
from functools import partial
from itertools import count
from typing import Any

import pytest
from streams import Place

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
OUT = "k string, n long, total long"
FIRST = 2
"""The instance of the first operator that has the rows: its interval is the shortest of three, shorter than that of the
second operator's only instance. So it is ahead with its checkpoints, and its rows force some there."""
PLACES = ((2, FIRST), (3, 0))


def total(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["total"] = ctx.state.get("total", 0) + row.n
    yield row.k, row.n, ctx.state["total"]


def passed(key: Any, row: Any, ctx: Any) -> Any:
    yield row.k, row.n


def test_rows_force_checkpoints_and_come_out_once(place: Place) -> None:
    """A row forces one of an instance that has sent rows since its last: so there are three operators in a row."""
    place.spark.conf.set("spark.clonos.recovery", "communication_induced")
    place.spark.conf.set("spark.clonos.recovery.interval", "500ms")
    stream = place.causal(SCHEMA).groupBy("k").process(passed, SCHEMA, name="first", parallelism=3)
    stream = stream.groupBy("k").process(passed, SCHEMA, name="second", parallelism=1)
    stream = stream.groupBy("k").process(total, OUT, name="total", parallelism=1)
    query = place.writer(stream, "realtime").trigger(realTime="10 minutes").start()
    place.query = query
    key = next(name for each in count() if zlib.crc32((name := f"k{each}").encode()) % 3 == FIRST)
    sent = 0

    def forced() -> int:
        """By all processes so far."""
        return int(sum(replica["done"].get("forced_checkpoints", 0) for replica in query.replicas()))

    def are_more(seen: int, known: int) -> bool:
        """Rows and forced checkpoints, while rows keep coming."""
        nonlocal sent
        sent += 1
        place.write([{"k": key, "n": sent}])
        return len(place.rows()) > seen and forced() > known

    for where in PLACES:
        place.until(partial(are_more, len(place.rows()), forced()), "a forced checkpoint")
        place.kill_until_restart(*where)
    place.until(partial(are_more, len(place.rows()), forced()), "a forced checkpoint")
    rows = place.await_rows(sent)
    so_far = 0
    for n, row in enumerate(rows, 1):
        so_far += n
        assert (row["n"], row["total"]) == (n, so_far), "one key's rows stay in order, each once"

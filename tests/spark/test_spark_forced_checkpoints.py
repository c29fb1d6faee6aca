"""Communication-induced checkpoints: rows force some, and what comes out is exact whatever dies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from typing import Any

import pytest
from streams import Place

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
OUT = "k string, n long, total long"
KEYS = 5
ROWS = 20
OPERATORS = (2, 3, 4)


def total(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["total"] = ctx.state.get("total", 0) + row.n
    yield row.k, row.n, ctx.state["total"]


def passed(key: Any, row: Any, ctx: Any) -> Any:
    yield row.k, row.n


def numbered(numbers: Iterator[int]) -> list[dict[str, Any]]:
    return [{"k": f"k{n % KEYS}", "n": n} for n in islice(numbers, ROWS)]


def forced(query: Any) -> int:
    """By the processes that are there."""
    replicas = query.causal_status()["replicas"]
    return int(sum(replica["done"].get("forced_checkpoints", 0) for replica in replicas))


def test_rows_force_checkpoints_and_come_out_once(place: Place) -> None:
    """A row forces one of an instance that has sent rows since its last: so there are three operators in a row."""
    place.spark.conf.set("spark.clonos.recovery", "communication_induced")
    place.spark.conf.set("spark.clonos.recovery.interval", "200ms")
    stream = place.causal(SCHEMA)
    for name in ("first", "second"):
        stream = stream.groupBy("k").process(passed, SCHEMA, name=name)
    query = place.writer(stream.groupBy("k").process(total, OUT, name="total"), "realtime")
    place.query = query.trigger(realTime="10 minutes").start()
    numbers = count(1)
    sent = 0

    def is_forced() -> bool:
        nonlocal sent
        place.write(numbered(numbers))
        sent += ROWS
        place.await_rows(sent)
        return forced(place.query) > 0

    for node in OPERATORS:
        place.until(is_forced, "a forced checkpoint")
        restarts = len(place.query.restarts)
        place.kill(node, node % 2)
        place.until(partial(lambda before: len(place.query.restarts) > before, restarts), "the restart")
    place.until(is_forced, "a forced checkpoint")
    rows = place.rows()
    assert sorted(row["n"] for row in rows) == list(range(1, sent + 1)), "each once"
    for key in range(KEYS):
        so_far = 0
        for row in (row for row in rows if row["k"] == f"k{key}"):
            so_far += row["n"]
            assert row["total"] == so_far

"""Latency from end to end: each visible row counts once, from when it entered the query, whatever it went through."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from modes import MODES, mostly
from streams import Place

from clonos_standby.server.histogram import LATENCY, LATENCY_SECONDS, Histogram

pytestmark = pytest.mark.spark

MASTER = "local[16,4]"
HELD_SECONDS = 1.2


def held(base: Path) -> Callable[[Any, Any], tuple[int]]:
    """A function that does not come back from its first record until it may."""

    def hold(row: Any, ctx: Any) -> tuple[int]:
        (base / "reached").touch()
        while not (base / "go").exists():
            time.sleep(0.01)
        return (row.n,)

    return hold


def latency(place: Place) -> Histogram:
    """As the servers have it."""
    total = Histogram(LATENCY_SECONDS)
    for replica in place.query.causal_status()["replicas"]:
        total.add(Histogram.of(LATENCY_SECONDS, LATENCY, replica["done"]))
    return total


def at_most(place: Place, seconds: float) -> int:
    return round(dict(latency(place).buckets)[f"{seconds:g}"])


def count(place: Place) -> int:
    return round(dict(latency(place).buckets)["+Inf"])


@pytest.mark.parametrize("mode", MODES)
def test_a_row_keeps_its_time_through_operators_unions_and_recoveries(place: Place, mode: str) -> None:
    """The first is in the query for long before it may go on, and its replica is lost meanwhile."""
    began = time.monotonic()
    source = place.causal("n long", partitions=1)
    first = source.map(lambda row, ctx: (row.n,), "n long", name="first")
    slow = first.map(held(place.base), "n long", name="slow", parallelism=1)
    last = slow.union(slow.filter(lambda row, ctx: True, name="keep")).groupBy("n")
    place.start(last.process(lambda key, row, ctx: [(row.n,)], "n long", name="last"), mode)
    place.write(({"n": n} for n in range(10)), partitions=1)
    place.until(lambda: (place.base / "reached").exists(), "a record is held")
    time.sleep(HELD_SECONDS)
    place.kill(3)
    (place.base / "go").touch()
    place.await_rows(20)
    place.until(lambda: count(place) == 20, "all rows are counted")
    held_total = latency(place).sum
    assert at_most(place, 1.0) <= 18, "two rows are made of the first"
    assert 2 * HELD_SECONDS <= held_total <= 20 * (time.monotonic() - began)
    place.write(({"n": n} for n in range(100, 150)), partitions=1)
    place.await_rows(120)
    place.until(lambda: count(place) == 120, "all rows are counted")
    mean = (latency(place).sum - held_total) / 100
    assert 0 < mean < time.monotonic() - began


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_rows_of_timers_count_from_when_they_fire(place: Place, mode: str) -> None:
    """They are made of state: how long that is kept is the function's doing."""

    def wait(key: Any, row: Any, ctx: Any) -> list[Any]:
        ctx.timer(dt.timedelta(seconds=2), name="over")
        return []

    def fire(key: Any, timer: Any, ctx: Any) -> list[Any]:
        return [(key[0], ctx.now_us())]

    stream = place.causal("n long", partitions=1).groupBy("n")
    place.start(stream.process(wait, "n long, fired long", name="timed", on_timer=fire), mode)
    place.write([{"n": 1}], partitions=1)
    (row,) = place.await_rows(1)
    place.until(lambda: count(place) == 1, "the row is counted")
    assert 0 < latency(place).sum <= time.time() - row["fired"] / 1e6

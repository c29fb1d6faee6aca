"""The data directory is another one at a start: never while the former one alone knows what instances have done."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streams import Place

from clonos.errors import CheckpointMismatch

SCHEMA = "k string, n long"
SETTING = "spark.clonos.data"


@pytest.fixture
def place(spark: Any, tmp_path: Path) -> Iterator[Place]:
    place = Place(spark, tmp_path)
    yield place
    place.stop()
    spark.conf.unset(SETTING)


class Tells:
    """Counts records, and tells of each of them with a number that it draws."""

    def __init__(self, told: Path) -> None:
        self._told = str(told)

    def __call__(self, key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.effect(self._tell, ctx.state["n"], ctx.random.random(), key=str(ctx.state["n"]))
        yield key[0], ctx.state["n"]

    def _tell(self, n: int, drawn: float) -> None:
        with open(self._told, "a") as told:
            told.write(f"{n} {drawn}\n")


def told(place: Place) -> dict[str, set[str]]:
    """By the number of a record, what was told of it."""
    found: dict[str, set[str]] = {}
    for line in (place.base / "told").read_text().splitlines():
        n, drawn = line.split()
        found.setdefault(n, set()).add(drawn)
    return found


def stream(place: Place) -> Any:
    kept = place.causal(SCHEMA).groupBy("k")
    return kept.process(Tells(place.base / "told"), SCHEMA, name="tells", parallelism=1)


def begin(place: Place, data: Path, **trigger: str) -> None:
    place.stop()
    place.spark.conf.set(SETTING, str(data))
    place.query = place.writer(stream(place)).trigger(**trigger).start()


def leave_open(place: Place, data: Path) -> None:
    """Two rows are visible of an epoch that is not over."""
    begin(place, data, realTime="5 minutes")
    place.write([{"k": "a", "n": 0}] * 2)
    place.await_rows(2)
    place.stop()


def goes_on(place: Place) -> None:
    """Every record is counted once, and told of with one number, as far as somebody has been told."""
    assert [row["n"] for row in place.await_rows(4)] == [1, 2, 3, 4]
    assert {n: len(drawn) for n, drawn in told(place).items()} == dict.fromkeys("1234", 1)


def test_a_start_elsewhere_is_refused_while_an_epoch_is_open_and_the_hint_helps(place: Place) -> None:
    one, two = place.base / "one", place.base / "two"
    leave_open(place, one)
    with pytest.raises(
        CheckpointMismatch, match=r"kept its causal logs in .*one.*would keep them in .*two"
    ) as refused:
        begin(place, two, realTime="5 minutes")
    hinted = re.search(r"Start with spark\.clonos\.data=(\S+),", str(refused.value))
    assert hinted is not None and Path(hinted.group(1)) == one
    begin(place, Path(hinted.group(1)), processingTime="0 seconds")
    place.write([{"k": "a", "n": 0}] * 2)
    goes_on(place)
    place.query.processAllAvailable()
    place.await_commit()
    begin(place, two, realTime="5 minutes")  # no epoch is open
    place.write([{"k": "a", "n": 0}])
    place.await_rows(5)


def test_a_directory_that_was_moved_goes_on_where_it_is(place: Place) -> None:
    one, two = place.base / "one", place.base / "two"
    leave_open(place, one)
    with pytest.raises(CheckpointMismatch) as refused:
        begin(place, two, realTime="5 minutes")
    hinted = re.search(r"or move (\S+) to (\S+) first", str(refused.value))
    assert hinted is not None
    former, new = map(Path, hinted.groups())
    new.parent.mkdir()
    shutil.move(former, new)
    begin(place, two, realTime="5 minutes")
    place.write([{"k": "a", "n": 0}] * 2)
    goes_on(place)


def test_whoever_accepts_a_gap_may_leave_it(place: Place) -> None:
    leave_open(place, place.base / "one")
    place.spark.conf.set("spark.clonos.onGap", "at_least_once")
    try:
        begin(place, place.base / "two", realTime="5 minutes")
    finally:
        place.spark.conf.unset("spark.clonos.onGap")
    place.write([{"k": "a", "n": 0}] * 2)
    place.until(lambda: len(place.rows()) >= 4, "it goes on")

"""The data directory is another one at a start: never while the former one alone knows what instances have done."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streams import Place

from clonos.errors import CheckpointMismatch, Unauthenticated
from clonos.spark.coordinator import Coordinator

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


def begin(place: Place, data: Path | None, **trigger: str) -> None:
    """With the default directory where there is none."""
    place.stop()
    if data is None:
        place.spark.conf.unset(SETTING)
    else:
        place.spark.conf.set(SETTING, str(data))
    same = {"clonos.sameSource": "true"}  # where everything was copied
    place.query = place.writer(stream(place), **same).trigger(**trigger).start()


def leave_open(place: Place, data: Path | None) -> None:
    """Two rows are visible of an epoch that is not over."""
    begin(place, data, realTime="5 minutes")
    place.write([{"k": "a", "n": 0}] * 2)
    place.await_rows(2)
    place.stop()


def one_row_more(place: Place, data: Path) -> None:
    """Of the epoch that is still not over."""
    begin(place, data, realTime="5 minutes")
    place.write([{"k": "a", "n": 0}])
    place.await_rows(3)
    place.stop()


def copied(place: Place) -> Place:
    """The checkpoint, with a source, an output and an outside of its own."""
    copy = Place(place.spark, place.base / "copy")
    for name in ("checkpoint", "out", "in"):
        shutil.copytree(place.base / name, copy.base / name)
    shutil.copy(place.base / "told", copy.base / "told")
    return copy


def goes_on(place: Place) -> None:
    """Every record is counted once, and the effect, where it was done, had one number for it."""
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


def test_a_user_who_accepts_gaps_may_leave_the_former_logs(place: Place) -> None:
    leave_open(place, place.base / "one")
    place.spark.conf.set("spark.clonos.onGap", "at_least_once")
    try:
        begin(place, place.base / "two", realTime="5 minutes")
    finally:
        place.spark.conf.unset("spark.clonos.onGap")
    place.write([{"k": "a", "n": 0}] * 2)
    place.until(lambda: len(place.rows()) >= 4, "it goes on")


def test_the_default_directory_is_named_by_leaving_the_setting_out(place: Place) -> None:
    leave_open(place, None)
    with pytest.raises(CheckpointMismatch, match=r"Start without spark\.clonos\.data, or move"):
        begin(place, place.base / "two", realTime="5 minutes")
    begin(place, None, realTime="5 minutes")
    place.write([{"k": "a", "n": 0}] * 2)
    goes_on(place)


def test_a_copy_of_the_directory_is_as_good_until_more_is_recorded(place: Place) -> None:
    one, two = place.base / "one", place.base / "two"
    leave_open(place, one)
    shutil.copytree(one, two)
    one_row_more(place, one)
    with pytest.raises(CheckpointMismatch, match="kept its causal logs in"):
        begin(place, two, realTime="5 minutes")
    shutil.rmtree(two)
    shutil.copytree(one, two)
    begin(place, two, realTime="5 minutes")
    place.write([{"k": "a", "n": 0}])
    goes_on(place)


def test_a_directory_may_be_named_by_a_link(place: Place) -> None:
    leave_open(place, place.base / "one")
    (place.base / "link").symlink_to(place.base / "one")
    begin(place, place.base / "link", realTime="5 minutes")
    place.write([{"k": "a", "n": 0}] * 2)
    goes_on(place)


def test_a_host_that_comes_back_under_another_name_has_its_directory_still(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(platform, "node", lambda: "pod-1")
        leave_open(place, place.base / "one")
    with pytest.raises(CheckpointMismatch, match="kept its causal logs in"):
        begin(place, place.base / "two", realTime="5 minutes")


def test_a_start_that_failed_does_not_say_where_logs_are(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepted a gap, and came to nothing: the next one does not, and is told."""
    one, two = place.base / "one", place.base / "two"
    leave_open(place, one)

    def refuses(self: Coordinator) -> None:
        raise Unauthenticated("the service was given another token")

    place.spark.conf.set("spark.clonos.onGap", "at_least_once")
    try:
        with monkeypatch.context() as patch, pytest.raises(Unauthenticated):
            patch.setattr(Coordinator, "_start_servers", refuses)
            begin(place, two, realTime="5 minutes")
    finally:
        place.spark.conf.unset("spark.clonos.onGap")
    with pytest.raises(CheckpointMismatch, match=r"kept its causal logs in .*one.*would keep them in .*two"):
        begin(place, two, realTime="5 minutes")
    begin(place, one, realTime="5 minutes")
    place.write([{"k": "a", "n": 0}] * 2)
    goes_on(place)


def test_a_copy_of_a_checkpoint_has_logs_of_its_own(place: Place) -> None:
    """Each goes on with the two rows that were visible when it was made."""
    one, own = place.base / "one", place.base / "own"
    leave_open(place, one)
    copy = copied(place)
    with pytest.raises(CheckpointMismatch, match="is a copy of it") as refused:
        begin(copy, one, realTime="5 minutes")
    hinted = re.search(r"copy (\S+) to another directory, as its folder ([0-9a-f]+)", str(refused.value))
    assert hinted is not None
    shutil.copytree(hinted.group(1), own / hinted.group(2))
    for now, data in ((place, one), (copy, own)):
        begin(now, data, realTime="5 minutes")
        now.write([{"k": "a", "n": 0}] * 2)
        goes_on(now)
        now.stop()


def test_logs_that_were_copied_later_than_the_checkpoint_are_refused(place: Place) -> None:
    one, own = place.base / "one", place.base / "own"
    leave_open(place, one)
    copy = copied(place)
    one_row_more(place, one)
    shutil.copytree(one, own)
    with pytest.raises(CheckpointMismatch, match=r"as that was after start \d+ of .*copied after start \d+"):
        begin(copy, own, realTime="5 minutes")

"""Eager checkpoints of some operators beside causal logging of others: nothing is ever undone, whatever each depends
on."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from streams import Place

import clonos
from clonos import cli
from clonos.errors import SnapshotCorrupt

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
DRAWN = "k string, n long, drawn double"
HIDDEN = "k string, n long, drawn double, hidden double"
ACTED = "k string, n long, drawn double, hidden double, turn long"


def draw(key: Any, row: Any, ctx: Any) -> Any:
    yield row.k, row.n, ctx.random.random()


@clonos.claim("hidden")
def hide(key: Any, row: Any, ctx: Any) -> Any:
    """A replay would say something else."""
    yield row.k, row.n, row.drawn, random.random()


class Act:
    """Each row has an effect, which says what was seen then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, key: Any, row: Any, ctx: Any) -> Any:
        ctx.effect(self._write, row.n, row.hidden, key=str(row.n))
        turn = ctx.state["turn"] = ctx.state.get("turn", 0) + 1
        yield row.k, row.n, row.drawn, row.hidden, turn

    def _write(self, n: int, hidden: float) -> None:
        with (self._folder / f"{n}").open("a", encoding="utf-8") as file:
            file.write(f"{hidden!r}\n")


def chain(place: Place, folder: Path, **hidden: Any) -> tuple[Any, Any]:
    """What is hidden, and what was made of it."""
    drawn = place.causal(SCHEMA).groupBy("k").process(draw, DRAWN, name="draw", standby="hot")
    seen = drawn.groupBy("k").process(hide, HIDDEN, name="hide", **{"recovery": "eager", **hidden})
    return seen, seen.groupBy("k").process(Act(folder), ACTED, name="act")


def start(place: Place, base: Path, recovery: str) -> Any:
    place.stop()
    seen, acted = chain(place, base / "effects", recovery=recovery)
    sinks = [clonos.sinks.jsonl(path) for path in (base / "seen", place.output)]
    writer = seen.writeStream.to(sinks[0], name="seen").to(sinks[1], name="acted", stream=acted)
    writer = writer.option("checkpointLocation", str(place.checkpoint)).trigger(realTime="1 hour")
    place.query = writer.start()
    return place.query


@pytest.mark.parametrize("recovery", ["eager", "event_log"])
def test_all_sinks_and_effects_say_the_same_whatever_dies(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], recovery: str
) -> None:
    (tmp_path / "effects").mkdir()
    place.spark.conf.set("spark.clonos.snapshot.interval", "100ms")
    written = 0

    def write_and_await() -> None:
        nonlocal written
        place.write({"k": f"k{at % 5}", "n": at} for at in range(written, written + 40))
        written += 40
        place.await_rows(written)

    query = start(place, tmp_path, recovery)
    write_and_await()
    for node in (3, 2, 4, 3):
        place.kill(node, 0)
        place.kill(node, 1)
        write_and_await()
    assert query.restarts == [], "each is replaced alone"
    assert cli.main(["status", str(place.checkpoint)]) == 0
    said = f"recoveries: causal: draw, act, seen, acted; {recovery}: hide"
    assert said in capsys.readouterr().out
    place.spark.sparkContext.cancelAllJobs()
    write_and_await()
    start(place, tmp_path, recovery)  # inside the epoch
    write_and_await()

    acted, place.output = place.rows(), tmp_path / "seen"
    both = place.await_rows(written)
    seen = {row["n"]: row for row in both}
    once = dict.fromkeys(range(written), 1)
    assert Counter(row["n"] for row in acted) == Counter(row["n"] for row in both) == once
    for row in acted:
        assert seen[row["n"]].items() <= row.items()
        said = (tmp_path / "effects" / str(row["n"])).read_text().splitlines()
        assert set(said) == {repr(row["hidden"])}, (
            "an effect says what was seen, how often it may be repeated"
        )
    for key in {row["k"] for row in acted}:
        turns = [row["turn"] for row in acted if row["k"] == key]
        assert sorted(turns) == list(range(1, len(turns) + 1))


def test_a_checkpoint_that_others_depend_on_is_missed(place: Place, tmp_path: Path) -> None:
    """What an operator that repeats has made of its rows is visible, and would be made of others."""
    (tmp_path / "effects").mkdir()

    def begin() -> None:
        _, acted = chain(place, tmp_path / "effects")
        place.query = place.writer(acted, "realtime").trigger(realTime="1 hour").start()

    begin()
    place.write({"k": f"k{at % 5}", "n": at} for at in range(40))
    place.await_rows(40)
    place.stop()
    for manifest in (place.checkpoint / "clonos/state/3").glob("*/manifests/*-mid.manifest"):
        manifest.unlink()
    begin()
    with pytest.raises(
        SnapshotCorrupt, match=r"a later one is gone.*'hide'.*Restore the checkpoint as it was"
    ):
        place.query.awaitTermination(120)
    assert len(place.rows()) == 40


def test_what_a_checkpoint_depends_on_is_in_it_whatever_the_sharing_depth(place: Place) -> None:
    """The disk with all logs is lost."""
    conf = {"sharing.depth": "0", "snapshot.interval": "1h"}
    for name, value in conf.items():
        place.spark.conf.set(f"spark.clonos.{name}", value)

    def begin() -> None:
        place.stop()
        drawn = place.causal(SCHEMA).groupBy("k").process(draw, DRAWN, name="draw")
        kept = drawn.filter(lambda row, ctx: True, name="kept").groupBy("k")
        hidden = kept.process(hide, HIDDEN, name="hide", recovery="eager")
        place.query = place.writer(hidden, "realtime").trigger(realTime="1 hour").start()

    begin()
    place.write({"k": f"k{at % 5}", "n": at} for at in range(40))
    place.await_rows(40)
    place.stop()
    shutil.rmtree(place.checkpoint / "clonos" / "local")
    begin()
    place.write({"k": f"k{at % 5}", "n": at} for at in range(40, 50))
    assert Counter(row["n"] for row in place.await_rows(50)) == dict.fromkeys(range(50), 1)


def test_a_standby_by_setting_is_for_those_that_can_have_one(place: Place, tmp_path: Path) -> None:
    (tmp_path / "effects").mkdir()
    place.spark.conf.set("spark.clonos.standby", "hot")
    place.write([{"k": "a", "n": 1}])
    place.start(chain(place, tmp_path / "effects")[1], "realtime")
    place.await_rows(1)

    def have_standbys() -> bool:
        nodes = {each["node"] for each in place.query.replicas() if each["standby"]}
        return nodes == {2, 4}

    place.until(have_standbys, "standbys of both that repeat, and of no other")

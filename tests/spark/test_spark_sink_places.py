"""A query with two sinks, of which one is given another place between two starts: a new one, or the other one's."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from streams import TRIGGERS, Place

import clonos
from clonos.errors import CheckpointMismatch, StorageUnavailable
from clonos.protocol.roles.commit_records import CommitRecords
from clonos.spark import coordinator
from clonos.spark.checkpoint import Checkpoint

SCHEMA = "id long, draw long"


def drawn(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.id, ctx.random.getrandbits(40)


class TwoSinks:
    """The query: `a` and `b` get the same rows, each in a database that is chosen at each start."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._stream = place.causal("id long").map(drawn, SCHEMA, name="first")
        self._given = 0

    def start(self, a: str, b: str) -> None:
        place = self._place
        place.query = (
            self._stream.writeStream.to(clonos.sinks.sql(self._url(a), "a"), name="a")
            .to(clonos.sinks.sql(self._url(b), "b"), name="b")
            .option("checkpointLocation", str(place.checkpoint))
            .trigger(**TRIGGERS["microbatch"])
            .start()
        )

    def run(self, a: str, b: str, rows: tuple[int, int]) -> None:
        """Start, give ten records, and stop when they are committed. `rows` are how many each sink then has."""
        place = self._place
        self.start(a, b)
        assert place.query is not None
        place.write([{"id": id_} for id_ in range(self._given, self._given + 10)])
        self._given += 10
        place.until(lambda: (self.count(a, "a"), self.count(b, "b")) == rows, f"{rows} rows")
        epoch = max(int(path.name) for path in (place.checkpoint / "offsets").glob("[0-9]*"))
        assert place.query.wait_for_epoch(epoch, 60)
        kept = Checkpoint(str(place.checkpoint)).kept_commit
        place.until(
            lambda: (record := kept()) is not None and record.epoch == epoch, "the commit is recorded"
        )
        place.stop()

    def count(self, name: str, table: str) -> int:
        with contextlib.closing(sqlite3.connect(self.path(name))) as connection:
            known = connection.execute("SELECT name FROM sqlite_master WHERE name = ?", (table,)).fetchall()
            return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] if known else 0

    def path(self, name: str) -> Path:
        return self._place.base / f"{name}.db"

    def _url(self, name: str) -> str:
        return f"sqlite:///{self.path(name)}"


def test_a_sink_that_took_the_place_of_another_is_known_by_what_it_has_itself(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """The new place shows no rows of the old one; when it has lost some itself, a start is refused."""
    query = TwoSinks(place)
    query.run("one", "one", (10, 10))
    caplog.clear()
    query.run("two", "one", (10, 20))
    said = [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "sink_is_new"]
    assert len(said) == 1 and "the place of sink 'a' has nothing of it yet" in said[0]
    older = place.base / "older"
    older.mkdir()
    for path in place.base.glob("two.db*"):
        shutil.copy(path, older)
    query.run("two", "one", (20, 30))
    for path in place.base.glob("two.db*"):
        path.unlink()
    for path in older.iterdir():
        shutil.copy(path, place.base)
    with pytest.raises(CheckpointMismatch, match=r"the sink has lost output: node 3, instance 0"):
        query.start("two", "one")
    query.run("three", "one", (10, 40))  # as the hint says: where it has never been


def test_two_sinks_may_change_their_places(place: Place) -> None:
    """Each is then in a place that has a record of the query, but nothing of this sink."""
    query = TwoSinks(place)
    query.run("one", "two", (10, 10))
    query.run("two", "one", (10, 10))
    query.run("two", "one", (20, 20))
    with pytest.raises(CheckpointMismatch, match=r"the sink has lost output") as refused:
        query.start("one", "two")
    assert "give it that one again" in str(refused.value)
    query.run("two", "one", (30, 30))  # as the hint says


def test_a_first_start_over_a_new_place_may_die_when_it_has_recorded_itself(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = TwoSinks(place)
    query.run("one", "two", (10, 10))
    settle = CommitRecords.settle

    def dies(self: CommitRecords, *course: Any) -> None:
        settle(self, *course)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CommitRecords, "settle", dies)
        with pytest.raises(KeyboardInterrupt):
            query.start("three", "two")
    query.run("three", "two", (10, 20))


def test_a_sink_at_a_new_place_begins_with_the_open_epoch(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = (Place(place.spark, place.base / name) for name in ("first", "second", "third"))
    rows = place.causal("id long").map(drawn, SCHEMA, name="draw")
    even = rows.filter(lambda row, ctx: row.id % 2 == 0, name="halve")

    def start(one: Place, other: Place, ids: range, **trigger: str) -> None:
        place.stop()
        place.query = (
            rows.writeStream.to(clonos.sinks.jsonl(one.output, durable=False), name="rows")
            .to(clonos.sinks.jsonl(other.output, durable=False), name="even", stream=even)
            .option("checkpointLocation", str(place.checkpoint))
            .trigger(**trigger)
            .start()
        )
        place.write([{"id": id_} for id_ in ids])
        place.until(lambda: {*ids} <= {*shown(one)} and {*ids[::2]} <= {*shown(other)}, f"rows {ids}")

    def shown(at: Place) -> dict[int, Any]:
        return {row["id"]: (row["draw"], row["clonos_id"]) for row in at.rows()}

    start(first, second, range(10), **TRIGGERS["microbatch"])
    place.await_commit()
    kept = Checkpoint(str(place.checkpoint)).kept_commit
    place.until(lambda: (record := kept()) is not None and len(record.cursors) == 2, "the commit is recorded")
    start(first, second, range(10, 20), realTime="5 minutes")
    place.stop()
    caplog.clear()
    start(third, second, range(20, 30), **TRIGGERS["microbatch"])
    assert "the place of sink 'rows' has nothing of it yet" in caplog.text
    before = shown(first)
    assert sorted(before) == [*range(20)], "nothing more comes to the former place"
    assert sorted(shown(third)) == [*range(10, 30)], "nothing of what had committed comes to the new one"
    assert {id_: shown(third)[id_] for id_ in range(10, 20)} == {id_: before[id_] for id_ in range(10, 20)}
    assert sorted(row["id"] for row in second.rows()) == [*range(0, 30, 2)]


@pytest.mark.parametrize(
    "recorded", [True, False], ids=["recorded", "driver dies before it records the commit"]
)
def test_a_sink_that_lost_the_rows_of_the_last_commit_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """The query ends with the commit: it is recorded all the same, and else the snapshots say what had been shown."""
    stream = place.causal("id long").map(drawn, SCHEMA, name="first")

    def run(ids: range) -> None:
        place.write([{"id": id_} for id_ in ids])
        place.query = (
            stream.writeStream.to(clonos.sinks.jsonl(place.output))
            .option("checkpointLocation", str(place.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert place.query.awaitTermination(120)

    monkeypatch.setattr(coordinator, "COMMIT_POLL_SECONDS", 60)  # longer than the query lasts
    run(range(4))
    shutil.copytree(place.output, place.base / "older")
    if not recorded:
        monkeypatch.setattr(CommitRecords, "record", lambda self, *given: _unreachable())
    run(range(4, 6))
    monkeypatch.undo()
    kept = Checkpoint(str(place.checkpoint)).kept_commit()
    assert kept is not None and kept.epoch == (1 if recorded else 0)
    shutil.rmtree(place.output)
    shutil.copytree(place.base / "older", place.output)
    with pytest.raises(CheckpointMismatch, match="the sink has lost output"):
        run(range(6, 8))


def _unreachable() -> Any:
    raise StorageUnavailable("the checkpoint cannot be reached")

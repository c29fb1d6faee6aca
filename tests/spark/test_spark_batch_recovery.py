"""Epochs that are done again as a whole: nothing is recorded, and rows are seen when their epoch has committed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from streams import Place

import clonos
from clonos import cli
from clonos.api import query as queries
from clonos.errors import ClonosError, QueryDefinitionError, SinkError, SinkUnavailable
from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
OUT = "k string, n long, drawn string, count long"
SECOND = "k string, n long, drawn string, counted long"


def draw(key: Any, row: Any, ctx: Any) -> Any:
    """Hidden from every log; and how many there were of the key."""
    ctx.state["count"] = ctx.state.get("count", 0) + 1
    yield row.k, row.n, uuid4().hex, ctx.state["count"]


def count(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["count"] = ctx.state.get("count", 0) + 1
    yield row.k, row.n, row.drawn, ctx.state["count"]


@pytest.fixture
def again(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(queries, "_STOP_SECONDS", 0.5)
    place.spark.conf.set("spark.clonos.recovery", "batch")
    return place


def drawn(place: Place, **how: Any) -> Any:
    return place.causal(SCHEMA).groupBy("k").process(draw, OUT, name="draw", **how)


def both(place: Place) -> Any:
    return drawn(place).groupBy("k").process(count, SECOND, name="count")


def numbers(begin: int, end: int) -> list[dict[str, Any]]:
    return [{"k": f"k{at % 5}", "n": at} for at in range(begin, end)]


def assert_once(rows: list[dict[str, Any]], upto: int, counted: str = "counted") -> None:
    """Each number is there once, and every key has been counted without a gap."""
    assert sorted(row["n"] for row in rows) == list(range(upto))
    for key in range(min(5, upto)):
        assert sorted(row[counted] for row in rows if row["k"] == f"k{key}") == list(
            range(1, len(range(key, upto, 5)) + 1)
        )


def test_a_run_that_ends_shows_everything_before_it_ends(again: Place) -> None:
    """Nothing comes behind it that could show the rows of its last epoch."""
    place = again
    for upto in (30, 60, 60, 90):
        place.write(numbers(len(place.rows()), upto))
        query = place.writer(both(place)).trigger(availableNow=True).start()
        query.awaitTermination()
        assert_once(place.rows(), upto)


def test_all_is_visible_when_all_is_processed(again: Place) -> None:
    place = again
    query = place.start(both(place))
    for upto in (20, 40):
        place.write(numbers(upto - 20, upto))
        query.processAllAvailable()
        assert_once(place.rows(), upto)


@pytest.mark.parametrize("mode", ["microbatch", "realtime"])
def test_nothing_is_seen_of_an_epoch_that_is_done_again(again: Place, mode: str) -> None:
    """Whatever dies in it: of an operator that others have read, of one that they have not, of the sink."""
    place = again
    faults = script(
        Fault(point=Point.INPUT, strike=Strike.REPLICA, operator="draw", after=5),
        Fault(point=Point.AFTER_SNAPSHOT, strike=Strike.REPLICA, operator="draw"),
        Fault(point=Point.INPUT, strike=Strike.REPLICA, operator="count", after=5),
        Fault(point=Point.BEFORE_SNAPSHOT, strike=Strike.REPLICA, operator="sink"),
        Fault(point=Point.AFTER_SNAPSHOT, strike=Strike.REPLICA, operator="sink"),
    )
    place.write(numbers(0, 100))
    query = place.start(both(place), mode, **{"clonos.faults": faults})
    assert_once(place.await_rows(100), 100)
    assert query.restarts
    place.write(numbers(100, 150))
    assert_once(place.await_rows(150), 150)


@pytest.mark.parametrize("point", [Point.BEFORE_COMMIT, Point.AFTER_COMMIT])
def test_the_driver_shows_what_the_process_of_a_sink_has_left(again: Place, point: Point) -> None:
    """It dies when the epoch has committed, and there is no more input that would bring another one."""
    place = again
    faults = script(Fault(point=point, strike=Strike.REPLICA, operator="sink"))
    place.write(numbers(0, 40))
    query = place.start(both(place), **{"clonos.faults": faults})
    assert_once(place.await_rows(40), 40)
    assert query.restarts == []
    place.write(numbers(40, 60))
    assert_once(place.await_rows(60), 60)


class Away:
    """A sink whose place is away as long as a file is there."""

    def __init__(self, sink: Any, mark: Path) -> None:
        self._sink, self._mark = sink, str(mark)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._sink, name)

    def writer(self) -> Any:
        return _Writer(self._sink.writer(), self._mark)


class _Writer:
    def __init__(self, writer: Any, mark: str) -> None:
        self._writer, self._mark = writer, mark

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._writer, name)

    def write(self, *what: Any) -> None:
        if os.path.exists(self._mark):
            raise SinkUnavailable("the sink's place is away")
        self._writer.write(*what)


def test_a_sink_that_is_away_for_a_while_gets_its_rows_without_another_epoch(
    again: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, mark = again, tmp_path / "away"
    mark.touch()
    sink = Away(clonos.sinks.jsonl(place.output, durable=False), mark)
    place.write(numbers(0, 40))
    place.start(both(place), sink=sink)
    place.until(lambda: "the sink's place is away" in caplog.text, "the driver has tried, too")
    assert place.rows() == []
    mark.unlink()
    assert_once(place.await_rows(40), 40)


def assert_shown_by_the_next_run(place: Place, sink: Any, mark: Path) -> None:
    """The sink's place is there again."""
    mark.unlink()
    place.writer(both(place), sink=sink).trigger(availableNow=True).start().awaitTermination()
    assert_once(place.rows(), 40)


def test_a_run_that_ends_says_that_its_rows_are_not_visible_and_the_next_shows_them(
    again: Place, tmp_path: Path
) -> None:
    place, mark = again, tmp_path / "away"
    mark.touch()
    sink = Away(clonos.sinks.jsonl(place.output, durable=False), mark)
    place.write(numbers(0, 40))
    query = place.writer(both(place), sink=sink).trigger(availableNow=True).start()
    with pytest.raises(SinkUnavailable):
        query.awaitTermination()
    assert place.rows() == []
    assert_shown_by_the_next_run(place, sink, mark)


class RecordAway(Away):
    """It does not take the record of a commit either."""

    def __init__(self, sink: Any, mark: Path, error: type[Exception] = SinkUnavailable) -> None:
        super().__init__(sink, mark)
        self._error = error

    def record_commit(self, *said: Any) -> None:
        if os.path.exists(self._mark):
            raise self._error("it does not take the record")
        self._sink.record_commit(*said)


def test_a_run_whose_commit_cannot_be_recorded_ends_with_that(again: Place, tmp_path: Path) -> None:
    place, mark = again, tmp_path / "away"
    mark.touch()
    sink = RecordAway(clonos.sinks.jsonl(place.output, durable=False), mark)
    place.write(numbers(0, 40))
    query = place.writer(both(place), sink=sink).trigger(availableNow=True).start()
    with pytest.raises(SinkUnavailable, match="it does not take the record"):
        query.awaitTermination()
    assert_shown_by_the_next_run(place, sink, mark)


def test_a_query_whose_commits_are_never_recorded_ends(again: Place, tmp_path: Path) -> None:
    """Its rows would be held for ever."""
    place, mark = again, tmp_path / "away"
    mark.touch()
    sink = RecordAway(clonos.sinks.jsonl(place.output, durable=False), mark, SinkError)
    place.write(numbers(0, 40))
    query = place.start(both(place), sink=sink)
    with pytest.raises(SinkError, match="it does not take the record"):
        query.awaitTermination()


class Odd(Away):
    """What its driver library raises is no error of Clonos's."""

    def writer(self) -> Any:
        return _OddWriter(self._sink.writer(), self._mark)


class _OddWriter(_Writer):
    def write(self, *what: Any) -> None:
        if os.path.exists(self._mark):
            raise ValueError("a bug in a library")
        self._writer.write(*what)


def test_whatever_a_sink_raises_in_the_driver_ends_a_run(again: Place, tmp_path: Path) -> None:
    place, mark = again, tmp_path / "away"
    mark.touch()
    sink = Odd(clonos.sinks.jsonl(place.output, durable=False), mark)
    place.write(numbers(0, 40))
    query = place.writer(both(place), sink=sink).trigger(availableNow=True).start()
    with pytest.raises(ClonosError, match="a bug in a library"):
        query.awaitTermination()


def test_a_query_that_waits_for_its_rows_can_be_stopped(
    again: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, mark = again, tmp_path / "away"
    mark.touch()
    sink = Away(clonos.sinks.jsonl(place.output, durable=False), mark)
    place.write(numbers(0, 40))
    query = place.start(both(place), sink=sink)
    waits = threading.Thread(target=query.processAllAvailable)
    waits.start()
    place.until(lambda: "the sink's place is away" in caplog.text, "the driver has tried")
    place.stop()
    waits.join()
    assert place.rows() == [] and "the next start shows them" in caplog.text


def test_every_batch_of_the_driver_has_an_epoch_that_has_committed(again: Place) -> None:
    place = again
    batches: list[list[Any]] = []

    def take(df: Any, epoch: int) -> None:
        batches.append([row.asDict() for row in df.collect()])

    for upto in (20, 40):
        place.write(numbers(upto - 20, upto))
        writer = place.writer(both(place), sink=clonos.sinks.batches(take)).trigger(availableNow=True)
        writer.start().awaitTermination()
        assert_once([row for batch in batches for row in batch], upto)


def test_an_unbounded_query_calls_the_function_without_more_input(again: Place) -> None:
    place = again
    seen: list[int] = []
    place.write(numbers(0, 20))
    sink = clonos.sinks.batches(lambda df, epoch: seen.extend(row.n for row in df.collect()))
    place.start(both(place), sink=sink)
    place.until(lambda: len(seen) >= 20, "the rows of the first epoch")
    assert sorted(seen) == list(range(20))


def test_other_checkpoints_inside_an_epoch_are_refused_in_micro_batch(place: Place) -> None:
    place.spark.conf.set("spark.clonos.recovery", "eager")
    with pytest.raises(
        QueryDefinitionError, match=r"eager checkpoints are for real time.*Set spark.clonos.recovery=batch"
    ):
        place.start(drawn(place))
    place.spark.conf.set("spark.clonos.recovery", "batch")
    with pytest.raises(
        QueryDefinitionError, match=r"'draw' has recovery='eager'.*Leave recovery='eager' out"
    ):
        place.start(drawn(place, recovery="eager"))
    place.write(numbers(0, 10))
    place.start(drawn(place))  # as the hints say
    assert_once(place.await_rows(10), 10, "count")


def test_three_recoveries_in_one_query(place: Place, tmp_path: Path, capsys: Any) -> None:
    """What is made in front is seen at once and never again, what is behind it when no failure leads behind it, and the
    rest with its epoch; each part outlives the loss of any process."""
    place.spark.conf.set("spark.clonos.recovery", "uncoordinated")
    place.spark.conf.set("spark.clonos.recovery.interval", "100ms")
    soon = clonos.sinks.jsonl(place.output, durable=False)
    safe, later = (clonos.sinks.jsonl(tmp_path / name, durable=False) for name in ("safe", "later"))

    def start(behind: str | None = None) -> Any:
        first = drawn(place, recovery="eager")
        second = first.groupBy("k").process(count, SECOND, name="second")
        third = first.groupBy("k").process(count, SECOND, name="third", recovery="batch")
        fourth = third.groupBy("k").process(count, SECOND, name="fourth", recovery=behind)
        writer = first.writeStream.to(soon, name="soon").to(safe, name="safe", stream=second)
        writer = writer.to(later, name="later", stream=fourth)
        writer = writer.option("checkpointLocation", str(place.checkpoint)).trigger(realTime="3 seconds")
        place.query = writer.start()
        return place.query

    with pytest.raises(
        QueryDefinitionError,
        match=r"'fourth' has recovery='eager', and is behind.*Leave recovery='eager' out",
    ):
        start("eager")
    query = start()  # as the hint says
    for at, node in enumerate((2, 3, 4, 5, 2, 6, 7, 8)):
        place.write(numbers(20 * at, 20 * at + 20))
        place.until(lambda upto=20 * at + 20: len(place.rows()) >= upto, "rows at once")
        place.kill(node, at % 2 if node < 6 else 0)
    assert cli.main(["status", str(place.checkpoint)]) == 0
    said = capsys.readouterr().out
    kinds = "eager: first, soon; uncoordinated: second, safe; batch: third, fourth, later"
    assert f"recoveries: {kinds.replace('first', 'draw')}" in said, said
    rows: dict[str, list[dict[str, Any]]] = {}

    def all_are_there() -> bool:
        for name in ("safe", "later"):
            other = Place(place.spark, tmp_path)
            other.output = tmp_path / name
            rows[name] = other.rows()
        return all(len(found) >= 160 for found in rows.values())

    place.until(all_are_there, "the rows of the others")
    first = place.rows()
    assert_once(first, 160, "count")
    for found in rows.values():
        assert_once(found, 160)
        assert {(row["n"], row["drawn"]) for row in found} == {(row["n"], row["drawn"]) for row in first}
    assert query.restarts


def test_what_was_left_is_shown_by_the_next_start(again: Place, tmp_path: Path) -> None:
    """Without more input: before Spark runs anything."""
    place, mark = again, tmp_path / "away"
    mark.touch()
    sink = Away(clonos.sinks.jsonl(place.output, durable=False), mark)
    place.write(numbers(0, 40))
    query = place.start(both(place), sink=sink)
    place.await_commit()
    for replica in query.replicas():
        os.kill(replica["pid"], signal.SIGKILL)
    place.stop()
    assert place.rows() == []
    mark.unlink()
    place.start(both(place), sink=sink)
    assert_once(place.await_rows(40), 40)


def test_rows_are_not_seen_before_their_epoch_has_committed(again: Place) -> None:
    place = again
    place.write(numbers(0, 20))
    place.start(both(place), "realtime")
    place.until(place.rows, "a row")
    assert (place.checkpoint / "commits" / "0").exists()
    assert_once(place.await_rows(20), 20)

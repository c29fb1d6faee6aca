"""The session that a query runs in: its settings are those of the start, and no other query's.

To the user it is a query of his session. What a query of Spark's own keeps when the user changes the session, a causal
query keeps, too, also when it is restarted by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from modes import mostly
from streams import Place

import clonos

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
LAST = 1000


def until_restarted(place: Place, **columns: int) -> None:
    """Its jobs are cancelled while they have something to do, which is a failure that is worth another start; then a
    row comes through."""

    def restarted() -> bool:
        place.write([{"n": 1, **columns}])
        place.spark.sparkContext.cancelAllJobs()
        return bool(place.query.restarts)

    place.until(restarted, "a restart of its own")
    place.write([{"n": LAST, **columns}])
    place.until(lambda: LAST in {row["n"] for row in place.rows()}, "the row behind it")


def echo(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield row.n, row.v, row.V, str(row.day)


def number(row: Any, ctx: Any) -> tuple[Any, ...]:
    return (row.n,)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_restart_of_its_own_runs_under_the_settings_of_the_start(
    spark: Any, place: Place, mode: str
) -> None:
    """One setting that decides whether the query can be analysed, and one that changes a value in silence."""
    spark.conf.set("spark.sql.caseSensitive", "true")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    day = "to_date(concat('2024-1-5 x', string(n)), 'yyyy-MM-dd') day"
    stream = place.read("n long, v long, V long").selectExpr("n", "v", "V", day)
    place.start(
        clonos.causal(stream).groupBy("n").process(echo, "n long, v long, w long, day string", name="echo"),
        mode,
    )
    place.write([{"n": n, "v": 1, "V": 2} for n in range(10)])
    place.await_rows(10)
    spark.conf.set("spark.sql.caseSensitive", "false")
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "CORRECTED")
    until_restarted(place, v=1, V=2)
    assert {(row["v"], row["w"], row["day"]) for row in place.rows()} == {(1, 2, "2024-01-05")}


def test_what_a_query_sets_for_itself_no_other_query_sees(spark: Any, place: Place) -> None:
    seen: set[Any] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add(spark.conf.get(FORMAT))

    before = spark.conf.get(FORMAT)
    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        place.start(place.causal("n long").map(number, "n long", name="op"))
        place.write([{"n": 1}])
        place.await_rows(1)
    finally:
        over.set()
        watcher.join()
    assert seen == {before}


def test_to_the_user_it_is_a_query_of_his_session(spark: Any, place: Place) -> None:
    """Listeners hear of it, also those that come later, and a restart of its own is no end that a program waits for."""
    from pyspark.sql.streaming import StreamingQueryListener

    class Heard(StreamingQueryListener):
        def __init__(self) -> None:
            self.started: list[str] = []
            self.progressed: list[str] = []
            self.terminated: list[str] = []

        def onQueryStarted(self, event: Any) -> None:
            self.started.append(str(event.id))

        def onQueryProgress(self, event: Any) -> None:
            self.progressed.append(str(event.progress.id))

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            self.terminated.append(str(event.id))

    before, later = Heard(), Heard()
    ended = threading.Event()

    def wait() -> None:
        spark.streams.awaitAnyTermination()
        ended.set()

    spark.streams.addListener(before)
    spark.streams.resetTerminated()
    try:
        query = place.start(place.causal("n long").map(number, "n long", name="op"))
        spark.streams.addListener(later)
        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        assert [str(each.id) for each in spark.streams.active] == [query.id]
        place.write([{"n": 1}])
        place.await_rows(1)
        until_restarted(place)
        assert [str(each.id) for each in spark.streams.active] == [query.id]
        assert not ended.is_set()
        place.stop()
        place.until(lambda: ended.is_set() and bool(later.terminated), "the end of the query")
        assert before.started == [query.id] and set(before.progressed) == {query.id}
        assert later.started == [] and later.terminated == before.terminated == [query.id]
        assert not spark.streams.active
    finally:
        spark.streams.removeListener(before)
        spark.streams.removeListener(later)
        spark.streams.resetTerminated()


def test_a_restart_of_its_own_keeps_what_was_set_for_the_thread_that_started_it(
    spark: Any, place: Place
) -> None:
    """As Spark's scheduler pools are; a tag is another such property."""
    jobs = spark.sparkContext._jsc.sc().statusTracker()
    spark.sparkContext.addJobTag("night")
    try:
        place.start(place.causal("n long").map(number, "n long", name="op"))
    finally:
        spark.sparkContext.removeJobTag("night")
    place.write([{"n": 1}])
    place.await_rows(1)
    until_restarted(place)
    before = max(jobs.getJobIdsForTag("night"))
    place.write([{"n": LAST + 1}])
    place.until(lambda: LAST + 1 in {row["n"] for row in place.rows()}, "one more row")
    assert max(jobs.getJobIdsForTag("night")) > before

"""The progress of a causal query: its numbers against known input and what is visible, whatever was lost meanwhile."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from modes import MODES
from pyspark.errors import StreamingQueryException
from streams import Place

import clonos
from clonos.errors import UserFunctionError
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.source_progress import sources_of
from clonos.testing.faults import Fault, Point, Strike, script

NOW = "now"


@pytest.fixture
def heard(spark: Any) -> Iterator[Any]:
    """What a listener of the session hears of queries."""
    from pyspark.sql.streaming import StreamingQueryListener

    class Heard(StreamingQueryListener):
        def __init__(self) -> None:
            self.started: list[Any] = []
            self.progress: list[Any] = []
            self.terminated: list[Any] = []

        def onQueryStarted(self, event: Any) -> None:
            self.started.append(event)

        def onQueryProgress(self, event: Any) -> None:
            self.progress.append(event.progress)

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            self.terminated.append(event)

    listener = Heard()
    spark.streams.addListener(listener)
    spark.streams.resetTerminated()
    yield listener
    spark.streams.removeListener(listener)
    spark.streams.resetTerminated()


class Feed:
    """Writes numbers to a query that repeats those of them that it keeps."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.wrote = 0

    def stream(self) -> Any:
        stream = self.place.causal("n long").filter(keep, pure=True, name="keep").groupBy("n")
        return stream.process(repeat, "n long, at int, x double", name="repeat")

    def write(self) -> None:
        self.place.write({"n": n} for n in range(self.wrote, self.wrote + 50))
        self.wrote += 50

    @property
    def kept(self) -> int:
        return self.wrote * 4 // 5

    @property
    def visible(self) -> int:
        """One of four numbers that are kept is not repeated."""
        return self.wrote * 6 // 5

    def write_and_await(self) -> None:
        self.write()
        self.place.await_rows(self.visible)

    def snapshots(self) -> int:
        """How many every operator's instance has taken inside the open epoch, as far as they are still there."""
        checkpoint = self.place.checkpoint
        epoch = 1 + max((int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")), default=-1)
        folders = [
            checkpoint / "clonos" / "state" / one / "manifests" for one in ("2/0", "2/1", "3/0", "3/1")
        ]
        return min(len(list(folder.glob(f"{epoch:020d}-*-mid.manifest"))) for folder in folders)


def keep(row: Any) -> bool:
    return bool(row.n % 5)


def repeat(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """One row for an odd number, two for an even one."""
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    for at in range(2 - row.n % 2):
        yield row.n, at, ctx.random.random()


def total(progress: list[Any], number: Callable[[Any], int]) -> int:
    return sum(map(number, progress))


def rows_out(name: str) -> Callable[[Any], int]:
    return lambda one: next(
        each.customMetrics["numOutputRows"] for each in one.stateOperators if each.operatorName == name
    )


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_counted_once_through_a_kill_and_a_restart(place: Place, heard: Any, mode: str) -> None:
    """In real time the epoch goes on from snapshots inside it, as a rule; rows before them come to no sink again."""
    place.spark.conf.set("spark.clonos.snapshot.interval", "100ms")
    place.spark.conf.set("spark.clonos.snapshot.work", "10ms")
    place.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "3")
    kill = Fault(point=Point.INPUT, strike=Strike.REPLICA, operator="repeat", instance=0, after=10)
    fail = Fault(point=Point.INPUT, strike=Strike.TASK, operator="repeat", instance=1, asked=NOW)
    feed = Feed(place)
    writer = place.writer(feed.stream(), mode, **{"clonos.faults": script(kill, fail)})
    query = place.query = (writer.trigger(realTime="6 seconds") if mode == "realtime" else writer).start()
    run = query.runId
    feed.write_and_await()

    def enough() -> bool:
        feed.write_and_await()
        return mode == "microbatch" or feed.snapshots() > 1

    def restarted() -> bool:
        feed.write()
        if mode == "microbatch":  # where the task's failure has the task run again
            place.spark.sparkContext.cancelAllJobs()
        return bool(query.restarts)

    place.until(enough, "snapshots inside the epoch")
    (place.checkpoint / "clonos" / "local" / "faults" / NOW).touch()
    feed.write_and_await()
    place.until(restarted, "a restart")
    feed.write_and_await()
    place.until(lambda: total(heard.progress, lambda one: one.numInputRows) >= feed.wrote, "the last batch")
    told = heard.progress
    assert [one.batchId for one in told] == list(range(len(told)))
    assert total(told, lambda one: one.numInputRows) == feed.wrote
    known = [one for one in told if one.sink.numOutputRows >= 0]
    if mode == "microbatch" or known == told:
        assert total(told, lambda one: one.sink.numOutputRows) == feed.visible, told
        assert total(told, rows_out("keep")) == feed.kept and total(told, rows_out("repeat")) == feed.visible
    else:  # a word that came too late (docs/api.md): what is told is right
        assert total(known, lambda one: one.sink.numOutputRows) < feed.visible
    observed = [one.observedMetrics["clonos"] for one in told]
    assert sum(one.numReplicasReplaced for one in observed) >= 1
    assert sum(one.numRestarts for one in observed) == len(query.restarts)
    assert [one.json for one in query.recentProgress] == [one.json for one in told[-3:]]
    (handle,) = place.spark.streams.active
    assert handle.id == query.id
    assert [(one.batchId, one.sink) for one in handle.recentProgress] == [
        (one.batchId, one.sink) for one in told[-3:]
    ]
    place.stop()
    place.until(lambda: bool(heard.terminated), "the end of the query")
    assert [str(one.id) for one in heard.started] == [query.id]
    assert {str(one.runId) for one in [*heard.started, *told, *heard.terminated]} == {run} == {query.runId}
    assert [one.exception for one in heard.terminated] == [None]


def second(moment: int) -> str:
    return str(dt.datetime(2024, 1, 1) + dt.timedelta(seconds=moment))


def mark(row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield row.id, row.at
    if row.id == 1:
        ctx.side_output("ones", (row.id,))


def test_operators_tell_late_rows_and_state_and_every_sink_its_rows(place: Place) -> None:
    """A sink reads the source itself; and the source of ticks beside it is none of the user's."""
    rows = clonos.causal(place.read("id long, at timestamp", partitions=1))
    marked = rows.flat_map(mark, "id long, at timestamp", name="mark", side_outputs={"ones": "id long"})
    timed = marked.withWatermark("at", "5 seconds", idle_after="1 hour")
    read = {
        "counts": timed.groupBy("id").window("10 seconds").count(name="count"),
        "ones": marked.side_output("ones"),
        "all": rows,
    }

    def told(*written: tuple[int, int]) -> Any:
        """The progress of a batch, and what it says of the two operators."""
        place.write(({"id": id, "at": second(moment)} for id, moment in written), partitions=1)
        writer = rows.writeStream.option("checkpointLocation", str(place.checkpoint))
        for name, stream in read.items():
            writer = writer.to(clonos.sinks.jsonl(place.base / name, durable=False), name=name, stream=stream)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        (progress,) = query.recentProgress
        return progress, *progress.stateOperators

    progress, marks, counts = told((1, 0), (2, 5), (3, 30))
    assert [source.numInputRows for source in progress.sources] == [progress.numInputRows] == [3]
    assert [marks.operatorName, counts.operatorName] == ["mark", "count"]
    assert marks.customMetrics["numOutputRows"] == 4 and counts.customMetrics["numInputRows"] == 3
    assert marks.numRowsTotal == marks.numRowsUpdated == 0
    assert counts.numRowsUpdated > 0 and counts.numRowsRemoved > 0
    assert progress.sink.numOutputRows == 6
    shown = {"counts.numOutputRows": "2", "ones.numOutputRows": "1", "all.numOutputRows": "3"}
    assert progress.sink.metrics == shown
    progress, marks, counts = told((1, 1), (2, 31))
    assert (marks.numRowsDroppedByWatermark, counts.numRowsDroppedByWatermark) == (0, 1)
    assert progress.eventTime["watermark"].endswith(":25.000Z")
    shown = {"counts.numOutputRows": "0", "ones.numOutputRows": "1", "all.numOutputRows": "2"}
    assert progress.sink.metrics == shown and progress.sink.numOutputRows == 3


def test_what_is_said_of_sources_is_kept_by_node(place: Place) -> None:
    """The embedded log says how many of its bytes have not been read: here those that one batch had no room for."""
    streams = []
    for log, rows in (("one", 3), ("two", 200), ("three", 5)):
        place.write(({"n": n} for n in range(rows)), log)
        raw = place.spark.readStream.format("clonos").option("maxBytesPerTrigger", "600")
        read = raw.load(str(place.base / log)).selectExpr("cast(value as string) as text")
        streams.append(clonos.causal(read))
    merged = streams[0].union(streams[1]).union(streams[2])
    place.query = place.writer(merged).trigger(processingTime="1 hour").start()
    data = place.checkpoint / "clonos" / "local"
    found = place.until(lambda: sources_of(data), "the first batch is over")
    assert [each["unit"] for each in found] == ["bytes"] * 3
    nodes = {each["node"]: each["behind"] for each in found}
    kinds = {node["number"]: node["kind"] for node in Checkpoint(str(place.checkpoint)).shape()[1]["nodes"]}
    assert {kinds[node] for node in nodes} == {"source"} and len(nodes) == 3
    size = sum(file.stat().st_size for file in (place.base / "two").glob("*.log"))
    first, second, third = (nodes[node] for node in sorted(nodes))
    assert (first, third) == (0, 0) and 0 < second < size
    (progress,) = place.query.recentProgress
    assert [
        str(place.base / log) in source.description
        for log, source in zip(("one", "two", "three"), progress.sources, strict=True)
    ] == [True] * 3


def refuse(*given: Any) -> Any:
    raise ValueError("no such card")


@pytest.mark.parametrize("part", ["operator", "foreachBatch"])
def test_a_failure_is_told_once_with_what_the_query_has_failed_with(
    place: Place, heard: Any, part: str
) -> None:
    """Where a function of foreachBatch raises, no query of Spark's has failed: it is stopped."""
    stream = place.causal("n long")
    if part == "operator":
        query = place.start(stream.map(refuse, "n long", name="map"))
    else:
        writer = stream.map(lambda row, ctx: (row.n,), "n long", name="map").writeStream.foreachBatch(refuse)
        query = writer.option("checkpointLocation", str(place.checkpoint)).start()
    place.write([{"n": 1}])
    with pytest.raises(StreamingQueryException, match="no such card"):
        place.spark.streams.awaitAnyTermination()
    error = query.exception()
    assert isinstance(error, UserFunctionError) and not place.spark.streams.active
    place.query = None
    place.until(lambda: bool(heard.terminated), "the end is told")
    assert len(heard.started) == len(heard.terminated) == 1
    assert str(error) in heard.terminated[0].exception and heard.terminated[0].errorClassOnException
    assert {str(one.runId) for one in heard.started + heard.terminated} == {query.runId}


@pytest.mark.parametrize("attempts", [(7, 19), (19, 7)])
def test_of_an_instance_the_last_attempt_counts_whichever_is_told_of_last(
    spark: Any, attempts: tuple[int, int]
) -> None:
    """Spark tells listeners of a killed task, and adds up what its successor has reported: in either order."""
    jvm = spark._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()

    def method(of: str, name: str, *kinds: Any) -> Any:
        given = spark.sparkContext._gateway.new_array(jvm.java.lang.Class, len(kinds))
        for at, kind in enumerate(kinds):
            given[at] = kind
        found = loader.loadClass(f"org.clonos.spark.progress.{of}").getDeclaredMethod(name, given)
        found.setAccessible(True)
        return found

    def array(*values: Any) -> Any:
        given = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, len(values))
        for at, value in enumerate(values):
            given[at] = value
        return given

    report = loader.loadClass("org.clonos.spark.progress.InstanceReport")
    constructor = loader.loadClass("org.clonos.spark.progress.BatchTotals").getDeclaredConstructors()[0]
    constructor.setAccessible(True)
    totals = constructor.newInstance(array())
    for attempt in attempts:
        said = {"epoch": 0, "node": 2, "instance": 0, "attempt": attempt, "ended": True, "replaced": 0}
        said |= {"promoted": 0, "work": {"consumed": attempt}, "received": [0] * 64}
        decoded = method("InstanceReport", "decode", loader.loadClass("java.lang.String")).invoke(
            None, array(json.dumps(said))
        )
        method("BatchTotals", "ended", report).invoke(totals, array(decoded))
    dataflow = {
        "operators": [{"node": 2, "name": "m", "parallelism": 1, "readers": [3], "event_time": False}]
    }
    parsed = method("Dataflow", "parse", loader.loadClass("java.lang.String")).invoke(
        None, array(json.dumps(dataflow | {"sinks": []}))
    )
    operator = method("Dataflow", "operators").invoke(parsed, array()).get(0)
    kinds = (
        loader.loadClass("org.clonos.spark.progress.Dataflow$Operator"),
        loader.loadClass("java.lang.String"),
    )
    assert method("BatchTotals", "sum", *kinds).invoke(totals, array(operator, "consumed")) == 19

"""Time on real Spark: timers and timeouts of both kinds, in every kind of stateful function."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pandas as pd
import pytest
from modes import MODES, mostly
from streams import Place

from clonos.errors import QueryDefinitionError
from clonos.spark.parity import check_streams
from clonos.spark.plan import OperatorPlan, node_of, waits
from clonos.spark.types import delay_microseconds

pytestmark = pytest.mark.spark

EVENTS = "k string, at timestamp"


def at(second: int) -> dict[str, Any]:
    return {"k": "a", "at": f"2024-01-01 00:00:{second:02}"}


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_processing_time_timer_fires_although_nothing_arrives_and_its_replica_died(
    place: Place, mode: str
) -> None:
    def begin(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state["due"] = ctx.timer(dt.timedelta(seconds=2), name="close")
        return [(key[0], "begun", ctx.now_us(), ctx.state["due"])]

    def close(key: Any, timer: Any, ctx: Any) -> Any:
        return [(key[0], timer.name, ctx.now_us(), ctx.state["due"])]

    stream = place.causal("k string").groupBy("k")
    timed = stream.process(begin, "k string, what string, now long, due long", name="timed", on_timer=close)
    place.write([{"k": "a"}])
    place.start(timed, mode)
    (begun,) = place.await_rows(1)
    (instance,) = {
        r["instance"] for r in place.query.replicas() if r["node"] == 2 and _has(place, r["instance"])
    }
    place.kill(node=2, instance=instance)
    fired = place.await_rows(2)[-1]
    assert (begun["what"], fired["what"]) == ("begun", "close")
    assert begun["due"] == begun["now"] + 2_000_000 == fired["due"] <= fired["now"]
    assert place.query.restarts == []


def test_timers_wait_for_rows_where_spark_is_told_to_run_no_batch_without(place: Place) -> None:
    place.spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")

    def begin(key: Any, row: Any, ctx: Any) -> Any:
        ctx.timer(dt.timedelta(milliseconds=1), name="close")
        return [(key[0], "begun")]

    def close(key: Any, timer: Any, ctx: Any) -> Any:
        return [(key[0], timer.name)]

    stream = place.causal("k string").groupBy("k")
    place.write([{"k": "a"}])  # before the start: Spark's first batch is run in any case
    place.start(stream.process(begin, "k string, what string", name="timed", on_timer=close))
    for key in "ab":
        place.write([{"k": "b"}] if key == "b" else [])
        place.until(lambda: {"k": key, "what": "begun"} in seen(place), key)  # noqa: B023
        place.query.processAllAvailable()
    assert {"k": "a", "what": "close"} in seen(place)
    assert place.query.causal_status()["committed"] == 1


def seen(place: Place) -> list[dict[str, Any]]:
    return [{"k": row["k"], "what": row["what"]} for row in place.rows()]


def test_available_now_ends_with_the_data_in_batches_of_the_given_size(place: Place) -> None:
    """Although timers are due later: those fire when the query runs on."""
    import clonos

    def begin(key: Any, row: Any, ctx: Any) -> Any:
        if "seen" not in ctx.state:
            ctx.timer(dt.timedelta(seconds=3), name="close")
        ctx.state["seen"] = ctx.state.get("seen", 0) + 1
        return [(key[0], "row", ctx.state["seen"])]

    def close(key: Any, timer: Any, ctx: Any) -> Any:
        return [(key[0], timer.name, ctx.state["seen"])]

    def timed() -> Any:
        log = place.spark.readStream.format("clonos").option("maxRecordsPerBatch", "20")
        rows = log.load(str(place.base / "in")).selectExpr("cast(value as string) as k")
        return (
            clonos.causal(rows)
            .groupBy("k")
            .process(begin, "k string, what string, n int", name="timed", on_timer=close)
        )

    place.write({"k": n % 3} for n in range(60))
    query = place.writer(timed()).trigger(availableNow=True).start()
    query.awaitTermination()
    assert len([batch for batch in query.recentProgress if batch["numInputRows"]]) >= 3
    assert [row["what"] for row in place.rows()].count("row") == 60
    place.start(timed())
    place.until(lambda: len(place.rows()) == 63, "three timers")
    assert {row["k"] for row in place.rows() if row["what"] == "close"} == {
        '{"k": 0}',
        '{"k": 1}',
        '{"k": 2}',
    }


@pytest.mark.parametrize("modes", [MODES, MODES[::-1]], ids="-then-".join)
def test_a_timer_that_was_set_in_one_mode_fires_in_the_other(place: Place, modes: tuple[str, str]) -> None:
    """In micro-batches the query has one source more, which lets time pass."""

    def begin(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.timer(dt.timedelta(seconds=0.2 if ctx.state["n"] > 1 else 3600), name=f"{ctx.state['n']}")
        return [(key[0], "row", ctx.state["n"])]

    def close(key: Any, timer: Any, ctx: Any) -> Any:
        return [(key[0], f"timer {timer.name}", ctx.state["n"])]

    def timed() -> Any:
        stream = place.causal("k string").groupBy("k")
        return stream.process(begin, "k string, what string, n int", name="timed", on_timer=close)

    shown = 0
    for mode in (*modes, modes[0]):
        place.write([{"k": "a"}])
        place.start(timed(), mode)
        shown += 1 if shown == 0 else 2
        place.await_rows(shown)
        assert place.query.restarts == []
        place.stop()
    assert [(row["what"], row["n"]) for row in place.rows()] == [
        ("row", 1),
        ("row", 2),
        ("timer 2", 2),
        ("row", 3),
        ("timer 3", 3),
    ]


def test_a_new_version_may_have_timers(place: Place) -> None:
    """And the one after that none: Spark counts the query's sources."""

    def count(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return [(key[0], "row", ctx.state["n"])]

    def begin(key: Any, row: Any, ctx: Any) -> Any:
        ctx.timer(dt.timedelta(seconds=0.2), name="close")
        return count(key, row, ctx)

    def close(key: Any, timer: Any, ctx: Any) -> Any:
        return [(key[0], timer.name, ctx.state["n"])]

    shown = 0
    before: dict[str, Any] = {}
    for version, function, on_timer in (
        ("1", count, None),
        ("2", begin, close),
        ("3", count, close),
        ("4", count, None),
    ):
        place.write([{"k": "a"}])
        stream = place.causal("k string").groupBy("k")
        timed = stream.process(
            function,
            "k string, what string, n int",
            name="timed",
            version=version,
            on_timer=on_timer,
            previous=before,
        )
        place.start(timed)
        shown += 2 if function is begin else 1
        place.await_rows(shown)
        place.await_commit()
        place.stop()
        before = {version: (function, on_timer)}
    assert [(row["what"], row["n"]) for row in place.rows()] == [
        ("row", 1),
        ("row", 2),
        ("close", 2),
        ("row", 3),
        ("row", 4),
    ]


def _has(place: Place, instance: int) -> bool:
    """Whether an instance of the first operator owns the key 'a'."""
    from clonos.protocol.destination import destination

    return destination(("a",), 2) == instance


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_an_event_time_timer_follows_the_watermark(place: Place, mode: str) -> None:
    def record(key: Any, row: Any, ctx: Any) -> Any:
        ctx.timer(at=row.at + dt.timedelta(seconds=5), name=f"{row.at:%S}", event=True)
        yield key[0], row.at, f"row {row.at:%S}"

    def due(key: Any, timer: Any, ctx: Any) -> Any:
        assert ctx.watermark >= timer.at
        yield key[0], timer.at.replace(tzinfo=None), f"due {timer.name}"

    schema = "k string, at timestamp, what string"
    stream = place.causal(EVENTS).withWatermark("at", "10 seconds", idle_after="1 second")
    place.start(stream.groupBy("k").process(record, schema, name="timed", on_timer=due), mode)
    place.write([at(0)], partitions=2)
    place.await_rows(1)
    place.write([at(20), at(18)], partitions=2)
    # One partition has come to 20, the other one to 18: the timer due at 5 has passed
    rows = place.await_rows(4)
    assert {row["what"] for row in rows} == {"row 00", "row 20", "row 18", "due 00"}
    place.write([at(40)], partitions=2)  # the other partition is idle
    assert [row["what"] for row in place.await_rows(7)[4:]] == ["row 40", "due 18", "due 20"]


@pytest.mark.parametrize("mode", MODES)
def test_time_passes_for_instances_that_no_row_comes_to(place: Place, mode: str) -> None:
    """Their key occurred once. The source tells all of them how far it has come, and so do operators in between. Every
    instance is killed once, and goes on from where time was."""

    def record(key: Any, row: Any, ctx: Any) -> Any:
        ctx.timer(at=row.at + dt.timedelta(seconds=5), name="close", event=True)
        return [(key[0], "row", ctx.random.getrandbits(30))]

    def due(key: Any, timer: Any, ctx: Any) -> Any:
        yield key[0], timer.name, ctx.random.getrandbits(30)

    def held(key: Any, row: Any, ctx: Any) -> Any:
        """Has the event time of the operator before it, since nothing else is said."""
        if row.what == "row":
            ctx.timer(at=dt.datetime(2024, 1, 1, 0, 0, 20, tzinfo=dt.UTC), name="last", event=True)
        ctx.state["draws"] = [*ctx.state.get("draws", ()), row.draw]
        return [(key[0], row.what, row.draw)]

    def last(key: Any, timer: Any, ctx: Any) -> Any:
        yield key[0], timer.name, sum(ctx.state["draws"])

    schema = "k string, what string, draw long"
    stream = place.causal(EVENTS, partitions=1).withWatermark("at", "1 second", idle_after="1 second")
    first = stream.groupBy("k").process(record, schema, name="first", on_timer=due, parallelism=3)
    second = first.groupBy("k").process(held, schema, name="second", on_timer=last, parallelism=3)
    place.start(second, mode)
    keys = "abcdefgh"
    place.write([{**at(0), "k": key} for key in keys], partitions=1)
    place.await_rows(len(keys))
    for node, instance in ((2, 0), (3, 1), (2, 2), (3, 0)):
        place.kill(node, instance)
    place.write([{**at(10), "k": "a"}], partitions=1)
    place.await_rows(2 * len(keys) + 1)  # a row, and what closes each key
    place.kill(2, 1)
    place.kill(3, 2)
    place.write([{**at(30), "k": "b"}], partitions=1)
    place.until(lambda: sum(row["what"] == "last" for row in place.rows()) == len(keys), "all are told")
    rows = place.rows()
    for key in keys:
        own = [row for row in rows if row["k"] == key]
        draws = [row["draw"] for row in own if row["what"] != "last"]
        (told,) = [row["draw"] for row in own if row["what"] == "last"]
        assert told in (sum(draws), sum(draws[:-1]), sum(draws[:-2])), "a row may come behind it"


def test_a_watermark_that_is_said_again_waits_for_the_slower_partition(place: Place) -> None:
    """An instance of the operator between has read one partition hours ahead of the other: no row is late for that."""
    columns = "at timestamp, n int"
    source = place.causal(columns).withWatermark("at", "10 seconds")
    again = source.map(lambda row, ctx: tuple(row), columns, name="copied", parallelism=1)
    again = again.withWatermark("at", "10 seconds").withColumn("k", again.n % 1)
    counted = again.groupBy("k").window("10 seconds").count(name="counted", parallelism=1)

    def run(first: str, second: str) -> list[tuple[str, int]]:
        place.write([{"at": f"2024-01-01 {moment}", "n": 0} for moment in (first, second)])
        place.writer(counted).trigger(availableNow=True).start().awaitTermination()
        return sorted((row["window"]["start"][11:19], row["count"]) for row in place.rows())

    assert run("05:00:00", "00:00:01") == []
    assert run("05:00:01", "00:00:02") == []
    assert run("10:00:00", "10:00:00") == [("00:00:00", 2), ("05:00:00", 2)]


@pytest.mark.parametrize(
    ("front", "again", "columns", "expected"),
    [
        (None, "at", "at timestamp", None),
        ("at", "at", "at timestamp", 50_000_000),
        ("at", "other", "at timestamp, other timestamp", None),
    ],
)
def test_a_watermark_behind_an_operator_waits_for_what_the_operator_reads(
    place: Place,
    front: str | None,
    again: str,
    columns: str,
    expected: int | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Under the same name it is the same time. Where none is in front, a start in real time says what that means."""
    source = place.causal("at timestamp, n int")
    timed = source if front is None else source.withWatermark(front, "10 seconds")
    made = timed.filter(lambda row: True, name="some", pure=True).map(
        lambda row: row, columns, name="made", pure=True
    )
    counted = made.withWatermark(again, "1 minute").groupBy(again).window("1 minute").count(name="counted")
    (reader,) = counted.plan
    assert isinstance(reader, OperatorPlan)
    (upstream,) = reader.upstream
    sender, time = node_of(upstream), reader.event_time_for(upstream)
    assert isinstance(sender, OperatorPlan)
    assert time is not None
    assert waits(sender, time) == expected
    check_streams(counted.plan)
    assert ("rows for 'counted' may be late over a backlog" in caplog.text) == (front is None)


def test_the_event_time_of_a_processors_output_waits_for_its_input(place: Place) -> None:
    class Ends:
        init = handleInputRows = lambda *given: None

    timed = place.causal("k string, at timestamp").withWatermark("at", "10 seconds").groupBy("k")
    ends = timed.transformWithState(
        Ends(), "k string, end timestamp", "append", "EventTime", None, "end", name="ends"
    )
    (sender,) = ends.plan
    assert isinstance(sender, OperatorPlan)
    assert ends.event_time is not None
    assert waits(sender, ends.event_time) == 0


def test_an_event_time_timeout_of_a_group(place: Place) -> None:
    def session(key: Any, frames: Any, state: Any) -> Any:
        if state.hasTimedOut:
            (count,) = state.get
            state.remove()
            yield pd.DataFrame({"k": [key[0]], "n": [count], "watermark": [state.getCurrentWatermarkMs()]})
        else:
            (count,) = state.getOption or (0,)
            latest = None
            for frame in frames:
                count += len(frame)
                latest = frame["at"].max()
            state.update((count,))
            state.setTimeoutTimestamp(int(latest.timestamp() * 1000) + 5000)
            yield pd.DataFrame()

    stream = place.causal(EVENTS, partitions=1).withWatermark("at", "10 seconds").groupBy("k")
    output = "k string, n long, watermark long"
    sessions = stream.applyInPandasWithState(
        session, output, "n long", "update", "EventTimeTimeout", parallelism=1
    )
    place.start(sessions)
    place.write([at(0), at(1)], partitions=1)
    place.query.processAllAvailable()
    place.kill(node=2)
    place.write([at(17) | {"k": "b"}], partitions=1)  # the watermark is 7, past 6
    (row,) = place.await_rows(1)
    second = dt.datetime(2024, 1, 1, 0, 0, 7, tzinfo=dt.UTC).timestamp()
    assert row == {"k": "a", "n": 2, "watermark": int(second * 1000)}


def test_an_input_is_found_idle_although_nothing_comes(place: Place) -> None:
    """No function asks for the time, and no batch has data: the timeout comes all the same."""

    def session(key: Any, frames: Any, state: Any) -> Any:
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame({"k": [key[0]]})
        else:
            state.update((sum(map(len, frames)),))
            state.setTimeoutTimestamp(int(dt.datetime(2024, 1, 1, 0, 0, 5, tzinfo=dt.UTC).timestamp() * 1000))

    both = place.causal(EVENTS, partitions=1).union(place.causal(EVENTS, "silent", partitions=1))
    grouped = both.withWatermark("at", "0 seconds", idle_after="1 second").groupBy("k")
    stream = grouped.applyInPandasWithState(
        session, "k string", "n long", "update", "EventTimeTimeout", parallelism=1
    )
    place.start(stream)
    place.write([at(0), at(17) | {"k": "b"}], partitions=1)
    assert sorted(row["k"] for row in place.await_rows(2)) == ["a", "b"]


def test_an_event_time_timer_of_a_processor_and_the_event_time_of_its_output(place: Place) -> None:
    from pyspark.sql.streaming import StatefulProcessor

    class Echo(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            for row in rows:
                self.handle.registerTimer(int(row.at.replace(tzinfo=dt.UTC).timestamp() * 1000) + 5000)
                yield key[0], row.at, "row"

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
            seconds = expiredTimerInfo.getExpiryTimeInMs() / 1000
            yield key[0], dt.datetime.fromtimestamp(seconds, dt.UTC).replace(tzinfo=None), "due"

        def close(self) -> None:
            pass

    schema = "k string, at timestamp, what string"
    stream = place.causal(EVENTS, partitions=1).withWatermark("at", "10 seconds").groupBy("k")
    echoed = stream.transformWithState(Echo(), schema, "update", "EventTime", eventTimeColumnName="at")

    def reached(key: Any, row: Any, ctx: Any) -> Any:
        yield row.what, str(ctx.watermark and ctx.watermark.second)

    place.start(echoed.groupBy("k").process(reached, "what string, mark string", name="seen"))
    place.write([at(0)], partitions=1)
    place.await_rows(1)
    place.write([at(20)], partitions=1)
    place.await_rows(3)
    place.write([at(21)], partitions=1)
    rows = place.await_rows(4)
    assert [row["what"] for row in rows] == ["row", "row", "due", "row"]
    assert rows[-1]["mark"] == "10"  # 20 less the delay of the input's watermark


def test_time_that_makes_no_sense_is_refused(place: Place) -> None:
    stream = place.causal("k string, at timestamp, n long")
    for text in ("soon", "10", "", "-1 second"):
        with pytest.raises(QueryDefinitionError, match=r"interval|negative"):
            stream.withWatermark("at", text)
    with pytest.raises(QueryDefinitionError, match="event time 'n' is bigint"):
        stream.withWatermark("n", "1 second")
    with pytest.raises(QueryDefinitionError, match="no column 'when'; there are k, at, n"):
        stream.withWatermark("when", "1 second")
    with pytest.raises(
        QueryDefinitionError, match="asks for EventTimeTimeout, and the stream has no watermark"
    ):
        stream.groupBy("k").applyInPandasWithState(print, "n long", "n long", "update", "EventTimeTimeout")
    with pytest.raises(QueryDefinitionError, match="different watermarks"):
        stream.withWatermark("at", "1 second").union(stream)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("10 minutes", 600_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("interval 250 milliseconds", 250_000),
        ("1 microsecond", 1),
        ("1 month", 31 * 86_400_000_000),
        ("0 seconds", 0),
    ],
)
def test_delays_are_read_as_spark_reads_them(spark: Any, text: str, microseconds: int) -> None:
    assert delay_microseconds(spark, text) == microseconds


def test_a_watermark_counts_in_the_zone_of_the_session(place: Place) -> None:
    place.spark.conf.set("spark.sql.session.timeZone", "America/New_York")

    def mark(row: Any, ctx: Any) -> Any:
        return row.at, None if ctx.watermark is None else ctx.watermark.isoformat()

    stream = place.causal("at timestamp", partitions=1).withWatermark("at", "1 second")
    place.start(stream.map(mark, "at timestamp, mark string", name="mark", parallelism=1))
    place.write([at(0)], partitions=1)
    place.await_rows(1)
    time.sleep(0.1)
    place.write([at(1)], partitions=1)
    assert place.await_rows(2)[-1]["mark"] == "2024-01-01T04:59:59+00:00"

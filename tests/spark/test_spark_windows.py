"""Windows of event time: what Spark's own windows give, and every window once although replicas die."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import Any

import pytest
from modes import mostly
from pyspark.sql import functions as f
from streams import Place

from clonos.errors import CheckpointMismatch

START = dt.datetime(2024, 1, 1)
WINDOWS = {
    "tumbling": ("window", "10 seconds"),
    "sliding": ("window", "10 seconds", "4 seconds", "-1 second"),
    "session": ("session_window", "3 seconds"),
}


AGGREGATES = (
    "count(*) AS n",
    "count(*) FILTER (WHERE id % 2 = 1) AS odd",
    "max(at) AS latest",
    "sum(second(at)) / count(*) AS mean",
)


def second(moment: float) -> str:
    return str(START + dt.timedelta(seconds=round(moment)))


def batch(rng: random.Random, begin: int) -> list[dict[str, Any]]:
    """Rows of half a minute, out of order, some of them late, and without event time."""
    moments = [rng.choice((second(begin + rng.uniform(-20, 30)), None)) for _ in range(60)]
    return [{"id": rng.randrange(6), "at": moment} for moment in moments]


@pytest.mark.parametrize("windows", [pytest.param("tumbling", marks=pytest.mark.soak), "sliding", "session"])
def test_windows_are_those_of_sparks_own(place: Place, windows: str) -> None:
    """Batch by batch, in append mode."""
    method, *spans = WINDOWS[windows]
    schema = "id long, at timestamp"

    def native() -> Any:
        rows = place.read(schema, partitions=1).withWatermark("at", "5 seconds")
        return rows.groupBy(getattr(f, method)("at", *spans).alias("window"), "id").agg(
            *map(f.expr, AGGREGATES)
        )

    def causal() -> Any:
        rows = place.causal(schema, partitions=1).withWatermark("at", "5 seconds")
        return getattr(rows.groupBy("id"), method)(*spans).agg(*map(f.expr, AGGREGATES), parallelism=2)

    rng = random.Random(f"windows {windows}")
    place.spark.conf.set("spark.sql.shuffle.partitions", "2")  # of Spark's own
    for number in range(4):
        rows = batch(rng, 30 * number) if number < 3 else []
        place.write([*rows, {"id": 100 + number, "at": second(30 * number + 31)}], partitions=1)
        own = (
            native()
            .writeStream.format("parquet")
            .option("path", str(place.base / "native"))
            .option("checkpointLocation", str(place.base / "native-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        own.awaitTermination()
        place.writer(causal()).trigger(availableNow=True).start().awaitTermination()
    expected = Counter(
        (row.id, str(row.window.start), str(row.window.end), row.n, row.odd, str(row.latest), row.mean)
        for row in place.spark.read.parquet(str(place.base / "native")).collect()
    )
    assert sum(expected.values()) > 20
    name = "window" if method == "window" else "session_window"
    seen = Counter(
        (
            row["id"],
            as_text(row[name]["start"]),
            as_text(row[name]["end"]),
            row["n"],
            row["odd"],
            as_text(row["latest"]),
            row["mean"],
        )
        for row in place.rows()
    )
    assert seen == expected


def as_text(moment: str) -> str:
    return str(dt.datetime.fromisoformat(moment.replace("Z", "+00:00")).replace(tzinfo=None))


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_every_window_comes_once_although_replicas_die(place: Place, mode: str) -> None:
    """The rows carry draws, so that one that came a second time would be another one, and each of a window is seen."""

    def told(key: Any, window: Any, rows: list[Any], ctx: Any) -> Any:
        ctx.state["windows"] = ctx.state.get("windows", 0) + 1
        yield key[0], ctx.state["windows"], sorted(row.draw for row in rows), ctx.random.getrandbits(40)

    drawn = place.causal("id long, at timestamp").map(
        lambda row, ctx: (row.id, ctx.random.getrandbits(40), row.at),
        "id long, draw long, at timestamp",
        name="draw",
    )
    by_id = drawn.withWatermark("at", "1 second").groupBy("id")
    schema = "id long, number int, draws array<long>, draw long"
    stream = by_id.window("10 seconds").process(told, schema, name="tell", parallelism=2, late="late")
    place.start(stream, mode)
    for number in range(4):
        rows = [{"id": id_, "at": second(10 * number + id_ % 8)} for id_ in range(10) for _ in range(3)]
        # of each partition, so that none holds the watermark back
        ends = [{"id": -1 - partition, "at": second(10 * number + 12)} for partition in range(2)]
        place.write(rows)
        place.write(ends)
        place.await_rows(10 * (number + 1) + 2 * number)
        place.kill(node=2 + number % 2, instance=number // 2)
    rows = place.rows()
    of_ids = [row for row in rows if row["id"] >= 0]
    assert Counter((row["id"], row["number"]) for row in of_ids) == Counter(
        (id_, number) for id_ in range(10) for number in range(1, 5)
    )
    assert all(len(row["draws"]) == 3 for row in of_ids)
    draws = [draw for row in rows for draw in row["draws"]]
    assert len(set(draws)) == len(draws) == 4 * 30 + 2 * 3


# ------------------------------------------------- another program over a checkpoint


def values(key: Any, window: Any, rows: list[Any], ctx: Any) -> Any:
    yield key[0], str(window.start), str(window.end), [row.value for row in rows]


VALUES = "id long, begin string, finish string, values array<long>"


def run(place: Place, rows: list[tuple[int, float]], made: Any) -> list[tuple[Any, ...]]:
    """What a start has shown in addition to what there was."""
    before = {row["clonos_id"] for row in place.rows()}
    place.write([{"id": 1, "value": value, "at": second(at)} for value, at in rows], partitions=1)
    by_id = place.causal("id long, value long, at timestamp", partitions=1).withWatermark("at", "0 seconds")
    place.writer(made(by_id.groupBy("id"))).trigger(availableNow=True).start().awaitTermination()
    shown = [row for row in place.rows() if row["clonos_id"] not in before]
    return sorted((row["begin"][-8:], row["finish"][-8:], row["values"]) for row in shown)


def test_windows_that_are_open_end_where_they_would_whatever_kind_the_next_ones_are(place: Place) -> None:
    """Sliding windows, sessions and tumbling windows, one after the other: a row is in windows of its own kind."""

    def of(kind: str, *spans: str) -> Any:
        return lambda grouped: getattr(grouped, kind)(*spans).process(
            values, VALUES, name="list", parallelism=1
        )

    sliding, sessions = of("window", "10 seconds", "5 seconds"), of("session_window", "10 seconds")
    assert run(place, [(1, 7)], sliding) == []
    assert run(place, [(2, 8)], sessions) == []
    assert run(place, [(3, 10)], of("window", "10 seconds")) == [("00:00:00", "00:00:10", [1])]
    assert run(place, [(9, 60)], of("window", "10 seconds")) == [
        ("00:00:05", "00:00:15", [1]),
        ("00:00:08", "00:00:18", [2]),
        ("00:00:10", "00:00:20", [3]),
    ]


def test_what_keeps_rows_does_not_go_on_with_what_was_added_up(place: Place) -> None:
    def added(grouped: Any) -> Any:
        return grouped.window("10 seconds").aggregate(
            lambda kept, row, ctx: (kept or 0) + row.value,
            lambda key, window, kept, ctx: [(key[0], str(window.start), str(window.end), [kept])],
            VALUES,
            name="list",
            version="2",
            parallelism=1,
        )

    run(
        place,
        [(1, 7)],
        lambda grouped: grouped.window("10 seconds").process(values, VALUES, name="list", parallelism=1),
    )
    with pytest.raises(CheckpointMismatch, match="its state was kept by window, rows"):
        run(place, [(2, 8)], added)


def test_the_hint_of_changed_windows_is_one_that_can_be_followed(place: Place) -> None:
    """An epoch that was begun with other windows is repeated with those."""

    def counted(grouped: Any, span: str, **more: Any) -> Any:
        return grouped.window(span).count(name="count", parallelism=1, **more)

    def stream(span: str, **more: Any) -> Any:
        rows = place.causal("id long, at timestamp", partitions=1).withWatermark("at", "0 seconds")
        return counted(rows.groupBy("id"), span, **more)

    place.write([{"id": 1, "at": second(at)} for at in (0, 1, 25)], partitions=1)
    place.query = place.writer(stream("10 seconds")).trigger(realTime="10 minutes").start()  # it stays open
    place.await_rows(1)
    place.stop()
    with pytest.raises(CheckpointMismatch, match=r"previous=\{'1': function\}, with what it was then"):
        place.start(stream("5 seconds"))
    old = place.causal("id long, at timestamp", partitions=1).withWatermark("at", "0 seconds")
    place.start(stream("5 seconds", previous={"1": old.groupBy("id").window("10 seconds")}))
    for moment in (40, 80, 120, 160):  # the new windows begin behind the epochs that may have been begun
        place.write([{"id": 1, "at": second(moment)}], partitions=1)
        place.query.processAllAvailable()
    rows = place.await_rows(5)
    lengths = [
        dt.datetime.fromisoformat(row["window"]["end"]) - dt.datetime.fromisoformat(row["window"]["start"])
        for row in rows
    ]
    assert [row["count"] for row in rows] == [2, 1, 1, 1, 1]
    assert [lengths[0].seconds, lengths[-1].seconds] == [10, 5]

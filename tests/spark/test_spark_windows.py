"""Windows of event time: what Spark's own windows give, and every window once although replicas die."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import Any

import pytest
from modes import MODES
from pyspark.sql import functions as f
from streams import Place

MASTER = "local[16,4]"
START = dt.datetime(2024, 1, 1)
WINDOWS = {
    "tumbling": ("window", "10 seconds"),
    "sliding": ("window", "10 seconds", "4 seconds", "-1 second"),
    "session": ("session_window", "3 seconds"),
}


def second(moment: float) -> str:
    return str(START + dt.timedelta(seconds=round(moment)))


def batch(rng: random.Random, begin: int) -> list[dict[str, Any]]:
    """Rows of half a minute, out of order, some of them late, and without event time."""
    moments = [rng.choice((second(begin + rng.uniform(-20, 30)), None)) for _ in range(60)]
    return [{"id": rng.randrange(6), "at": moment} for moment in moments]


@pytest.mark.parametrize("windows", WINDOWS)
def test_windows_are_those_of_sparks_own(place: Place, windows: str) -> None:
    """Batch by batch, in append mode."""
    method, *spans = WINDOWS[windows]
    schema = "id long, at timestamp"

    def native() -> Any:
        rows = place.read(schema, partitions=1).withWatermark("at", "5 seconds")
        return rows.groupBy(getattr(f, method)("at", *spans).alias("window"), "id").count()

    def causal() -> Any:
        rows = place.causal(schema, partitions=1).withWatermark("at", "5 seconds")
        return getattr(rows.groupBy("id"), method)(*spans).count(parallelism=2)

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
        (row.id, str(row.window.start), str(row.window.end), row["count"])
        for row in place.spark.read.parquet(str(place.base / "native")).collect()
    )
    assert sum(expected.values()) > 20
    name = "window" if method == "window" else "session_window"
    seen = Counter(
        (row["id"], as_text(row[name]["start"]), as_text(row[name]["end"]), row["count"])
        for row in place.rows()
    )
    assert seen == expected


def as_text(moment: str) -> str:
    return str(dt.datetime.fromisoformat(moment.replace("Z", "+00:00")).replace(tzinfo=None))


@pytest.mark.parametrize("mode", MODES)
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

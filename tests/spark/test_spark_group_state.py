"""What Spark's own suite of `applyInPandasWithState` does with it: each step's answers in stock Spark, and in ours."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pandas as pd
import pyspark.cloudpickle
import pytest
from pyspark.sql import functions as f
from streams import Place

import clonos

pytestmark = pytest.mark.spark
for pickler in (cloudpickle, pyspark.cloudpickle):  # workers cannot import this module
    pickler.register_pickle_by_value(sys.modules[__name__])

RESTART = None
HOUR_MS = 3_600_000
Steps = list[tuple[list[dict[str, Any]], list[tuple[Any, ...]]] | None]  # what comes, and what is answered


def appending(path: Path) -> Callable[[Any], None]:
    def append(row: Any) -> None:
        with path.open("a") as out:
            out.write(row.line + "\n")

    return append


def start_stock(place: Place, made: Any) -> None:
    """Its rows go where those of ours would; a memory sink could not be started again. They go as lines, since
    Spark's `foreach` cannot read rows that come straight from a function."""
    place.output.mkdir(exist_ok=True)
    lines = made.select(f.to_json(f.struct("*")).alias("line"))
    writer = lines.writeStream.foreach(appending(place.output / "rows.jsonl")).outputMode("update")
    place.stop()
    place.query = writer.option("checkpointLocation", str(place.checkpoint)).start()


def answers(place: Place) -> list[tuple[Any, ...]]:
    return [tuple(value for name, value in row.items() if name != "clonos_id") for row in place.rows()]


@pytest.mark.parametrize("side", ["stock", "ours"])
class TestAsInSpark:
    def run(self, place: Place, side: str, make: Callable[[Callable[[Any], Any]], Any], steps: Steps) -> None:
        """`make` is given `causal`, or for stock Spark a function that does nothing."""
        place.spark.conf.set("spark.sql.shuffle.partitions", "1")
        known = 0

        def start() -> None:
            if side == "ours":
                place.start(make(clonos.causal))
            else:
                start_stock(place, make(lambda source: source))

        start()
        for step in steps:
            if step is RESTART:
                start()
                continue
            rows, wanted = step
            place.write(rows, partitions=1)
            place.until(lambda: len(answers(place)) >= known + len(wanted), wanted)  # noqa: B023
            assert sorted(answers(place)[known:]) == sorted(wanted)
            known += len(wanted)
        place.stop()
        assert len(answers(place)) == known

    def test_state_that_is_removed_begins_anew_and_empty_frames_reach_no_aggregate(
        self, place: Place, side: str
    ) -> None:
        def counted(causal: Callable[[Any], Any]) -> Any:
            grouped = causal(place.read("k string", partitions=1)).groupBy("k")
            counts = grouped.applyInPandasWithState(
                count_to_two, "k string, n long", "n long", "Append", "NoTimeout"
            )
            return counts.groupBy("k").agg(f.count("*").alias("calls"), f.sum("n").alias("total"))

        steps: Steps = [
            (of("a"), [("a", 1, 1)]),
            (of("a", "b"), [("a", 2, 3), ("b", 1, 1)]),
            RESTART,
            (of("a", "b"), [("b", 2, 3)]),
            RESTART,
            (of("a", "c"), [("a", 3, 4), ("c", 1, 1)]),
        ]
        self.run(place, side, counted, steps)

    def test_a_timed_out_key_is_the_same_where_its_columns_stand_in_another_order(
        self, place: Place, side: str
    ) -> None:
        names = ["ms", "value", "second", "fixed", "first", "last"]

        def counted(causal: Callable[[Any], Any]) -> Any:
            source = place.read("ms long, value string", partitions=1).withColumn("second", f.col("value"))
            for name in names[3:]:  # literals are columns without nulls
                source = source.withColumn(name, f.lit(name.upper()))
            return (
                causal(source)
                .groupBy("first", "second")
                .applyInPandasWithState(
                    count_until, "said string", "n long", "Update", "ProcessingTimeTimeout"
                )
            )

        def said(second: str, n: int) -> tuple[str]:
            return (f"('FIRST', '{second}') {n} {names}",)

        steps: Steps = [
            (of("a", ms=HOUR_MS), [said("a", 1)]),
            (of("b", ms=1), [said("b", 1), said("b", -1)]),
            (of("a", ms=1), [said("a", 2), said("a", -1)]),
        ]
        self.run(place, side, counted, steps)


def of(*values: str, ms: int | None = None) -> list[dict[str, Any]]:
    return [{"k": value} if ms is None else {"ms": ms, "value": value} for value in values]


def count_to_two(key: Any, frames: Any, state: Any) -> Any:
    """Forgets the key, and says nothing, at the third row."""
    (count,) = state.getOption or (0,)
    for frame in frames:
        count += len(frame)
        state.update((count,))
    if count < 3:
        yield pd.DataFrame({"k": [key[0]], "n": [count]})
    else:
        state.remove()
        yield pd.DataFrame()


def count_until(key: Any, frames: Any, state: Any) -> Any:
    """Counts until as many milliseconds have passed as the last row says."""
    (frame,) = frames
    if state.hasTimedOut:
        count = -1
        state.remove()
    else:
        (count,) = state.getOption or (0,)
        count += len(frame)
        state.update((count,))
        state.setTimeoutDuration(int(frame["ms"].iloc[-1]))
    yield pd.DataFrame({"said": [f"{key} {count} {list(frame.columns)}"]})

"""Sessions of words: Spark's session example with `applyInPandasWithState`, exact through failures.

Words that come close together in time are one session; a session ends when its word was not seen for a while. The
function and its call are what plain Spark takes. One word makes the difference: `causal(events)` instead of `events`.

    python examples/word_sessions.py [--mode realtime] [--kill]

With `--kill` a process that runs part of it is killed on the way; nothing of that shows in the output.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import LongType, StringType, StructField, StructType

from clonos import causal

IDLE_MS = 2000

SESSION = [
    StructField("sessionId", StringType()),
    StructField("count", LongType()),
    StructField("start", LongType()),
    StructField("end", LongType()),
]


def track(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """One call per word: its new events, or its timeout."""
    if state.hasTimedOut:
        count, start, end = state.get
        state.remove()
        yield pd.DataFrame({"sessionId": [key[0]], "count": [count], "start": [start], "end": [end]})
        return
    count, start, end = state.getOption or (0, None, 0)
    for frame in frames:
        count += len(frame)
        first = min(frame["timestamp"])
        start = first if start is None else min(start, first)
        end = max(end, max(frame["timestamp"]))
    state.update((count, start, end))
    state.setTimeoutDuration(IDLE_MS)
    yield pd.DataFrame()


def sessions(events: Any) -> Any:
    """What plain Spark would be given, too."""
    return events.groupBy("sessionId").applyInPandasWithState(
        track,
        StructType(SESSION),
        StructType(SESSION[1:]),
        "Update",
        GroupStateTimeout.ProcessingTimeTimeout,
    )


def split(line: Any) -> list[tuple[str, int]]:
    return [(word, line.timestamp) for word in line.value.split()]


def words(lines: Any) -> Any:
    """Lines to words. After `causal`, because each word is a record of its own."""
    return lines.flat_map(split, "sessionId string, timestamp long", name="split", pure=True)


def main() -> None:
    from running import arguments, run

    given = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)

        def query(spark: SparkSession) -> Any:
            lines = spark.readStream.format("clonos").load(str(base / "in"))
            lines = lines.selectExpr("cast(value as string) as value", "cast(timestamp as long) as timestamp")
            return sessions(words(causal(lines)))

        lines = ["the quick brown fox", "the lazy dog", "the end"]
        for row in run(query, base, lines, given, rows=7):
            print(json.dumps(row))


if __name__ == "__main__":
    main()

"""What a row costs per hop between causal operators: processor time of the JVM, and of the replicas.

A chain of operators that pass a keyed row on, each by another key, so that every hop is a full exchange. The query runs
over what is there in one micro-batch, with 1 and with 5 operators and over `--rows` and four times as many, in turns.
The difference between more rows and fewer, of the difference between the two lengths, is what a row costs per hop:
without the source and the sink, and without what each stage costs once, most of which is the JVM compiling it. That is
printed beside it, since it is more than all rows of a short run cost. The JVM runs one round beforehand.

    python benchmarks/hop_cost.py [--rows 1000000] [--rounds 3] [--bundle 2000]

To compare two commits, run it in a tree of each in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chains import session
from hops import seconds_of

import clonos
from clonos.sources.log_writer import LogWriter

SHORT, LONG = 1, 5
MORE = 4
"""Times as many rows in the larger of two logs."""
ROW = "a string, b string, n bigint, x double, text string"
TEXT = "t" * 20


def fill(log: Path, rows: int) -> None:
    with LogWriter(log, 2) as writer:
        for part in range(2):
            for start in range(0, rows // 2, 10_000):
                numbers = range(start, min(start + 10_000, rows // 2))
                writer.append_many(part, [b"%d" % (2 * number + part) for number in numbers])


def forward(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield row


def keyed_rows(spark: Any, log: Path, hot: float = 0.0) -> Any:
    """The rows of the log as a causal stream; the share `hot` of them has one key."""
    from pyspark.sql import functions as f

    raw = spark.readStream.format("clonos").load(str(log))
    number = f.col("value").cast("string").cast("bigint")
    spread = f.when(f.col("n") * 31 % 100 < round(100 * hot), 0).otherwise(f.col("n"))
    made = raw.select(number.alias("n")).select(
        f.concat(f.lit("a"), (spread % 1009).cast("string")).alias("a"),
        f.concat(f.lit("b"), (spread % 499).cast("string")).alias("b"),
        f.col("n"),
        (f.col("n") / 7).alias("x"),
        f.lit(TEXT).alias("text"),
    )
    return clonos.causal(made)


def chain(spark: Any, log: Path, folder: Path, length: int) -> Any:
    stream = keyed_rows(spark, log)
    for at in range(length):
        stream = stream.groupBy("ab"[at % 2]).process(forward, ROW, name=f"op{at}", parallelism=2)
    sink = clonos.sinks.call(discard)
    writer = stream.writeStream.to(sink).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def discard(rows: Any, ids: Any) -> None:
    """Nothing is kept: what a sink costs is not asked for."""


def spent(query: Any) -> float:
    """Seconds of all replicas so far."""
    return sum(seconds_of(f"/proc/{replica['pid']}/stat") for replica in query.replicas())


def measure(spark: Any, log: Path, length: int) -> tuple[float, float]:
    """Processor time of one run, of the JVM and of the replicas."""
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    before = seconds_of(f"/proc/{jvm}/stat")
    replicas = 0.0
    with tempfile.TemporaryDirectory() as folder:
        query = chain(spark, log, Path(folder), length)
        while query.isActive:
            with contextlib.suppress(FileNotFoundError, clonos.errors.ClonosError):  # it has just ended
                replicas = max(replicas, spent(query))
            time.sleep(0.02)
        query.awaitTermination()
    return seconds_of(f"/proc/{jvm}/stat") - before, replicas


def difference(spark: Any, log: Path) -> tuple[float, float]:
    """Seconds of the JVM and of the replicas that the long chain takes more than the short one."""
    short, long = measure(spark, log, SHORT), measure(spark, log, LONG)
    return long[0] - short[0], long[1] - short[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--bundle", type=int, default=2000, help="most rows in a bundle, half of them a block"
    )
    options = parser.parse_args()
    spark = session(slots=24, **{"spark.clonos.bundle.rows": str(options.bundle)})
    per_row: list[tuple[float, ...]] = []
    once: list[tuple[float, ...]] = []
    hops = LONG - SHORT
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few", Path(folder) / "many"
        fill(few, options.rows)
        fill(many, options.rows * MORE)
        measure(spark, few, LONG)
        for _ in range(options.rounds):
            less, more = difference(spark, few), difference(spark, many)
            rows = options.rows * (MORE - 1)
            slopes = [(high - low) / rows for low, high in zip(less, more, strict=True)]
            per_row.append(tuple(slope / hops * 1e6 for slope in slopes))
            once.append(
                tuple((low - slope * options.rows) / hops for low, slope in zip(less, slopes, strict=True))
            )
    for at, name in enumerate(("JVM", "replicas")):
        print(f"{name}: {spread(per_row, at)} us of processor time per row and hop, ", end="", flush=True)
        print(f"{spread(once, at)} s per operator once", flush=True)
    spark.stop()


def spread(rounds: list[tuple[float, ...]], at: int) -> str:
    values = [each[at] for each in rounds]
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()

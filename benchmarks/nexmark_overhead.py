"""Throughput of NexMark queries without failures: causal jobs, the same with recording off, and stock Spark's best job.

In every round each side drains the same events in micro-batches of a fixed size, in turn, in one Spark session. Counted
is the time of all batches but the first, which waits for replicas or workers.

- *full* and *1*: causal jobs that share causal logs with all operators and sinks that follow, or with the next only.
- *unrecorded*: the causal job with nothing recorded and nothing kept.
- *native*: the query's stock job (docs/nexmark.md says what it is).

    python benchmarks/nexmark_overhead.py [--queries q1,q3,q8,q12] [--sides full,1,unrecorded,native]
                                          [--events 200000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import clonos
from clonos.tools.bench.side import INSTANCES, session
from clonos.tools.bench.stock import create_table, shown, tune
from clonos.tools.bench.watch import TABLE
from clonos.tools.nexmark.feed import EventLogs
from clonos.tools.nexmark.queries import QUERIES
from clonos.tools.nexmark.query import Query, Source, causal
from clonos.tools.nexmark.workload import Workload

BATCHES = 6
LOOK_S = 0.1
UNRECORDED, NATIVE = "unrecorded", "native"
SIDES = ("full", "1", UNRECORDED, NATIVE)


def drain(spark: Any, query: Query, side: str, source: Source, folder: Path, events: int) -> float:
    """Events per second, over all batches but the first."""
    folder.mkdir()
    database = str(folder / "output.db")
    writer: Any
    if side == NATIVE:
        assert query.native is not None
        tune(spark, realtime=False)
        create_table(database, TABLE, query.columns)
        frame = query.native.build(source)
        writer = shown(frame, database, TABLE, query.native.output_mode, each_row=False)
    else:
        spark.conf.set("spark.clonos.recording", "false" if side == UNRECORDED else "true")
        spark.conf.set("spark.clonos.sharing.depth", "1" if side == "1" else "full")
        sink = clonos.sinks.sql(f"sqlite:///{database}", TABLE, durable=False)
        writer = causal(query, source, INSTANCES).writeStream.to(sink)
    running = (
        writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )
    batches = drained(running, events)
    shutil.rmtree(folder, ignore_errors=True)
    if len(batches) < BATCHES:
        raise RuntimeError(f"{query.name} {side} ran in {len(batches)} batches, not {BATCHES}")
    counted = batches[1:]
    share = sum(batch["numInputRows"] for batch in counted) / sum(batch["numInputRows"] for batch in batches)
    spent: float = sum(batch["durationMs"]["triggerExecution"] for batch in counted) / 1000
    return float(events * share / spent)


def drained(running: Any, events: int) -> list[Any]:
    """Batches with input, once there is no more of it. Stock Spark with timers goes on for ever after that."""
    found: dict[int, Any] = {}
    over = False
    while not over and sum(batch["numInputRows"] for batch in found.values()) < events:
        over = running.awaitTermination(LOOK_S)
        found |= {batch["batchId"]: batch for batch in running.recentProgress if batch["numInputRows"]}
    running.stop()
    return list(found.values())


def measure(
    spark: Any, query: Query, sides: list[str], options: argparse.Namespace, base: Path
) -> dict[str, list[float]]:
    """Events per second of each side, round by round."""
    workload = Workload(seed=1, kinds=query.kinds)
    logs = base / query.name
    with EventLogs(workload, logs, max(1, INSTANCES // len(query.inputs))) as written:
        written.write(0, options.events)
    per_slot = options.events / BATCHES / len(workload.slots)
    source = Source(spark, str(logs), {kind: math.ceil(len(kind.slots) * per_slot) for kind in query.kinds})
    rates: dict[str, list[float]] = {side: [] for side in sides if side != NATIVE or query.native is not None}
    for number in range(options.rounds + 1):
        for side in rates if number % 2 else reversed(rates):
            folder = base / f"{query.name}-{side}-{number}"
            rate = drain(spark, query, side, source, folder, options.events)
            if number:  # the first round warms up
                rates[side].append(rate)
            print(f"{query.name:>4} round {number} {side:>10} {rate:>10,.0f} events/s", flush=True)
    shutil.rmtree(logs)
    return rates


def ratios(found: dict[str, dict[str, list[float]]], side: str, other: str) -> None:
    """Of one side to another: for each query the median over the rounds with its extremes, and their geometric mean."""
    middles = []
    for query, rates in found.items():
        if side in rates and other in rates:
            each = sorted(a / b for a, b in zip(rates[side], rates[other], strict=True))
            middles.append(statistics.median(each))
            print(f"{query:>6} {side:>5} / {other:<10} {middles[-1]:.3f} [{each[0]:.3f} .. {each[-1]:.3f}]")
    if middles:
        print(f"{'mean':>6} {side:>5} / {other:<10} {statistics.geometric_mean(middles):.3f}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", default="q1,q3,q8,q12")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    queries, sides = options.queries.split(","), options.sides.split(",")
    if unknown := (set(queries) - set(QUERIES)) | (set(sides) - set(SIDES)):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    spark = session(4)
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as base:
        found = {name: measure(spark, QUERIES[name], sides, options, Path(base)) for name in queries}
    spark.stop()
    print()
    for query, rates in found.items():
        for side, values in rates.items():
            middle = statistics.median(values)
            print(
                f"{query:>6} {side:>10} {middle:>10,.0f} events/s [{min(values):,.0f} .. {max(values):,.0f}]"
            )
    for side, other in (("full", UNRECORDED), ("1", UNRECORDED), ("full", NATIVE)):
        ratios(found, side, other)


if __name__ == "__main__":
    main()

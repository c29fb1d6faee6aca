"""Rows a second that Real-Time Mode sustains, of this tree beside another one.

A log that is full before the query starts is drained within one epoch: NexMark's q1 and q12 into SQLite, and a chain of
four keyed operators with state. The trees take turns, each in a process of its own that imports `clonos` from it.

    python benchmarks/sustained.py [--other TREE] [--jobs q1,q12,chain] [--rows 3000000] [--rounds 3]

TREE is a checkout of another version, with its jar (`python hatch_build.py` there makes it).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hop_cost

import clonos

HERE = Path(__file__).resolve().parent
CHAIN = 4


def count(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.a, row.b, ctx.state["n"], row.x, row.text


def fill(job: str, folder: Path, rows: int) -> None:
    if job == "chain":
        hop_cost.fill(folder / "log", rows)
        return
    from clonos.tools.nexmark.feed import EventLogs
    from clonos.tools.nexmark.queries import QUERIES
    from clonos.tools.nexmark.workload import Workload

    with EventLogs(Workload(seed=1, kinds=QUERIES[job].kinds), folder, 2) as writer:
        writer.write(0, rows)


def start(spark: Any, job: str, log: Path, folder: Path) -> Any:
    if job == "chain":
        stream = hop_cost.keyed_rows(spark, log / "log")
        for at in range(CHAIN):
            stream = stream.groupBy("ab"[at % 2]).process(count, hop_cost.ROW, name=f"op{at}", parallelism=2)
        sink = clonos.sinks.call(hop_cost.discard)
    else:
        from clonos.tools.nexmark.queries import QUERIES
        from clonos.tools.nexmark.query import Source, causal

        stream = causal(QUERIES[job], Source(spark, str(log)), 2)
        sink = clonos.sinks.sql(f"sqlite:///{folder}/out.db", "out", durable=False)
    writer = stream.writeStream.to(sink).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(realTime="1 hour").start()


def side(job: str, log: Path, rows: int) -> float:
    """Rows a second that come to the sink, from a fifth of them to nine tenths. Replicas tell how many they have
    had every second."""
    from clonos.tools.bench.side import session

    spark = session(24)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        query = start(spark, job, log, Path(folder))
        sink, expected = (CHAIN + 2, rows) if job == "chain" else (3, bids(rows))
        seen: list[tuple[float, int]] = [(time.monotonic(), 0)]
        while seen[-1][1] < 0.9 * expected:
            query.awaitTermination(0.2)
            taken = sum(
                each["records"] or 0 for each in query.causal_status()["replicas"] if each["node"] == sink
            )
            if taken > seen[-1][1]:
                seen.append((time.monotonic(), taken))
        query.stop()
    spark.stop()
    (began, first), (ended, final) = next(one for one in seen if one[1] > expected / 5), seen[-1]
    return (final - first) / (ended - began)


def bids(events: int) -> int:
    """Of so many events."""
    return events * 46 // 50


def run(tree: Path, job: str, log: Path, rows: int) -> float:
    """A side in a process of its own."""
    path = os.pathsep.join([str(tree), str(tree / "standby"), str(HERE)])
    done = subprocess.run(
        [sys.executable, __file__, "--side", job, str(log), "--rows", str(rows)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{job} in {tree}: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--other", type=Path)
    parser.add_argument("--jobs", default="q1,q12,chain")
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(side(options.side[0], Path(options.side[1]), options.rows))
        return
    trees = {"this": HERE.parent} | ({"other": options.other.resolve()} if options.other else {})
    for job in options.jobs.split(","):
        with tempfile.TemporaryDirectory(prefix="clonos-bench-") as log:
            fill(job, Path(log), options.rows)
            found: dict[str, list[float]] = {tree: [] for tree in trees}
            for number in range(options.rounds):
                for tree in sorted(trees, reverse=number % 2 == 1):
                    found[tree].append(run(trees[tree], job, Path(log), options.rows))
                    print(f"{job:>6} round {number} {tree:>6} {found[tree][-1]:>10,.0f} rows/s", flush=True)
        for tree, rates in found.items():
            spread = f"[{min(rates):,.0f} .. {max(rates):,.0f}]"
            print(f"{job:>6} {tree:>6} {statistics.median(rates):>10,.0f} rows/s {spread}", flush=True)
        if len(found) == 2:
            each = sorted(a / b for a, b in zip(found["this"], found["other"], strict=True))
            print(f"{job:>6} this / other {statistics.median(each):.2f} [{each[0]:.2f} .. {each[-1]:.2f}]")


if __name__ == "__main__":
    main()

"""What an archive costs: rows a second and bytes a row, with it and without, and how long a row takes to explain.

A log that is full before the query starts is drained in one epoch of real time by a chain of two keyed operators; the
sides take turns in one session. Then, of the last archive, rows of the last operator are explained, and all of it is
repeated (`clonos archive verify`).

    python benchmarks/archive_cost.py [--rows 400000] [--rounds 3] [--explained 5]
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import hop_cost
from hops import seconds_of
from sustained import count

import clonos

HERE = Path(__file__).resolve().parent
LENGTH = 2
KEPT = {"spark.clonos.archive.keep": "30 days"}
SIDES: dict[str, dict[str, str]] = {"without": {}, "with": KEPT}


class Drained(NamedTuple):
    """From a fifth of the rows to nine tenths."""

    rate: float  # rows a second that the sink takes
    spent: float  # processor seconds of all replicas for a row
    in_all: float  # of these and of Spark's process


def drain(spark: Any, log: Path, base: Path, rows: int, settings: dict[str, str]) -> Drained:
    """A query with these settings; it has ended its epoch then."""
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        stream = hop_cost.keyed_rows(spark, log)
        for at in range(LENGTH):
            stream = stream.groupBy("ab"[at % 2]).process(count, hop_cost.ROW, name=f"op{at}", parallelism=2)
        writer = stream.writeStream.to(clonos.sinks.jsonl(base / "out", durable=False))
        query = (
            writer.option("checkpointLocation", str(base / "checkpoint"))
            .trigger(realTime="30 seconds")
            .start()
        )
    finally:
        for name in settings:
            spark.conf.unset(name)
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    seen: list[tuple[float, int, float, float]] = []
    while not seen or seen[-1][1] < rows:
        query.awaitTermination(0.1)
        replicas = query.causal_status()["replicas"]
        taken = sum(each["records"] or 0 for each in replicas if each["node"] == LENGTH + 2)
        if taken and (not seen or taken > seen[-1][1]):
            replicas_took = hop_cost.spent(query)
            in_all = replicas_took + seconds_of(f"/proc/{jvm}/stat")
            seen.append((time.monotonic(), taken, replicas_took, in_all))
    assert query.wait_for_epoch(0, 120), "the epoch has not ended"
    query.stop()
    (began, first, *before), (ended, last, *after) = (
        next(one for one in seen if one[1] > rows / 5),
        next(one for one in seen if one[1] > 0.9 * rows),
    )
    taken = last - first
    spent, in_all = ((late - early) / taken for early, late in zip(before, after, strict=True))
    return Drained(taken / (ended - began), spent, in_all)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def command(*arguments: str) -> float:
    """How long a command of ours takes that has to end well."""
    began = time.monotonic()
    line = [sys.executable, "-m", "clonos.cli", *arguments]
    subprocess.run(line, cwd=HERE, check=True, stdout=subprocess.DEVNULL)  # where the function's module is
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--explained", type=int, default=5, help="rows, each in a process of its own")
    options = parser.parse_args()
    from clonos.tools.bench.side import session

    spark = session(24)
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
        log = Path(folder, "log")
        hop_cost.fill(log, options.rows)
        for number in range(options.rounds):
            for side in sorted(SIDES, reverse=number % 2 == 1):
                base = Path(folder, f"{side}-{number}")
                rates[side].append(drain(spark, log, base, options.rows, SIDES[side]).rate)
                print(f"round {number}: {side} {rates[side][-1]:,.0f} rows/s", flush=True)
        spark.stop()
        archived = Path(folder, f"with-{options.rounds - 1}", "checkpoint")
        archive, size = archived / "clonos" / "archive", size_of(log)
        print(f"input {size / options.rows:.0f} B/row as the source has it")
        for part in ("segments", "state"):
            print(
                f"{part} {size_of(archive / part) / options.rows:.1f} B/row, of {LENGTH} operators together"
            )
        draw = random.Random(1)
        rows = [
            f"{LENGTH + 1}-{draw.randrange(2)}-{draw.randrange(1, options.rows // 3)}"
            for _ in range(options.explained)
        ]
        times = [command("explain", str(archived), row) for row in rows]
        print(f"explaining a row: {statistics.median(times):.1f} s [{min(times):.1f} .. {max(times):.1f}]")
        print(f"repeating all of it: {command('archive', 'verify', str(archived)):.1f} s")
    ratio = statistics.median(a / b for a, b in zip(rates["with"], rates["without"], strict=True))
    for side, found in rates.items():
        print(f"{side:>8} {statistics.median(found):9,.0f} rows/s [{min(found):,.0f} .. {max(found):,.0f}]")
    print(f"with / without {ratio:.2f}")


if __name__ == "__main__":
    main()

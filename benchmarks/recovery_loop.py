"""Recoveries beside each other around a loop: which vertices of a graph can be reached (examples/reachability.py).

Edges are appended one by one in real time, chains of `--length` of them, the root's end last: so that one insertion
makes a whole chain reachable, vertex by vertex, each a turn around the loop. Then the process of one instance is killed
(SIGKILL). Each recovery takes its turn in every round, in one session. Printed are, of each:

- how long after the append of the last edge the first vertex of the chain is visible, and the last: medians and p99;
- for how long nothing is visible behind the SIGKILL;
- whether the output is right: each vertex of each chain once, by the one path that there is.

    python benchmarks/recovery_loop.py [--length 4] [--chains 40] [--every 0.5] [--rounds 2] [--interval 1s]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import clonos
from clonos.sources.log_writer import LogWriter
from clonos.tools.live_query import find
from clonos.tools.status.describe import describe

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from reachability import ROOT, edges_in, reached

SIDES = ("causal", "eager", "event_log", "coordinated", "uncoordinated", "communication_induced")
PATIENCE = 120.0


@dataclass
class Found:
    """Of one recovery, of all rounds."""

    first: list[float] = field(default_factory=list)  # seconds until the first vertex of a chain is visible
    last: list[float] = field(default_factory=list)  # and the last
    pauses: list[float] = field(default_factory=list)
    wrong: int = 0


def vertex(chain: int, place: int) -> str:
    return f"c{chain}v{place}"


def start(spark: Any, side: str, base: Path, interval: str) -> Any:
    settings = {"recovery": side, "recovery.interval": interval}
    for name, value in settings.items():
        spark.conf.set(f"spark.clonos.{name}", value)
    try:
        changes = reached(clonos.causal(edges_in(spark, base / "in")), base / "again").map(
            as_text, "vertex string, change int, path string", name="as_text"
        )
        sink = clonos.sinks.sql(f"sqlite:///{base}/out.db", "out", durable=False)
        writer = changes.writeStream.to(sink).option("checkpointLocation", str(base / "checkpoint"))
        return writer.trigger(realTime="1 hour").start()
    finally:
        for name in settings:
            spark.conf.unset(f"spark.clonos.{name}")


def as_text(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.vertex, row.change, json.dumps(row.path)


class Watch(threading.Thread):
    """When each row was seen first."""

    def __init__(self, database: Path) -> None:
        super().__init__(daemon=True)
        self._database = database
        self.over = threading.Event()
        self.rows: list[tuple[float, str, int, str]] = []

    def run(self) -> None:
        while not self._database.exists() and not self.over.wait(0.01):
            pass
        text = "select rowid, vertex, change, path from out where rowid > ? order by rowid"
        place = f"file:{self._database}?mode=ro"
        last = 0
        with closing(sqlite3.connect(place, uri=True, isolation_level=None)) as connection:
            while not self.over.is_set():
                try:
                    rows = connection.execute(text, (last,)).fetchall()
                except sqlite3.OperationalError:  # the table is not there yet
                    rows = []
                now = time.time()
                self.rows += [(now, *row[1:]) for row in rows]
                last = rows[-1][0] if rows else last
                self.over.wait(0.001 if rows else 0.003)

    def seen(self) -> dict[str, float]:
        return {name: when for when, name, _, _ in self.rows}


def run(spark: Any, side: str, options: argparse.Namespace, found: Found) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        base = Path(folder)
        with LogWriter(base / "in", 1) as writer:
            query = start(spark, side, base, options.interval)
            watch = Watch(base / "out.db")
            watch.start()
            try:
                append(writer, 0, options.length)  # until all is warm
                await_all(watch, 1, options.length, query)
                times = feed(writer, options, base)
                await_all(watch, options.chains, options.length, query)
            finally:
                watch.over.set()
                watch.join()
                query.stop()
    judge(watch, times, options, found)


def append(writer: LogWriter, chain: int, length: int) -> float:
    """One chain; when its first edge, which is the last to come, was appended."""
    for place in range(length - 1, 0, -1):
        writer.append(0, f"insert {vertex(chain, place)} {vertex(chain, place + 1)}".encode())
    now = time.time()
    writer.append(0, f"insert {ROOT} {vertex(chain, 1)}".encode())
    return now


def process_of(base: Path, operator: str, instance: int) -> int:
    """The number of the process that runs it."""
    for each in describe(find(str(base / "checkpoint")))["operators"]:
        if each["operator"] == operator:
            return int(each["instances"][instance]["pid"])
    raise LookupError(f"there is no operator {operator}")


def feed(writer: LogWriter, options: argparse.Namespace, base: Path) -> dict[int, float]:
    """All chains but the first, one in each slot; in the middle an instance of the loop's operator is killed. When each
    was appended; that of the kill as chain -1."""
    times: dict[int, float] = {}
    began = time.monotonic()
    for chain in range(1, options.chains):
        time.sleep(max(0.0, began + chain * options.every - time.monotonic()))
        times[chain] = append(writer, chain, options.length)
        if chain == options.chains // 2:
            victim = process_of(base, "step", 0)
            times[-1] = time.time()
            os.kill(victim, signal.SIGKILL)
    return times


def await_all(watch: Watch, chains: int, length: int, query: Any) -> None:
    end = time.monotonic() + PATIENCE
    while len(watch.rows) < chains * length:
        if not query.isActive:
            raise query.exception()
        if time.monotonic() > end:
            raise TimeoutError(f"{len(watch.rows)} of {chains * length} rows within {PATIENCE:g} s")
        time.sleep(0.01)


def judge(watch: Watch, times: dict[int, float], options: argparse.Namespace, found: Found) -> None:
    seen, struck = watch.seen(), times.pop(-1)
    for chain, appended in times.items():
        if chain < options.chains // 2:  # without a failure
            found.first.append(seen[vertex(chain, 1)] - appended)
            found.last.append(seen[vertex(chain, options.length)] - appended)
    right = {
        (vertex(chain, place), 1, json.dumps([ROOT, *(vertex(chain, at) for at in range(1, place + 1))]))
        for chain in range(options.chains)
        for place in range(1, options.length + 1)
    }
    rows = [row[1:] for row in watch.rows]
    found.wrong += len(right ^ set(rows)) + len(rows) - len(set(rows))
    moments = [struck, *(when for when, *_ in watch.rows if when > struck)]
    found.pauses.append(max(after - before for before, after in pairwise(moments)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--length", type=int, default=4)
    parser.add_argument("--chains", type=int, default=40)
    parser.add_argument("--every", type=float, default=0.5, help="seconds from one chain to the next")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--interval", default="1s")
    parser.add_argument("--sides", default=",".join(SIDES))
    options = parser.parse_args()
    from clonos.tools.bench.side import session

    spark = session(24)
    sides = {side: Found() for side in options.sides.split(",")}
    for number in range(options.rounds):
        for side in sorted(sides, reverse=number % 2 == 1):
            run(spark, side, options, sides[side])
            print(f"round {number}: {side}", flush=True)
    spark.stop()
    print(f"{'':>21}  first vertex: p50, p99 ms   last: p50, p99 ms   pause s   wrong rows")
    for side, found in sides.items():
        texts = []
        for values in (found.first, found.last):
            quantiles = statistics.quantiles([1000 * value for value in values], n=100, method="inclusive")
            texts.append(f"{quantiles[49]:10,.0f} {quantiles[98]:10,.0f}")
        print(f"{side:>21} {'   '.join(texts)}   {statistics.median(found.pauses):9.2f}   {found.wrong:10}")


if __name__ == "__main__":
    main()

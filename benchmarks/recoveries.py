"""Recoveries beside each other: rows a second, latency until a row is processed and until it is visible, and a failure.

A chain of keyed operators with state in real time. Each recovery takes its turn in every round, in one session:

- *drain*: a log that is full before the query starts; rows a second that the last operator takes, and checkpoints a
  second of an instance: fewer than one for each interval where they are slow, or wait for markers.
- *steady*: rows come at a fixed rate; how long until each is visible in SQLite.
- *failure*: meanwhile the replica of the first operator is killed (SIGKILL); for how long no row becomes visible.

`none` records nothing and shows rows at once (`spark.clonos.recording=false`): what the others are compared with. After
a failure its output is wrong, so it has none.

    python benchmarks/recoveries.py [--rows 200000] [--rate 500] [--seconds 20] [--rounds 3] [--interval 1s]
        [--hot 0.3]     the share of rows that have one key
        [--postgres postgresql://user@host/database]    for a side that has its logs of events there
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hop_cost
from latency import follow
from sustained import CHAIN, count

import clonos
from clonos.sources.log_writer import LogWriter

SIDES: dict[str, dict[str, str]] = {
    "none": {"recording": "false"},
    "causal": {},
    "eager": {"recovery": "eager"},
    "event_log": {"recovery": "event_log"},
    "coordinated": {"recovery": "coordinated"},
    "unaligned": {"recovery": "unaligned"},
    "uncoordinated": {"recovery": "uncoordinated"},
    "communication_induced": {"recovery": "communication_induced"},
}
EPOCH = {"realTime": "1 hour"}
SLOT = 0.01
WARM_SECONDS = 120.0


@dataclass
class Found:
    """Of one recovery, by round."""

    rates: list[float] = field(default_factory=list)  # rows a second
    latencies: list[float] = field(default_factory=list)  # milliseconds until visible, of all rows
    pauses: list[float] = field(default_factory=list)  # seconds without a visible row behind a failure
    delta_bytes: list[float] = field(default_factory=list)  # that rode along, per row and hop
    forced: list[float] = field(default_factory=list)  # of all checkpoints, those that rows have forced
    checkpoints: list[float] = field(default_factory=list)  # a second, of an instance that is at its limit


@dataclass(frozen=True)
class Load:
    """What all sides run under."""

    interval: str
    hot: float


def start(spark: Any, side: str, log: Path, base: Path, load: Load, sink: Any) -> Any:
    settings = {**SIDES[side], "recovery.interval": load.interval}
    for name, value in settings.items():
        spark.conf.set(f"spark.clonos.{name}", value)
    try:
        stream = hop_cost.keyed_rows(spark, log, load.hot)
        for at in range(CHAIN):
            stream = stream.groupBy("ab"[at % 2]).process(count, hop_cost.ROW, name=f"op{at}", parallelism=2)
        writer = stream.writeStream.to(sink).option("checkpointLocation", str(base / "checkpoint"))
        return writer.trigger(**EPOCH).start()
    finally:
        for name in settings:
            spark.conf.unset(f"spark.clonos.{name}")


def replicas(query: Any, node: int) -> list[Any]:
    return [each for each in query.causal_status()["replicas"] if each["node"] == node]


def snapshots(query: Any) -> float:
    """Of all instances of operators together, so far."""
    return sum(
        float(each["done"].get("snapshots", 0)) for at in range(CHAIN) for each in replicas(query, 2 + at)
    )


def drain(spark: Any, side: str, log: Path, rows: int, load: Load, found: Found) -> None:
    """From a fifth of the rows to nine tenths, by what the last operator has taken. Replicas tell it every second."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as base:
        query = start(spark, side, log, Path(base), load, clonos.sinks.call(hop_cost.discard))
        seen: list[tuple[float, int]] = []
        checkpoints: list[tuple[float, float]] = []
        while not seen or seen[-1][1] < 0.9 * rows:
            query.awaitTermination(0.1)
            taken = sum(each["records"] or 0 for each in replicas(query, CHAIN + 1))
            if taken and (not seen or taken > seen[-1][1]):
                seen.append((time.monotonic(), taken))
                checkpoints.append((time.monotonic(), snapshots(query)))
        done = [each["done"] for at in range(CHAIN) for each in replicas(query, 2 + at)]
        query.stop()
    (began, first), (ended, last) = next(one for one in seen if one[1] > rows / 5), seen[-1]
    found.rates.append((last - first) / (ended - began))
    found.checkpoints.append(
        (checkpoints[-1][1] - checkpoints[0][1]) / (checkpoints[-1][0] - checkpoints[0][0]) / (2 * CHAIN)
    )
    sent = sum(each.get("records", 0) for each in done)
    found.delta_bytes.append(sum(each.get("delta_bytes", 0) for each in done) / max(sent, 1))
    taken = sum(each.get("snapshots", 0) for each in done)
    found.forced.append(sum(each.get("forced_checkpoints", 0) for each in done) / max(taken, 1))


class Feeder(threading.Thread):
    """Rows at a fixed rate. The number of each is the microsecond at which it was appended, and a little more, so that
    keys differ; `x` of the output is a seventh of it."""

    def __init__(self, log: Path, rate: int) -> None:
        super().__init__(daemon=True)
        self._log = log
        self._rate = rate
        self.over = threading.Event()

    def run(self) -> None:
        began, sent = time.monotonic(), 0
        with LogWriter(self._log, 2) as writer:
            while not self.over.wait(SLOT):
                due = int((time.monotonic() - began) * self._rate)
                for partition in (0, 1):
                    now = time.time_ns() // 1000
                    fresh = [b"%d" % (now + at % 1009) for at in range(sent, due) if at % 2 == partition]
                    if fresh:
                        writer.append_many(partition, fresh)
                sent = max(sent, due)


def steady(spark: Any, side: str, rate: int, seconds: float, load: Load, found: Found) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        base, log = Path(folder), Path(folder, "log")
        LogWriter(log, 2).close()
        sink = clonos.sinks.sql(f"sqlite:///{base}/out.db", "out", durable=False)
        query = start(spark, side, log, base, load, sink)
        feeder = Feeder(log, rate)
        feeder.start()
        try:
            next(follow(base / "out.db", "x", WARM_SECONDS))
            for _ in follow(base / "out.db", "x", seconds, from_now=True):  # until it is warm
                pass
            found.latencies += [
                (now - x * 7 / 1e6) * 1000
                for now, (x,) in follow(base / "out.db", "x", seconds, from_now=True)
            ]
            if side != "none":
                found.pauses.append(pause(query, base / "out.db", 3 * seconds))
        finally:
            feeder.over.set()
            feeder.join()
            query.stop()


def pause(query: Any, database: Path, seconds: float) -> float:
    """The longest time without a visible row from the death of a replica on."""
    os.kill(replicas(query, 2)[0]["pid"], signal.SIGKILL)
    last, longest = time.time(), 0.0
    for now, _ in follow(database, "x", seconds, from_now=True):
        longest, last = max(longest, now - last), now
    return longest


def lines(sides: dict[str, Found]) -> Iterator[str]:
    heads = ("rows/s", "of none", "B/row", "forced", "ckpts/s", "p50 ms", "p99 ms", "pause s")
    yield " ".join(
        [" " * 21, *(f"{head:>{width}}" for head, width in zip(heads, (9, 8, 7, 7, 8, 9, 9, 9), strict=True))]
    )
    plain = sides["none"].rates
    for side, found in sides.items():
        of_none = statistics.median(a / b for a, b in zip(found.rates, plain, strict=True))
        quantiles = statistics.quantiles(found.latencies, n=100)
        paused = f"{statistics.median(found.pauses):9.2f}" if found.pauses else f"{'-':>9}"
        yield (
            f"{side:>21} {statistics.median(found.rates):9,.0f} {of_none:8.2f} "
            f"{statistics.median(found.delta_bytes):7.1f} {statistics.median(found.forced):7.2f} "
            f"{statistics.median(found.checkpoints):8.2f} "
            f"{quantiles[49]:9.1f} {quantiles[98]:9.1f} {paused}"
            f"   rows/s [{min(found.rates):,.0f} .. {max(found.rates):,.0f}]"
            + (f", pause [{min(found.pauses):.2f} .. {max(found.pauses):.2f}]" if found.pauses else "")
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--interval", default="1s")
    parser.add_argument("--hot", type=float, default=0.0, metavar="SHARE", help="of rows that have one key")
    parser.add_argument("--postgres", metavar="URL", help="adds event_log_postgres to the sides")
    parser.add_argument("--sides", default=",".join(SIDES), help="none among them")
    options = parser.parse_args()
    from clonos.tools.bench.side import session

    spark = session(24)
    names = options.sides.split(",")
    if options.postgres:
        SIDES["event_log_postgres"] = {"recovery": "event_log", "events.url": options.postgres}
        names.append("event_log_postgres")
    sides = {side: Found() for side in names}
    load = Load(options.interval, options.hot)
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
        log = Path(folder, "log")
        hop_cost.fill(log, options.rows)
        for number in range(options.rounds):
            for side in sorted(sides, reverse=number % 2 == 1):
                drain(spark, side, log, options.rows, load, sides[side])
                steady(spark, side, options.rate, options.seconds, load, sides[side])
                print(f"round {number}: {side} {sides[side].rates[-1]:,.0f} rows/s", flush=True)
    spark.stop()
    print(*lines(sides), sep="\n")


if __name__ == "__main__":
    main()

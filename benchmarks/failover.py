"""Failover in Real-Time Mode: from the SIGKILL of a replica to the next visible output of what it was responsible for.

Two causal operators in a row, two instances each, with about 10 MB of keyed state per instance of the first. Records
come at a steady rate; now and then one replica is killed. Counted is the time until the first row is visible whose
input was appended after the kill and whose way leads through the killed instance. Kills around the end of a batch,
where Spark pauses by itself, are reported apart. Neither the query nor a task may restart.

    python benchmarks/failover.py [--kills 24] [--rate 1000] [--megabytes 10] [--standbys 1]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chains import session

import clonos
from clonos.core.destination import destination
from clonos.source.writer import LogWriter

INSTANCES = 2
ENTRY_BYTES = 1000
BATCH_SECONDS = 30
AROUND_BOUNDARY = 2.0
SLOT = 0.002
BUCKETS = 100
PHASES = ("state", "log", "function", "replay")
SCHEMA = "k string, n bigint, b string, sent bigint"


def remember(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    state = ctx.state
    state["n"] = n = state.get("n", 0) + 1
    if n == 1:
        state["filling"] = ctx.random.randbytes(ENTRY_BYTES)
    yield key[0], n, str(ctx.random.randrange(BUCKETS)), row.sent


def pass_on(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.k, row.n, row.b, row.sent


def record(key: int) -> bytes:
    return json.dumps({"k": f"k{key}", "sent": time.time_ns() // 1000}).encode()


class Feeder(threading.Thread):
    """Every key once, as fast as it goes; after that a steady rate of random keys."""

    def __init__(self, log: str, keys: int, rate: int) -> None:
        super().__init__(daemon=True)
        self._log, self.keys, self._rate = log, keys, rate
        self.steady = threading.Event()
        self.done = threading.Event()

    def run(self) -> None:
        with LogWriter(self._log, 2) as writer:
            for partition in (0, 1):
                writer.append_many(partition, [record(key) for key in range(partition, self.keys, 2)])
            self.steady.wait()
            start, sent = time.monotonic(), 0
            while not self.done.is_set():
                due = int((time.monotonic() - start) * self._rate)
                for number in range(sent, due):
                    writer.append(number % 2, record(random.randrange(self.keys)))
                writer.flush()
                sent = max(sent, due)
                time.sleep(SLOT)


class Output:
    """The table, as the outside sees it."""

    def __init__(self, path: Path) -> None:
        while not path.exists():
            time.sleep(0.05)
        self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        self._last = 0

    def fresh(self) -> list[tuple[Any, ...]]:
        """Rows that have become visible since the last look."""
        try:
            found = self._connection.execute(
                "select rowid, k, b, sent from out where rowid > ? order by rowid", (self._last,)
            ).fetchall()
        except sqlite3.OperationalError:
            return []
        if found:
            self._last = found[-1][0]
        return [row[1:] for row in found]

    def count(self) -> int:
        try:
            return int(self._connection.execute("select count(*) from out").fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    def close(self) -> None:
        self._connection.close()


def start(spark: Any, log: str, folder: str, standbys: int) -> Any:
    from pyspark.sql import functions as f

    raw = spark.readStream.format("clonos").load(log)
    parsed = raw.select(f.from_json(f.col("value").cast("string"), "k string, sent bigint").alias("j"))
    return (
        clonos.causal(parsed.select("j.*"))
        .groupBy("k")
        .process(remember, SCHEMA, name="remember", parallelism=INSTANCES, standbys=standbys)
        .groupBy("b")
        .process(pass_on, SCHEMA, name="pass_on", parallelism=INSTANCES, standbys=standbys)
        .writeStream.to(clonos.sinks.sql(f"sqlite:///{folder}/out.db", "out"))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(realTime=f"{BATCH_SECONDS} seconds")
        .start()
    )


def kill_one(query: Any, output: Output) -> tuple[float, float, tuple[int, int]]:
    """When, how many milliseconds until the next row, and who (node, instance)."""
    victim = random.choice([r for r in query.replicas() if r["node"] in (2, 3) and not r["standby"]])
    who, column = (victim["node"], victim["instance"]), victim["node"] - 2
    output.fresh()
    at = time.time()
    os.kill(victim["pid"], signal.SIGKILL)
    while True:
        for row in output.fresh():
            if row[2] >= at * 1e6 and destination((row[column],), INSTANCES) == who[1]:
                return at, (time.time() - at) * 1000, who
        if time.time() - at > 60:
            raise TimeoutError(f"no output for a minute: {query.causal_status()}")
        time.sleep(0.0005)


def phases(query: Any, who: tuple[int, int], since: float) -> list[float] | None:
    """Of an instance's recovery from a kill, by its own account, in milliseconds: in all, and PHASES."""
    for recovery in reversed(query.causal_status()["recoveries"]):
        if (recovery["node"], recovery["instance"]) == who and recovery["at"] >= since:
            return [recovery["ms"], *(recovery["phases"].get(name, 0.0) for name in PHASES)]
    return None


def commits(folder: str) -> list[float]:
    return [path.stat().st_mtime for path in Path(folder, "checkpoint", "commits").glob("[0-9]*")]


def quantiles(values: list[float]) -> str:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return f"median {cuts[49]:6.0f}   p90 {cuts[89]:6.0f}   p99 {cuts[98]:6.0f}   worst {max(values):6.0f}"


def measure(spark: Any, options: argparse.Namespace, folder: str) -> None:
    log = f"{folder}/in"
    LogWriter(log, 2).close()
    feeder = Feeder(log, options.megabytes * 1_000_000 * INSTANCES // ENTRY_BYTES, options.rate)
    query = start(spark, log, folder, options.standbys)
    samples: list[tuple[float, float, list[float] | None]] = []
    try:
        feeder.start()
        output = Output(Path(folder, "out.db"))
        while output.count() < feeder.keys or not commits(folder):
            time.sleep(0.1)
        feeder.steady.set()
        time.sleep(5.0)
        while len(samples) < options.kills:
            time.sleep(random.uniform(1.0, 3.0))
            at, spent, who = kill_one(query, output)
            samples.append((at, spent, phases(query, who, at)))
            print(
                f"{len(samples):>4}  operator {who[0]} instance {who[1]}  {spent:7.1f} ms  {samples[-1][2]}"
            )
        output.close()
        time.sleep(3.0)
        ends, restarts = commits(folder), query.restarts
    finally:
        feeder.steady.set()
        feeder.done.set()
        feeder.join()
        query.stop()
    quiet = [s for s in samples if all(abs(s[0] - end) > AROUND_BOUNDARY for end in ends)]
    print(
        f"{len(samples)} kills, {len(samples) - len(quiet)} of them around the end of a batch; restarts: {restarts}"
    )
    print(f"kill to next output, ms      {quantiles([s[1] for s in quiet])}")
    known = [s[2] for s in quiet if s[2] is not None]
    for name, column in zip(("recovery in all", *(f"  {name}" for name in PHASES)), zip(*known)):
        print(f"{name:<28} {quantiles(list(map(float, column)))}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--rate", type=int, default=1000, help="records a second")
    parser.add_argument("--megabytes", type=int, default=10, help="keyed state per instance")
    parser.add_argument("--standbys", type=int, choices=(0, 1), default=0)
    options = parser.parse_args()
    spark = session(12)
    with tempfile.TemporaryDirectory() as folder:
        measure(spark, options, folder)
    spark.stop()


if __name__ == "__main__":
    main()

"""Latency in Real-Time Mode: from the append of a record to the visibility of its output in the SQLite sink.

Records are appended at a steady rate over two partitions, go through two causal operators and become visible; a
reader of the database polls for new rows every millisecond and compares its clock with the one in the record. Around
the end of each batch, where Spark pauses for about a second, samples are left out and reported apart. The native side
is the same two functions as `mapInArrow` with Spark's best settings, in the same session, in turn at every rate.

    python benchmarks/latency.py [--rates 1000,5000] [--seconds 20] [--native] [--conf KEY=VALUE]
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from chains import causal_query, native_query, record, session

from clonos.sources.log_writer import LogWriter

BATCH_SECONDS = 30
AROUND_BOUNDARY = 2.0
WARM_UP = 30.0
SLOT = 0.005


class Feeder(threading.Thread):
    """Appends at a steady rate until told to stop."""

    def __init__(self, log: str, rate: int) -> None:
        super().__init__(daemon=True)
        self._writer = LogWriter(log, 2)
        self._rate = rate
        self.done = threading.Event()
        self.sent = 0

    def run(self) -> None:
        start = time.monotonic()
        while not self.done.is_set():
            due = int((time.monotonic() - start) * self._rate)
            fresh = range(self.sent, due)
            for partition in (0, 1):
                records = [record(i) for i in fresh if i % 2 == partition]
                if records:
                    self._writer.append_many(partition, records)
            self.sent = max(self.sent, due)
            time.sleep(SLOT)
        self._writer.close()


def follow(
    database: Path, columns: str, seconds: float, *, from_now: bool = False
) -> Iterator[tuple[float, list[Any]]]:
    """(time of visibility, values of `columns`) of every row that is there, or only of those that come, for so many
    seconds."""
    while not database.exists():
        time.sleep(0.01)
    text = f"select rowid, {columns} from out where rowid > ? order by rowid"
    end = time.time() + seconds
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, isolation_level=None)) as connection:
        last = connection.execute("select coalesce(max(rowid), 0) from out").fetchone()[0] if from_now else 0
        while time.time() < end:
            try:
                rows = connection.execute(text, (last,)).fetchall()
            except sqlite3.OperationalError:
                rows = []
            now = time.time()
            if rows:
                last = rows[-1][0]
                yield from ((now, values) for _, *values in rows)
            else:
                time.sleep(0.001)


def away_from_commits(checkpoint: Path) -> Callable[[float], bool]:
    """Whether a moment is away from the ends of batches, where Spark pauses."""
    commits = [path.stat().st_mtime for path in checkpoint.glob("commits/[0-9]*")]
    return lambda moment: all(abs(moment - commit) > AROUND_BOUNDARY for commit in commits)


def run_side(spark: Any, side: str, rate: int, seconds: float, base: str) -> str:
    folder, log = f"{base}/{side}-{rate}", f"{base}/in-{side}-{rate}"
    LogWriter(log, 2).close()
    build = native_query if side == "native" else causal_query
    query = build(spark, log, folder, {"realTime": f"{BATCH_SECONDS} seconds"})
    feeder = Feeder(log, rate)
    try:
        feeder.start()
        started = time.time()
        seen = follow(Path(folder, "out.db"), "sent", seconds + WARM_UP)
        samples = [(now, now * 1000 - sent / 1000) for now, (sent,) in seen]
        kept_pace = len(samples) > 0.95 * feeder.sent - rate
        is_quiet = away_from_commits(Path(folder, "checkpoint"))
    finally:
        feeder.done.set()
        feeder.join()
        query.stop()
    steady = [s for s in samples if s[0] > started + WARM_UP]
    quiet = [latency for at, latency in steady if is_quiet(at)]
    if len(quiet) < 100:
        return f"{rate:>8} {side:>8}  too few rows became visible ({len(samples)} of {feeder.sent})"
    q = statistics.quantiles(quiet, n=100)
    everything = statistics.quantiles([latency for _, latency in steady], n=100)
    pace = "" if kept_pace else "   does not keep pace"
    return (
        f"{rate:>8} {side:>8} {q[49]:>9.1f} {q[94]:>9.1f} {q[98]:>9.1f} {everything[49]:>12.1f} {everything[98]:>9.1f} "
        f"{len(quiet):>9}{pace}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", default="1000,5000")
    parser.add_argument("--seconds", type=float, default=24)
    parser.add_argument("--native", action="store_true")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of the session"
    )
    options = parser.parse_args()
    sides = ["causal"] + (["native"] if options.native else [])
    spark = session(12, **dict(setting.split("=", 1) for setting in options.conf))
    print("    rate     side   p50 ms    p95 ms    p99 ms   with batch ends: p50 p99      rows")
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as base:
        for rate in map(int, options.rates.split(",")):
            for side in sides:
                print(run_side(spark, side, rate, options.seconds, base), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

"""Where the time of a record goes in Real-Time Mode: hop by hop, and whose processor time it takes.

The job of `latency.py` at one steady rate. Each output row holds the time of its append and the two clocks that its
operators recorded, one per bundle, so the database says how long a record was under way to the first operator, to the
second, and into the sink; samples around the ends of batches are left out. Meanwhile the processor time of every
process and of the JVM's threads is read from /proc, and divided by the records.

    python benchmarks/hops.py [--rate 1000] [--seconds 20] [--conf KEY=VALUE]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chains import causal_query, session
from latency import BATCH_SECONDS, WARM_UP, Feeder, away_from_commits, follow

from clonos.sources.log_writer import LogWriter

TICKS = os.sysconf("SC_CLK_TCK")
JVM = "JVM, of which"
HOPS = ("append to first", "first to second", "second to visible", "all")


def processor_time(query: Any, jvm: int) -> dict[tuple[str, str], float]:
    """Seconds so far, by who spent them: role, and its stat file."""
    status = query.causal_status()
    names = {2: "first", 3: "second", 4: "sink"}
    whom = [
        (f"replicas of {names[replica['node']]}", f"/proc/{replica['pid']}/stat")
        for replica in status["replicas"]
    ]
    whom += [("replica server", f"/proc/{status['pid']}/stat"), (JVM, f"/proc/{jvm}/stat"), *threads(jvm)]
    return {(who, stat): seconds_of(stat) for who, stat in whom}


def threads(pid: int) -> Iterator[tuple[str, str]]:
    """Name, without numbers, and stat file of each thread."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        yield f"  {re.sub(r'[-# ]*[0-9].*$', '', name) or name}", str(task / "stat")


def seconds_of(stat: str) -> float:
    fields = Path(stat).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def report(samples: list[tuple[float, ...]], is_quiet: Callable[[float], bool]) -> None:
    """Of samples of append, first's clock, second's clock and visibility, in seconds."""
    quiet = [sample for sample in samples if is_quiet(sample[3])]
    print(f"{'hop':<22} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8}   ({len(quiet)} rows)")
    for number, hop in enumerate(HOPS):
        first, last = (number, number + 1) if number < 3 else (0, 3)
        cuts = statistics.quantiles([(sample[last] - sample[first]) * 1000 for sample in quiet], n=100)
        print(f"{hop:<22} {cuts[49]:>8.1f} {cuts[94]:>8.1f} {cuts[98]:>8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    spark = session(12, **dict(setting.split("=", 1) for setting in options.conf))
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as base:
        LogWriter(f"{base}/in", 2).close()
        query = causal_query(spark, f"{base}/in", f"{base}/out", {"realTime": f"{BATCH_SECONDS} seconds"})
        feeder = Feeder(f"{base}/in", options.rate)
        try:
            feeder.start()
            time.sleep(WARM_UP)
            before = processor_time(query, jvm)
            seen = follow(Path(base, "out/out.db"), "sent, at, at2", options.seconds, from_now=True)
            samples = [(*(us / 1e6 for us in stamps), now) for now, stamps in seen]
            spent = processor_time(query, jvm)
            is_quiet = away_from_commits(Path(base, "out/checkpoint"))
        finally:
            feeder.done.set()
            feeder.join()
            query.stop()
    spark.stop()
    report(samples, is_quiet)
    used: dict[str, float] = defaultdict(float)
    for whom, seconds in spent.items():
        used[whom[0]] += seconds - before.get(whom, 0.0)
    print(f"\n{'who':<34} {'µs of processor a record':>24}")
    for who, spent_by in sorted(used.items(), key=lambda each: -each[1]):
        print(f"{who:<34} {spent_by / len(samples) * 1e6:>24.0f}")


if __name__ == "__main__":
    main()

"""How fast the NexMark generator is: events per second of one core, made only, made as records, and written to a log.

The three are measured in turn, round by round, in CPU time of the one thread that does it: other work on the machine
counts against none of them, and waiting for the disk is not counted.

    python benchmarks/nexmark_generator.py [--rounds 30] [--events 100000] [--partitions 2]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

from clonos.tools.nexmark.events import events
from clonos.tools.nexmark.feed import AT_ONCE, EventLogs
from clonos.tools.nexmark.payload import payloads
from clonos.tools.nexmark.workload import Kind, Workload


def make(workload: Workload, first: int, count: int) -> None:
    for start in range(first, first + count, AT_ONCE):
        made = events(workload, start, AT_ONCE)
        for kind in Kind:
            made.batch(kind)


def serialise(workload: Workload, first: int, count: int) -> None:
    for start in range(first, first + count, AT_ONCE):
        made = events(workload, start, AT_ONCE)
        for kind in Kind:
            payloads(made.batch(kind))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=2)
    options = parser.parse_args()
    workload = Workload()
    serialise(workload, 0, AT_ONCE)  # what a seed needs once
    rates: dict[str, list[float]] = {"made": [], "made as records": [], "written": []}
    with (
        tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder,
        EventLogs(workload, folder, options.partitions) as logs,
    ):
        tasks: dict[str, Callable[[int, int], None]] = {
            "made": lambda first, count: make(workload, first, count),
            "made as records": lambda first, count: serialise(workload, first, count),
            "written": logs.write,
        }
        for number in range(options.rounds):
            for name, task in tasks.items():
                before = time.thread_time()
                task(number * options.events, options.events)
                rates[name].append(options.events / (time.thread_time() - before))
    print(f"{'events/s of one core':>22} {'median':>11}   {'p10 .. p90':>23}")
    for name, found in rates.items():
        deciles = statistics.quantiles(found, n=10)
        print(
            f"{name:>22} {statistics.median(found):>11,.0f}   {deciles[0]:>10,.0f} .. {deciles[-1]:>10,.0f}"
        )


if __name__ == "__main__":
    main()

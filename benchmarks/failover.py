"""Failover: from the SIGKILL of a process with user code to the next visible output of what it was responsible for.

Two operators in a row, two instances each, with keyed state in the first. Records come at a steady rate; now and then
one process is killed. Counted is the time until the first row is visible whose input was appended after the kill and
whose way leads through what was killed. Kills around the end of a batch in Real-Time Mode, where Spark pauses by
itself, are reported apart. Sides take turns, each with a query of its own in every round, in one Spark session:

- *cold*, *passive*, *hot*: causal operators without a standby, and with one of each kind. Neither the query nor a task
  may restart. The next kill waits until standbys are back.
- *native*: the same functions as Spark's own Python stages. In Real-Time Mode the query fails with its worker and is
  started again at once by hand, its state gone; what counts is what is visible after that. In micro-batch mode Spark
  runs the task again, with the state of its last batch.

Beside it stands what a neighbour sees: the latency of rows appended within a second of a kill whose way does not lead
through what was killed, and of rows appended away from kills.

    python benchmarks/failover.py [--sides cold,passive,hot,native] [--kills 30] [--rounds 3] [--rate 200]
                                  [--megabytes 10] [--keys N] [--burst 0] [--mode realtime|microbatch]
                                  [--conf KEY=VALUE]

With `--keys` only so many keys are still used when the state is there; without, all of them, at random, so that with
much state nearly every record reads from and writes to RocksDB.
With `--burst` so many records for each instance come at once before a causal side is struck, as soon as they are
through: what a recovery has to repeat of them is what came since the last snapshot, and it is told how much that was.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chains import session
from failover_sides import ENTRY_CHARACTERS, INSTANCES, Causal, Feeder, Kill, Native, Watch

from clonos.sources.log_writer import LogWriter

TRIGGERS: dict[str, dict[str, Any]] = {
    "realtime": {"realTime": "30 seconds"},
    "microbatch": {"processingTime": "0 seconds"},
}
SIDES = ("cold", "passive", "hot", "native")
AROUND_BOUNDARY_S = 2.0
NEIGHBOURLY_S = 1.0
WARM_UP_S = 5.0


@dataclass
class Found:
    """Of one side, over all rounds."""

    kills: list[Kill] = field(default_factory=list)
    apart: int = 0
    restarts: int = 0
    beside: list[float] = field(default_factory=list)
    calm: list[float] = field(default_factory=list)


def commits(folder: Path) -> list[float]:
    return [path.stat().st_mtime for path in (folder / "checkpoint" / "commits").glob("[0-9]*")]


def run(spark: Any, name: str, folder: Path, kills: int, options: argparse.Namespace, found: Found) -> None:
    """One round of one side."""
    log = str(folder.with_name(f"in-{folder.name}"))
    LogWriter(log, 2).close()
    keys = options.megabytes * 1_000_000 * INSTANCES // ENTRY_CHARACTERS
    feeder = Feeder(log, keys, min(keys, options.keys or keys), options.rate)
    watch = Watch(folder / "out.db")
    trigger = TRIGGERS[options.mode]
    side: Causal | Native
    if name == "native":
        side = Native(spark, log, folder, trigger)
    else:
        side = Causal(spark, log, folder, trigger, None if name == "cold" else name)
    struck: list[Kill] = []
    try:
        feeder.start()
        watch.start()
        # What is natively in a worker's buffer comes with the next record.
        while len(watch.rows) < 0.99 * feeder.keys or not commits(folder):
            time.sleep(0.1)
        feeder.steady.set()
        side.await_protection()
        began = time.time()
        time.sleep(WARM_UP_S)
        for _ in range(kills):
            time.sleep(random.uniform(1.5, 3.5))
            if options.burst and name != "native":
                burst(feeder, watch, options.burst * INSTANCES)
            struck.append(kill := side.kill(watch))
            phases = ", ".join(f"{phase} {ms:.0f}" for phase, ms in kill.phases.items())
            print(f"{name:>8}  {(kill.shown - kill.at) * 1000:8.1f} ms  {phases}", flush=True)
        time.sleep(AROUND_BOUNDARY_S + NEIGHBOURLY_S)
        ends = commits(folder) if options.mode == "realtime" else []
    finally:
        for part in (feeder, watch):
            part.done.set()
        feeder.steady.set()
        feeder.join()
        watch.join()
        found.restarts += side.restarts
        side.stop()
    quiet = [kill for kill in struck if not near(kill.at, ends)]
    found.kills += quiet
    found.apart += len(struck) - len(quiet)
    neighbours(watch, began + WARM_UP_S / 2, quiet, struck, ends, found)
    shutil.rmtree(folder, ignore_errors=True)


def burst(feeder: Feeder, watch: Watch, records: int) -> None:
    """So many at once, and they have come through: each record of a causal side is one row."""
    wanted = feeder.appended + records
    feeder.more = records
    while feeder.appended < wanted or len(watch.rows) < wanted:
        time.sleep(0.001)


def near(moment: float, ends: Iterable[float], seconds: float = AROUND_BOUNDARY_S) -> bool:
    return any(abs(moment - end) <= seconds for end in ends)


def neighbours(
    watch: Watch, since: float, quiet: list[Kill], struck: list[Kill], ends: list[float], found: Found
) -> None:
    for row in watch.rows:
        if row.sent < since or near(row.sent, ends):
            continue
        latency = (row.at - row.sent) * 1000
        kill = next((kill for kill in quiet if 0 <= row.sent - kill.at < NEIGHBOURLY_S), None)
        if kill is not None and not kill.concerns(row):
            found.beside.append(latency)
        elif not near(row.sent, (kill.at for kill in struck), 2 * NEIGHBOURLY_S):
            found.calm.append(latency)


def quantiles(values: list[float]) -> str:
    if len(values) < 2:
        return "too few"
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return f"median {cuts[49]:8.0f}   p90 {cuts[89]:8.0f}   p99 {cuts[98]:8.0f}   worst {max(values):8.0f}"


def report(name: str, found: Found) -> None:
    print(
        f"\n{name}: {len(found.kills)} kills, {found.apart} more around ends of batches; restarts: {found.restarts}"
    )
    print(
        f"  kill to next output, ms      {quantiles([(kill.shown - kill.at) * 1000 for kill in found.kills])}"
    )
    names = dict.fromkeys(phase for kill in found.kills for phase in kill.phases)
    for phase in names:
        values = [kill.phases[phase] for kill in found.kills if phase in kill.phases]
        print(f"    {phase:<26} {quantiles(values)}")
    print(f"  neighbours, latency in ms    {quantiles(found.beside)}")
    print(f"  away from kills              {quantiles(found.calm)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sides", default="cold,passive,hot,native")
    parser.add_argument("--kills", type=int, default=30, help="of each side")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=200, help="records a second")
    parser.add_argument("--megabytes", type=int, default=10, help="keyed state per instance")
    parser.add_argument("--keys", type=int, default=0, help="that are used, of those in the state; 0: all")
    parser.add_argument("--burst", type=int, default=0, help="records for each instance before each kill")
    parser.add_argument("--mode", choices=tuple(TRIGGERS), default="realtime")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="of the session")
    options = parser.parse_args()
    names = options.sides.split(",")
    if unknown := set(names) - set(SIDES):
        parser.error(f"--sides: {', '.join(sorted(unknown))} is none of {', '.join(SIDES)}")
    spark = session(12, **dict(setting.split("=", 1) for setting in options.conf))
    found = {name: Found() for name in names}
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as base:
        for number in range(options.rounds):
            kills = options.kills * (number + 1) // options.rounds - options.kills * number // options.rounds
            for name in names if number % 2 == 0 else reversed(names):
                run(spark, name, Path(base, f"{name}-{number}"), kills, options, found[name])
    spark.stop()
    for name in names:
        report(name, found[name])


if __name__ == "__main__":
    main()

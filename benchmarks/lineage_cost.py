"""What recording lineage costs: rows a second, processor time of the replicas, bytes a row; and how fast it is read.

A log that is full before the query starts is drained in one epoch of real time by a chain of two keyed operators, as in
`archive_cost.py`, with an archive, and with one in which lineage is recorded. The sides take turns in one session, each
round the other one first. How many rows a second there are depends on what else the machine does; the processor time of
the replicas for a row hardly does. Then the lineage of a row is asked for, where it was recorded and where it was not.

    python benchmarks/lineage_cost.py [--rows 400000] [--rounds 5] [--asked 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path

import hop_cost
from archive_cost import KEPT, LENGTH, Drained, command, drain, size_of

SIDES = {"without": KEPT, "with": {**KEPT, "spark.clonos.archive.lineage": "true"}}


def spread(values: Iterable[float], form: str) -> str:
    """The median, and from which to which they are."""
    found = sorted(values)
    return f"{statistics.median(found):{form}} [{found[0]:{form}} .. {found[-1]:{form}}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--asked", type=int, default=3, help="commands for each side")
    options = parser.parse_args()
    from clonos.tools.bench.side import session

    spark = session(24)
    found: dict[str, list[Drained]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
        log = Path(folder, "log")
        hop_cost.fill(log, options.rows)
        for number in range(-1, options.rounds):  # the first round is for the JVM
            for side in sorted(SIDES, reverse=number % 2 == 1):
                base = Path(folder, f"{side}-{number}")
                drained = drain(spark, log, base, options.rows, SIDES[side])
                print(
                    f"round {number}: {side:>7} {drained.rate:,.0f} rows/s, {1e6 * drained.spent:.2f} us",
                    flush=True,
                )
                if number >= 0:
                    found[side].append(drained)
        spark.stop()
        last = {side: Path(folder, f"{side}-{options.rounds - 1}", "checkpoint") for side in SIDES}
        sizes = {
            side: size_of(checkpoint / "clonos" / "archive" / "segments") / options.rows
            for side, checkpoint in last.items()
        }
        row = f"{LENGTH + 1}-0-{options.rows // 4}"
        times = {
            side: [command("lineage", str(checkpoint), row) for _ in range(options.asked)]
            for side, checkpoint in last.items()
        }
    for side, rounds in found.items():
        rates, spent = (
            spread((each.rate for each in rounds), ",.0f"),
            spread((1e6 * each.spent for each in rounds), ".2f"),
        )
        print(f"{side:>7} {rates} rows/s, {spent} us of processor time of the replicas for a row")
        print(f"{side:>7} {sizes[side]:.2f} bytes a row of segments, of {LENGTH} operators together")
        print(
            f"{side:>7} {spread(times[side], '.1f')} s for the lineage of a row, with the start of the command"
        )
    pairs = list(zip(found["with"], found["without"], strict=True))
    print(f"with / without: rows a second {spread((a.rate / b.rate for a, b in pairs), '.3f')}, ", end="")
    print(f"processor time {spread((a.spent / b.spent for a, b in pairs), '.3f')}")


if __name__ == "__main__":
    main()

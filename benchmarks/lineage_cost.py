"""What recording lineage costs, beside an archive without it: in the replica, of a whole query, and bytes a row.

Of the replica: bundles go into a real operator host, as in `replica_overhead.py`, whose function does next to nothing,
with and without, bundle by bundle in turn, in thread CPU time; after each round all of it is archived, which is
counted, too. The ratio is taken per round. The functions give one row for each record, or none and two in turns, which
is the most that lineage has to say. Of the query: a log that is full before is drained in one epoch of real time by a
chain of two keyed operators, as in `archive_cost.py`, in turns in one session; then the lineage of a row is asked for.
What bounds its rows a second is the processor time of all processes for a row, which is printed, too: it depends less
on what else the machine does.

    python benchmarks/lineage_cost.py [--rounds 40] [--drains 3] [--rows 400000]
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hop_cost
from archive_cost import KEPT, LENGTH, Drained, command, drain, size_of
from replica_overhead import (
    INPUT,
    NODE,
    WARM_UP,
    bundles_per_round,
    in_turns,
    make_bundles,
    make_host,
)

from clonos.operators.process import ProcessOperator
from clonos.protocol.ids import LOG_BEGIN
from clonos_standby.cluster.spec import NodeSpec, Route, RouteKind
from clonos_standby.replica.operator_host import OperatorHost

CHANNELS = 2
SIZES = (10, 100, 1000, 4096)
"""Records of a bundle: thousands where a query is at its limit."""
DAY_S = 86_400.0
SIDES = {"without": KEPT, "with": {**KEPT, "spark.clonos.archive.lineage": "true"}}


def one(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield row


def none_or_two(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    if int(row[1]) % 2:
        yield row
        yield row


def node(function: Callable[..., Any]) -> NodeSpec:
    return NodeSpec(
        number=NODE,
        name="operator",
        input=INPUT,
        operator=functools.partial(ProcessOperator, function, INPUT, name="operator"),
        key=(0,),
        output=INPUT,
        routes=(Route(RouteKind.KEY, 2, (0,)),),
    )


def archive(host: OperatorHost) -> None:
    """What has come since."""
    archivist = host._archivist
    assert archivist is not None
    archivist.cut(host.session.request, host.live.snapshot(), own_from=LOG_BEGIN, is_end=False)
    archivist.write_due()


def spread(values: Iterable[float], form: str) -> str:
    """The median, and between which the middle half is."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:{form}} [{low:{form}} .. {high:{form}}]"


def of_the_replica(function: Callable[..., Any], rows: int, rounds: int, base: str) -> str:
    bundles = make_bundles(bundles_per_round(rows) * (rounds + WARM_UP), rows, CHANNELS)
    places = [f"{base}/{function.__name__}-{rows}-{side}" for side in ("with", "without")]
    hosts = [
        make_host(place, node(function), archive_keep=DAY_S, archive_lineage=lineage)
        for place, lineage in zip(places, (True, False), strict=True)
    ]
    recorded, not_recorded = in_turns((hosts[0], hosts[1]), bundles, rounds, archive)
    for host in hosts:
        host.close()
    records = len(bundles) * rows
    sizes = [
        size_of(Path(place, "checkpoint", "clonos", "archive", "segments")) / records for place in places
    ]
    scale = 1e9 * (rounds + WARM_UP) / records
    costs = (100 * (a / b - 1) for a, b in zip(recorded, not_recorded, strict=True))
    return (
        f"{function.__name__:>12} {rows:>6} {statistics.median(recorded) * scale:>9,.0f} "
        f"{statistics.median(not_recorded) * scale:>9,.0f}   {spread(costs, '.2f'):<25} "
        f"{sizes[0]:>7.2f} {sizes[1]:>7.2f}"
    )


def of_the_query(rows: int, drains: int) -> None:
    from clonos.tools.bench.side import session

    spark = session(24)
    found: dict[str, list[Drained]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
        log = Path(folder, "log")
        hop_cost.fill(log, rows)
        for number in range(-1, drains):  # the first round is for the JVM
            for side in sorted(SIDES, reverse=number % 2 == 1):
                drained = drain(spark, log, Path(folder, f"{side}-{number}"), rows, SIDES[side])
                if number >= 0:
                    found[side].append(drained)
        spark.stop()
        for side, each in found.items():
            checkpoint = Path(folder, f"{side}-{drains - 1}", "checkpoint")
            size = size_of(checkpoint / "clonos" / "archive" / "segments") / rows
            asked = [command("lineage", str(checkpoint), f"{LENGTH + 1}-0-{rows // 4}") for _ in range(3)]
            print(
                f"{side:>7}: {spread((one.rate for one in each), ',.0f')} rows/s, "
                f"{spread((1e6 * one.spent for one in each), '.2f')} us of the replicas for a row, "
                f"{spread((1e6 * one.in_all for one in each), '.2f')} us with Spark, "
                f"{size:.2f} B/row, the lineage of a row in {min(asked):.1f} s"
            )
    pairs = list(zip(found["with"], found["without"], strict=True))
    print(f"rows/s, with over without: {spread((a.rate / b.rate for a, b in pairs), '.3f')}")
    for what, ratios in (
        ("of the replicas", [a.spent / b.spent for a, b in pairs]),
        ("of all processes", [a.in_all / b.in_all for a, b in pairs]),
    ):
        print(f"processor time {what}, with over without: {spread(ratios, '.3f')}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40, help="of the replica")
    parser.add_argument("--drains", type=int, default=3, help="of the query, for each side; 0: none")
    parser.add_argument("--rows", type=int, default=400_000, help="that the query drains")
    options = parser.parse_args()
    print("    function  rows of     with   without   costs, %  quartiles        bytes a record")
    print("             a bundle      ns/record                                 with without")
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as base:
        for function in (one, none_or_two):
            for rows in SIZES:
                print(of_the_replica(function, rows, options.rounds, base), flush=True)
    if options.drains:
        of_the_query(options.rows, options.drains)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()

"""What blocks of few rows cost a replica: as MessagePack and as Arrow arrays, to make and to read.

Rows of a step go to two destinations, are encoded, digested and packed into blocks, and the blocks are read again, by
the code that a replica runs, both ways in turns in one process.

    python benchmarks/small_blocks.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import datetime as dt
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

from clonos.operators import packed_rows
from clonos.operators.types import arrow_schema
from clonos.protocol.ids import Epoch, InstanceId, LogOffset, NodeId, Origin, OutputNumber
from clonos.protocol.ports import Emit
from clonos.protocol.side_output import MAIN
from clonos.wire.messages import Bundle
from clonos_standby.replica.batches import BundleReader, OutputWriter
from clonos_standby.server.spares import YOUNG_OBJECTS

SIZES = (1, 2, 5, 10, 30, 64, 100, 300, 1000)
ROUND_SECONDS = 0.02
PACKED, ARROW = 1 << 30, 0
SCHEMAS = {
    "5 columns": (
        "a string, b string, n bigint, x double, text string",
        lambda n: (f"a{n}", f"b{n}", n, n / 7, "t" * 20),
    ),
    "8 columns, one of them times": (
        "k string, n bigint, id string, draw bigint, at timestamp, prev string, hash string, sent bigint",
        lambda n: (
            f"k{n}",
            n,
            str(n),
            n * 7,
            dt.datetime(2026, 1, 1, microsecond=n),
            "p" * 16,
            "h" * 16,
            n,
        ),
    ),
}


def spent(work: Callable[[], Any]) -> float:
    """Microseconds of processor time a call."""
    calls, began = 0, time.thread_time()
    while (took := time.thread_time() - began) < ROUND_SECONDS:
        work()
        calls += 1
    return took / calls * 1e6


def sides(ddl: str, row: Callable[[int], Any], count: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """To make blocks, and to read them."""
    schema = arrow_schema(ddl)
    writer = OutputWriter({MAIN: schema}, "UTC", "op", Origin.of(NodeId(2), InstanceId(0)))
    reader = BundleReader(schema, "UTC")
    rows = [row(n) for n in range(count)]
    destinations = [[n % 2 for n in range(count)]]

    def make() -> Any:
        encoded = writer.encode(rows)
        _ = encoded.digest
        end = OutputNumber(count)
        emit = Emit(OutputNumber(1), count, encoded, destinations, {}, LogOffset(0), b"", end, {})
        return writer.blocks(emit, Epoch(1))

    bundle = Bundle(1, count, tuple(memoryview(block) for _, block in make()))
    return make, lambda: reader.read(bundle, Epoch(1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    gc.set_threshold(YOUNG_OBJECTS)  # as in a replica
    for name, (ddl, row) in SCHEMAS.items():
        print(f"{name}: us to make + to read the blocks of so many rows")
        for count in SIZES:
            made: dict[int, tuple[Callable[[], Any], Callable[[], Any]]] = {}
            for few in (PACKED, ARROW):
                packed_rows.FEW = few  # type: ignore[misc]
                made[few] = sides(ddl, row, count)
            found: dict[tuple[int, int], list[float]] = {}
            for _ in range(rounds):
                for few, works in made.items():
                    packed_rows.FEW = few  # type: ignore[misc]
                    for part, work in enumerate(works):
                        found.setdefault((few, part), []).append(spent(work))
            each = sorted(
                (p + q) / (a + b)
                for p, q, a, b in zip(
                    found[PACKED, 0], found[PACKED, 1], found[ARROW, 0], found[ARROW, 1], strict=True
                )
            )
            text = " | ".join(
                f"{label} {statistics.median(found[few, 0]):6.0f} + {statistics.median(found[few, 1]):6.0f}"
                for label, few in (("packed", PACKED), ("arrays", ARROW))
            )
            print(
                f"{count:>6} {text} | ratio {statistics.median(each):.2f} [{each[0]:.2f} .. {each[-1]:.2f}]",
                flush=True,
            )


if __name__ == "__main__":
    main()

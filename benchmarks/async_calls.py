"""What it brings that a function is async: calls of a service, one after the other and many at once.

    python benchmarks/async_calls.py [--rows 1000] [--rounds 5] [--milliseconds 2]

One instance, driven in this process without Spark, takes bundles of `--rows` records, each of which makes one recorded
call, first of so long, then of none. Sides alternate within a round. Prints milliseconds per bundle, medians with the
range, and their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import clonos
from clonos.testing.driver import OperatorDriver, stream

ROWS = "k long"
SAID = "k long, answer long"


def drivers(seconds: float) -> dict[str, OperatorDriver]:
    """By their side."""

    def blocks(n: int) -> int:
        if seconds:
            time.sleep(seconds)
        return n

    async def waits(n: int) -> int:
        if seconds:
            await asyncio.sleep(seconds)
        return n

    def one_by_one(row: Any, ctx: Any) -> Any:
        return row.k, ctx.call(blocks, row.k)

    def at_once(fn: Callable[..., Any]) -> Any:
        async def function(row: Any, ctx: Any) -> Any:
            return row.k, await ctx.call(fn, row.k)

        return function

    rows, policy = stream(ROWS), clonos.Calls(at_once=100)
    made = {
        "not async": rows.map(one_by_one, SAID, name="f"),
        "async, calls async": rows.map(at_once(waits), SAID, name="f", calls=policy),
        "async, calls in threads": rows.map(at_once(blocks), SAID, name="f", calls=policy),
    }
    return {side: OperatorDriver(each) for side, each in made.items()}


def measure(seconds: float, rows: int, rounds: int) -> None:
    records = list(range(rows))
    sides = drivers(seconds)
    took: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side, driver in sides.items():
            begun = time.perf_counter()
            said = driver.feed([(n,) for n in records])
            if number:  # the first is to get warm
                took[side].append((time.perf_counter() - begun) * 1000)
            assert [answer for _, answer in said] == records
            driver.end_epoch()
    sys.stdout.write(f"calls of {seconds * 1000:g} ms, {rows} records\n")
    base = statistics.median(took["not async"])
    for side, times in took.items():
        median = statistics.median(times)
        spread = f"{min(times):.0f} to {max(times):.0f}"
        sys.stdout.write(f"  {side:24} {median:8.0f} ms ({spread}), {base / median:.2f} of not async\n")
        sides[side].close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--milliseconds", type=float, default=2.0)
    given = parser.parse_args()
    measure(given.milliseconds / 1000, given.rows, given.rounds)
    measure(0.0, given.rows, given.rounds)


if __name__ == "__main__":
    main()

"""What a clock reading or a draw costs with `spark.clonos.intercept`, and where nothing is answered.

    python benchmarks/intercepted_calls.py [--rows 2000] [--calls 100] [--rounds 5]

One instance, driven in this process without Spark, takes bundles of `--rows` records, each of which asks `--calls`
times: without interception, with it, and with it from another thread, where the real function answers. Sides alternate
within a round. Prints microseconds per call, medians with the range; what the function costs without the calls is taken
off.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from clonos.testing.driver import OperatorDriver, stream

ASKED: dict[str, Callable[[], Any]] = {
    "time.time()": lambda: time.time(),
    "datetime.now()": lambda: datetime.now(),
    "random.random()": lambda: random.random(),
    "uuid.uuid4()": lambda: uuid.uuid4(),
    "numpy.random.random()": lambda: np.random.random(),
}


def nothing() -> None:
    return None


def seconds(driver: OperatorDriver, rows: int) -> float:
    begun = time.perf_counter()
    driver.feed([(n,) for n in range(rows)])
    took = time.perf_counter() - begun
    driver.end_epoch()
    return took


def driver_of(ask: Callable[[], Any], calls: int, *, intercept: bool, elsewhere: bool) -> OperatorDriver:
    asked = range(calls)

    def ask_all() -> None:
        for _ in asked:
            ask()

    pool = ThreadPoolExecutor(1)

    def fn(row: Any, ctx: Any) -> Any:
        if elsewhere:
            pool.submit(ask_all).result()
        else:
            ask_all()
        return (row.k,)

    return OperatorDriver(stream("k long").map(fn, "k long", name="f"), intercept=intercept)


def measure(name: str, rows: int, calls: int, rounds: int) -> None:
    sides = {"off": (False, False), "on": (True, False), "on, in another thread": (True, True)}
    took: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, (intercept, elsewhere) in sides.items():
            spent = []
            for ask in (nothing, ASKED[name]):
                with driver_of(ask, calls, intercept=intercept, elsewhere=elsewhere) as driver:
                    seconds(driver, rows)  # to get warm
                    spent.append(seconds(driver, rows))
            took[side].append((spent[1] - spent[0]) / rows / calls * 1e6)
    said = [
        f"{side} {statistics.median(times):.2f} [{min(times):.2f} .. {max(times):.2f}]"
        for side, times in took.items()
    ]
    sys.stdout.write(f"{name:24} {', '.join(said)} us\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    for name in ASKED:
        measure(name, given.rows, given.calls, given.rounds)


if __name__ == "__main__":
    main()

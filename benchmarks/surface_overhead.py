"""What the adapters cost per record beyond the user's function, as CPU time of this thread.

    python benchmarks/surface_overhead.py [--rows 1000] [--rounds 200]

Each case runs bundles of `--rows` rows over a dict as state, and is compared with a bare loop that calls the same
function's work on the same tuples. Prints nanoseconds per row, medians and spread; nothing is asserted.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from surface_services import FakeServices, opened  # noqa: E402

from clonos.operators.group_state import GroupStateOperator  # noqa: E402
from clonos.operators.process import MapOperator, ProcessOperator  # noqa: E402
from clonos.operators.record_batches import BatchOperator, FrameIteratorOperator  # noqa: E402
from clonos.operators.rows import RowDecoder, RowEncoder  # noqa: E402
from clonos.operators.transform_with_state import TransformWithStateOperator  # noqa: E402
from clonos.operators.window_contents import Aggregate  # noqa: E402
from clonos.operators.window_operator import EventTimes, WindowOperator  # noqa: E402
from clonos.operators.windows import TimeWindows  # noqa: E402

IN = pa.schema([("card", pa.string()), ("amount", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
NESTED = pa.schema([("card", pa.string()), ("seen", pa.list_(pa.int64()))])
OUT = pa.schema([("card", pa.string()), ("n", pa.int64()), ("draw", pa.float64())])
KEYS = 100
TIMES = EventTimes(2, is_local=False, zone=UTC)


def nothing(key: Any, row: Any, ctx: Any) -> None:
    return None


def ledger(key: Any, row: Any, ctx: Any) -> Any:
    state = ctx.state
    n = state["n"] = state.get("n", 0) + 1
    return ((row.card, n, ctx.random.random()),)


def ledger_yielding(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    yield from ledger(key, row, ctx)


def listing(key: Any, row: Any, ctx: Any) -> Any:
    return ((row.card, [1, 2, 3]),)


def clocked(key: Any, row: Any, ctx: Any) -> Any:
    ctx.now()
    return ledger(key, row, ctx)


def added(kept: Any, row: Any, ctx: Any) -> Any:
    return (kept or 0) + row.amount


def scored(row: Any) -> Any:
    return (row.card, row.amount * 2, row.amount / 7)


def scored_batch(batch: Any) -> Any:
    amount = batch["amount"]
    columns = [batch["card"], pc.multiply(amount, 2), pc.divide(amount.cast("double"), 7.0)]
    return pa.RecordBatch.from_arrays(columns, ["card", "n", "draw"])


def scored_frames(frames: Any) -> Iterator[Any]:
    for frame in frames:
        yield frame[["card"]].assign(n=frame.amount * 2, draw=frame.amount / 7)


def summing(key: Any, pdfs: Any, state: Any) -> Iterator[Any]:
    import pandas as pd

    (n,) = state.getOption or (0,)
    for pdf in pdfs:
        n += len(pdf)
    state.update((n,))
    yield pd.DataFrame({"card": [key[0]], "n": [n], "draw": [0.5]})


class Counter:
    """A StatefulProcessor, by its methods."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Any, times: Any) -> Iterator[Any]:
        (n,) = self.count.get() or (0,)
        for row in rows:
            n += 1
            yield (row.card, n, 0.5)
        self.count.update((n,))


def floor(keys: list[Any], rows: list[Any]) -> list[Any]:
    """The ledger's work without anything around it: what every engine would have to do."""
    out: list[Any] = []
    draw = random.Random(1).random
    states: dict[Any, dict[str, int]] = {}
    for key, row in zip(keys, rows):
        state = states.get(key)
        if state is None:
            state = states[key] = {}
        n = state["n"] = state.get("n", 0) + 1
        out.append((row[0], n, draw()))
    return out


def measure(run: Callable[[], Any], rows: int, rounds: int) -> tuple[float, float, float]:
    """(median, fastest, slowest but a tenth) ns per row."""
    times = []
    for _ in range(rounds):
        start = time.thread_time_ns()
        run()
        times.append((time.thread_time_ns() - start) / rows)
    return statistics.median(times), min(times), sorted(times)[len(times) * 9 // 10]


def show(name: str, figures: tuple[float, ...]) -> None:
    print(f"{name:44}{''.join(f'{each:9.0f}' for each in figures)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU cost of the surface adapters per record")
    parser.add_argument("--rows", type=int, default=1000, help="rows per bundle")
    parser.add_argument("--rounds", type=int, default=200, help="bundles per case")
    options = parser.parse_args()
    rows, rounds = options.rows, options.rounds
    table = {"card": [f"c{i % KEYS}" for i in range(rows)], "amount": list(range(rows)), "at": [0] * rows}
    batch = pa.record_batch([pa.array(table[f.name], f.type) for f in IN], schema=IN)
    decoder, encoder = RowDecoder(IN, key=["card"]), RowEncoder(OUT)
    keys, data = decoder.decode(batch)
    made = [("c", 1, 0.5)] * rows
    adapters: dict[str, Any] = {
        "process, function that does nothing": ProcessOperator(nothing, OUT, name="p"),
        "process, ledger returning a tuple": ProcessOperator(ledger, OUT, name="p"),
        "process, ledger as a generator": ProcessOperator(ledger_yielding, OUT, name="p"),
        "process, ledger with ctx.now()": ProcessOperator(clocked, OUT, name="p"),
        "process, a list in the row": ProcessOperator(listing, NESTED, name="p"),
        "map, pure, returning a tuple": MapOperator(lambda row: (row[0], 1, 0.5), OUT, name="m", pure=True),
        "map, pure, two numbers computed": MapOperator(scored, OUT, name="m", pure=True),
        "map_batches, pure, the same": BatchOperator(scored_batch, OUT, input=IN, name="b", pure=True),
        "map_batches, pure, the batch itself": BatchOperator(
            lambda batch: batch, IN, input=IN, name="b", pure=True
        ),
        "mapInPandas, the same numbers": FrameIteratorOperator(scored_frames, OUT, input=IN, name="f"),
        "window, an aggregate": WindowOperator(
            TimeWindows(10**9, 10**9), Aggregate(added, nothing), OUT, times=TIMES, late=None, name="w"
        ),
        "transformWithState, rows": TransformWithStateOperator(Counter(), input=IN, output=OUT, name="t"),
        "applyInPandasWithState": GroupStateOperator(
            summing, input=IN, output=OUT, state="n BIGINT", name="g"
        ),
    }
    print(f"{rows} rows per bundle, {KEYS} keys; ns per row\n{'':44}{'median':>9}{'fastest':>9}{'p90':>9}")
    for name, run in {
        "bare loop, ledger's work": lambda: floor(keys, data),
        "Arrow batch to rows and keys": lambda: decoder.decode(batch),
        "output tuples to Arrow batch": lambda: encoder.batch(made),
    }.items():
        show(name, measure(run, rows, rounds))
    for name, adapter in adapters.items():
        bundle = opened(adapter, FakeServices()).bundle
        slow = isinstance(adapter, GroupStateOperator)
        show(name, measure(partial(bundle, keys, data), rows, max(3, rounds // 40) if slow else rounds))


if __name__ == "__main__":
    main()

"""Functions of which it is known what they depend on, and operators made of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa

from clonos.api.streams import CausalStream
from clonos.testing.driver import stream

LONGS = stream("k string, v long")
DOUBLES = stream("k string, v double")
OUTPUT = "k string, n long"


def running_sum(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["n"] = ctx.state.get("n", 0) + row.v
    yield key[0], ctx.state["n"]


def running_max(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["n"] = max(ctx.state.get("n", row.v), row.v)
    yield key[0], ctx.state["n"]


def count(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield key[0], ctx.state["n"]


def last_writer(key: Any, row: Any, ctx: Any) -> None:
    ctx.state["n"] = row.v


def float_sum(key: Any, row: Any, ctx: Any) -> None:
    ctx.state["n"] = ctx.state.get("n", 0.0) + row.v


def dedupe(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    if row.v not in ctx.state:
        ctx.state[row.v] = True
        yield key[0], row.v


def first_seen_since(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    """The last row of a key is of the last record; the state has all of them, in a dict."""
    ctx.state[row.v] = ctx.state.get(row.v, 0) + 1
    if ctx.state[row.v] == 1:
        yield key[0], len(ctx.state)


def enrich(row: Any, ctx: Any) -> Any:
    return row.k, row.v * 2


def stamp(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    yield key[0], int(ctx.now().timestamp())


def draw(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    yield key[0], ctx.random.getrandbits(60)


_asked = itertools.count()


def rate() -> int:
    """A service that never gives the same answer."""
    return next(_asked)


def ask(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    yield key[0], ctx.call(rate)


def tell(key: Any, row: Any, ctx: Any) -> None:
    ctx.effect(_no_such_service, row.v, key=f"{key[0]}/{row.v}")


def _no_such_service(value: int) -> None:
    raise AssertionError("an effect was carried out")


def remind(key: Any, row: Any, ctx: Any) -> None:
    ctx.timer(60, name="reminder")


def reminded(key: Any, timer: Any, ctx: Any) -> Iterator[Any]:
    yield key[0], 1


def wall_clock(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    yield key[0], time.time_ns()


def wall_clock_in_state(key: Any, row: Any, ctx: Any) -> None:
    ctx.state["at"] = time.time_ns()


_numbers = itertools.count()


def global_counter(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    yield key[0], next(_numbers)


_known: dict[str, int] = {}


def global_cache(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    """What it says depends on which keys the process has seen before."""
    yield key[0], _known.setdefault(key[0], len(_known))


def first_of_set(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    currencies = {"EUR", "USD", "CHF", "SEK"}
    yield key[0], list(currencies).index("EUR")


def bundle_size(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"n": pa.array([batch.num_rows], pa.int64())})


def pandas_sum(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    total = (state.get[0] if state.exists else 0) + sum(int(frame.v.sum()) for frame in frames)
    state.update((total,))
    yield pd.DataFrame({"k": [key[0]], "n": [total]})


def keyed(fn: Callable[..., Any], rows: CausalStream = LONGS, **more: Any) -> CausalStream:
    return rows.groupBy("k").process(fn, OUTPUT, name=fn.__name__, **more)


def pandas_sums(per: str | None = None) -> CausalStream:
    return LONGS.groupBy("k").applyInPandasWithState(
        pandas_sum, OUTPUT, "n long", "update", "NoTimeout", name="pandas_sum", per=per
    )

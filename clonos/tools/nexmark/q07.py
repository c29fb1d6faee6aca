"""Q7, the highest bid of every ten seconds of event time, running: every bid that is not below the best so far.

One window at a time would be one key at a time, so maxima are first taken per window and eighth of the bids, and only
what rises there goes on to the window's own instance: some dozens of rows per window. No window is ever closed, so no
bid is late, and the last rows of a window are its answer. Natively one windowed aggregation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from clonos.tools.nexmark.judging import judge_running
from clonos.tools.nexmark.native import in_arrow
from clonos.tools.nexmark.query import Input, Judgement, Native, Query, Row, Run, Source, Stage
from clonos.tools.nexmark.workload import Kind

WINDOW_MS = 10_000
SHARES = 8
DELAY_S = 5

BIDS = Input(
    Kind.BID,
    (
        f"dateTime div {WINDOW_MS} as window",
        f"event % {SHARES} as share",
        "auction",
        "bidder",
        "price",
        "event",
    ),
    lambda bid: {
        "window": bid["dateTime"] // WINDOW_MS,
        "share": bid["event"] % SHARES,
        **{name: bid[name] for name in ("auction", "bidder", "price", "event")},
    },
)


def highest_of_share(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    if row.price >= ctx.state.get("price", 0):
        ctx.state["price"] = row.price
        yield key[0], row.auction, row.bidder, row.price, row.event


def highest(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    state = ctx.state
    if row.price >= state.get("price", 0):
        state["price"], state["n"] = row.price, state.get("n", 0) + 1
        yield key[0], state["n"], row.auction, row.bidder, row.price, row.event


_BEST = "auction bigint, bidder bigint, price bigint, event bigint"
STAGES = (
    Stage("highest_of_share", highest_of_share, f"window bigint, {_BEST}", ("window", "share")),
    Stage("highest", highest, f"window bigint, n bigint, {_BEST}", ("window",)),
)


def _native(source: Source) -> Any:
    from pyspark.sql import functions as f

    bids = source.all(Kind.BID).selectExpr(
        "timestamp_millis(dateTime) as at", "auction", "bidder", "price", "event"
    )
    windows = bids.withWatermark("at", f"{DELAY_S} seconds").groupBy(f.window("at", "10 seconds"))
    best = windows.agg(f.max(f.struct("price", "auction", "bidder", "event")).alias("best"))
    number = f"unix_millis(window.start) div {WINDOW_MS} as window"
    return best.selectExpr(
        number, "cast(1 as bigint) as n", "best.auction", "best.bidder", "best.price", "best.event"
    )


def judge(run: Run, rows: Iterable[Row]) -> Judgement:
    rows = list(rows)
    windows: dict[int, list[Row]] = defaultdict(list)
    latest = 0
    for bid in run.events(Kind.BID):
        windows[bid["dateTime"] // WINDOW_MS].append(bid)
        latest = max(latest, bid["dateTime"])
    shown = {row["window"] for row in rows}
    expected = {}
    for window, bids in windows.items():
        if run.native and window not in shown and (window + 1) * WINDOW_MS > latest - DELAY_S * 1000:
            continue  # it may still be open
        best = max(bid["price"] for bid in bids)
        winners = (bid for bid in bids if bid["price"] == best)
        expected[window] = best, frozenset((bid["auction"], bid["bidder"], bid["event"]) for bid in winners)
    return judge_running(
        expected,
        rows,
        lambda row: row["window"],
        lambda row: int(row["price"]),
        lambda row: (row["auction"], row["bidder"], row["event"]),
    )


QUERY = Query(
    name="q7",
    title="highest bid of each window of event time, running",
    inputs=(BIDS,),
    stages=STAGES,
    native=Native(
        _native,
        "append",
        lambda source: in_arrow(source, (BIDS,), STAGES),
        differs="in micro-batch mode a window comes when it has ended, with one of equal bids",
    ),
    judge=judge,
)

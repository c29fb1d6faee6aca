"""Q5, hot items: the auctions with the most bids in the last ten seconds, every two seconds, by event time.

By auction, bids are counted in panes of two seconds; an event-time timer at the end of each window hands its count
on. By window, a rising maximum is kept, ties included. The watermark of an instance is by what has arrived there, so
a bid may be late: then the counts of the windows that are out already are handed on again, corrected. Counts only
rise, so the maximum ends right whatever the order. Natively two windowed aggregations in append mode; late bids are
dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from clonos.protocol.destination import destination
from clonos.testing.ledger import micros
from clonos.tools.nexmark.judging import judge_running
from clonos.tools.nexmark.query import Input, Judgement, Native, Query, Row, Run, Source, Stage
from clonos.tools.nexmark.workload import Kind

PANE_MS = 2_000
PANES = 5
DELAY_S = 5
KEPT_PANES = 300  # for bids that are late

BIDS = Input(
    Kind.BID,
    ("auction", "dateTime", "timestamp_millis(dateTime) as at", "event"),
    lambda bid: {"auction": bid["auction"], "dateTime": bid["dateTime"], "at": None, "event": bid["event"]},
)


def count(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """By auction. A window is named by the number of the pane behind it; those up to `fired` are handed on."""
    state = ctx.state
    pane, fired = row.dateTime // PANE_MS, state.setdefault("fired", 0)
    panes = state.setdefault("panes", {})
    panes[pane] = panes.get(pane, 0) + 1
    state["event"] = row.event
    for window in range(pane + 1, min(pane + PANES, fired) + 1):
        yield _counted(key, window, state)
    if pane + PANES > fired:
        _await(max(pane, fired) + 1, ctx)


def window_ends(key: Any, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """Hands on every window that the watermark has passed: a timer for one of them could not be due any more."""
    state = ctx.state
    passed = micros(ctx.watermark) // (PANE_MS * 1000)
    if timer.name == "forget":
        if state.get("due") is None and state.get("fired", 0) + KEPT_PANES <= passed:
            del ctx.state
        return
    window = state.get("due")
    while window is not None and window <= passed:
        yield _counted(key, window, state)
        state["fired"], state["due"] = window, None
        ahead = [pane for pane in state["panes"] if pane + PANES > window]
        window = max(min(ahead), window) + 1 if ahead else None
    if window is not None:
        _await(window, ctx)
    elif state:
        ctx.timer(at=(state["fired"] + KEPT_PANES) * PANE_MS * 1000, event=True, name="forget")


def _await(window: int, ctx: Any) -> None:
    """Have a timer for the next window that counts."""
    due = ctx.state.get("due")
    if due is None or window < due:
        ctx.state["due"] = window
        ctx.timer(at=window * PANE_MS * 1000, event=True)


def _counted(key: Any, window: int, state: dict[str, Any]) -> tuple[Any, ...]:
    panes = state["panes"]
    bids = sum(panes.get(pane, 0) for pane in range(window - PANES, window))
    return window, key[0], bids, state["event"]


def hottest(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """By window: each auction that has at least as many bids as the best one so far."""
    state = ctx.state
    if row.bids >= state.get("bids", 0):
        state["bids"], state["n"] = row.bids, state.get("n", 0) + 1
        yield key[0], state["n"], row.auction, row.bids, row.event


COUNT = Stage(
    "count",
    count,
    "window bigint, auction bigint, bids bigint, event bigint",
    key=("auction",),
    on_timer=window_ends,
    watermark=("at", DELAY_S),
)
HOTTEST = Stage(
    "hottest", hottest, "window bigint, n bigint, auction bigint, bids bigint, event bigint", ("window",)
)


def _native(source: Source) -> Any:
    from pyspark.sql import functions as f

    bids = source.read(BIDS).withWatermark("at", f"{DELAY_S} seconds")
    width = f.window("at", f"{PANES * PANE_MS} milliseconds", f"{PANE_MS} milliseconds")
    counts = bids.groupBy(width, "auction").agg(f.count("*").alias("bids"), f.max("event").alias("event"))
    of_window = counts.groupBy("window").agg(
        f.collect_list(f.struct("auction", "bids", "event")).alias("all")
    )
    best = of_window.selectExpr(
        f"unix_millis(window.end) div {PANE_MS} as window",
        "inline(filter(all, x -> x.bids = array_max(transform(all, y -> y.bids))))",
    )
    return best.selectExpr("window", "cast(1 as bigint) as n", "auction", "bids", "event")


def reference(run: Run) -> dict[int, tuple[int, frozenset[int]]]:
    """Per window that has ended for the instance of its auction: the most bids, and who has them."""
    counts: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    latest: dict[int, int] = defaultdict(int)
    for bid in run.events(Kind.BID):
        pane = bid["dateTime"] // PANE_MS
        for window in range(pane + 1, pane + PANES + 1):
            counts[window][bid["auction"]] += 1
        owner = destination((bid["auction"],), run.parallelism)
        latest[owner] = max(latest[owner], bid["dateTime"])
    found = {}
    for window, of_auction in counts.items():
        ended = {
            auction: bids
            for auction, bids in of_auction.items()
            if window * PANE_MS <= latest[destination((auction,), run.parallelism)] - DELAY_S * 1000
        }
        if ended:
            best = max(ended.values())
            found[window] = best, frozenset(auction for auction, bids in ended.items() if bids == best)
    return found


def judge(run: Run, rows: Iterable[Row]) -> Judgement:
    return judge_running(
        reference(run),
        rows,
        lambda row: row["window"],
        lambda row: int(row["bids"]),
        lambda row: row["auction"],
    )


QUERY = Query(
    name="q5",
    title="hot items: most bids in sliding windows of event time",
    inputs=(BIDS,),
    stages=(COUNT, HOTTEST),
    native=Native(_native, "append", differs="late bids are dropped, and a window comes when all have ended"),
    judge=judge,
)

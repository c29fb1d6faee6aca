"""Q12, bids of a user in ten seconds of processing time, running: every bid says the how-manieth it is in its window.

The window is decided by the clock when the bid arrives, and the number by the order of arrival: nothing about a row is
the same when it is computed again. Natively only `transformWithState` says a number for each bid, in micro-batch mode;
Spark's own windowed count says one for each batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from clonos.tools.nexmark.feed import partitions_of
from clonos.tools.nexmark.judging import Windows, numbered
from clonos.tools.nexmark.native import by_key, in_arrow
from clonos.tools.nexmark.query import Input, Judgement, Native, Query, Row, Run, Stage
from clonos.tools.nexmark.workload import Kind

WINDOW_US = 10_000_000

BIDS = Input(Kind.BID, ("bidder", "event"), lambda bid: {"bidder": bid["bidder"], "event": bid["event"]})


def count(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    state = ctx.state
    window = ctx.now_us() // WINDOW_US
    if state.get("window") != window:
        ctx.timer(at=(window + 1) * WINDOW_US)
        state["window"], state["n"] = window, 0
    state["n"] += 1
    yield key[0], state["n"], window, row.event


def clear(key: Any, timer: Any, ctx: Any) -> None:
    if (ctx.state.get("window", 0) + 1) * WINDOW_US <= timer.due_us:
        del ctx.state


COUNT = Stage("count", count, "bidder bigint, n bigint, window bigint, event bigint", ("bidder",), clear)


def judge(run: Run, rows: Iterable[Row]) -> Judgement:
    bidders = {bid["event"]: bid["bidder"] for bid in run.events(Kind.BID)}
    where = dict(zip(bidders, partitions_of(run.workload, list(bidders), run.partitions)))
    owners = {bidder: run.owner((bidder,)) for bidder in set(bidders.values())}
    found = Judgement()
    windows = Windows({event: (owners[bidder], where[event]) for event, bidder in bidders.items()})
    groups = numbered(rows, lambda row: (row["bidder"], row["window"]), found)
    seen: set[int] = set()
    for (bidder, window), members in groups.items():
        last: dict[int, int] = {}  # by partition: bids of one come in order
        for row in members:
            event = row["event"]
            if bidders.get(event) != bidder or event in seen:
                found.note("contradicted", f"{dict(row)} counts a bid of {bidders.get(event)}, or one twice")
                continue
            seen.add(event)
            windows.put(event, window)
            if last.get(where[event], -1) > event:
                found.note("contradicted", f"{dict(row)} is before {last[where[event]]}, which came later")
            last[where[event]] = event
    for event in bidders.keys() - seen:
        found.note("lost", f"bid {event}")
    for event, (low, high) in windows.bounds().items():
        if low > high:
            found.note("contradicted", f"bid {event} is between windows {low} and {high}")
    return found


QUERY = Query(
    name="q12",
    title="bids of a user in windows of processing time, running",
    inputs=(BIDS,),
    stages=(COUNT,),
    native=Native(
        lambda source: by_key(source, source.read(BIDS), COUNT),
        "update",
        lambda source: in_arrow(source, (BIDS,), (COUNT,)),
        differs="in micro-batch mode all records of a batch have the batch's time",
        python=True,
    ),
    judge=judge,
)

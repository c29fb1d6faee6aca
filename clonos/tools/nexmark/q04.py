"""Q4, mean winning price of each category. The winning bid of an auction is the highest in its lifetime.

Running: an auction's rise is handed on as (before, now), and its category corrects its sum by the difference. Two
stateful operators in a row, the first by auction, the second by category, so determinants travel two hops. Spark's SQL
cannot say it: an aggregate over an aggregate would need update mode. Natively the same two functions behind
`transformWithState`, in micro-batch mode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from clonos.tools.nexmark.judging import numbered
from clonos.tools.nexmark.native import by_key, in_arrow
from clonos.tools.nexmark.query import Input, Judgement, Native, Query, Row, Run, Source, Stage
from clonos.tools.nexmark.workload import Kind

AUCTIONS = Input(
    Kind.AUCTION,
    ("id as auction", "category", "dateTime", "expires", "cast(null as bigint) as price", "event"),
    lambda sold: {
        "auction": sold["id"],
        **{name: sold[name] for name in ("category", "dateTime", "expires")},
        "price": None,
        "event": sold["event"],
    },
)
_NULLS = tuple(f"cast(null as bigint) as {name}" for name in ("category", "expires"))
BIDS = Input(
    Kind.BID,
    ("auction", _NULLS[0], "dateTime", _NULLS[1], "price", "event"),
    lambda bid: {
        "auction": bid["auction"],
        "category": None,
        "dateTime": bid["dateTime"],
        "expires": None,
        "price": bid["price"],
        "event": bid["event"],
    },
)


def winning(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """By auction: each time its best price rises, the category, the price before (null at first) and now."""
    state = ctx.state
    if row.price is None:
        state["auction"] = row.category, row.dateTime, row.expires
        bids = [price for at, price in state.pop("early", ()) if row.dateTime <= at <= row.expires]
        if bids:
            state["best"] = max(bids)
            yield row.category, None, state["best"], row.event
    elif "auction" not in state:
        state.setdefault("early", []).append((row.dateTime, row.price))
    else:
        category, opens, expires = state["auction"]
        before = state.get("best")
        if opens <= row.dateTime <= expires and (before is None or row.price > before):
            state["best"] = row.price
            yield category, before, row.price, row.event


def mean(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """By category: corrects its sum."""
    state = ctx.state
    state["n"] = state.get("n", 0) + 1
    state["total"] = state.get("total", 0) + row.price - (row.before or 0)
    state["auctions"] = state.get("auctions", 0) + (row.before is None)
    average = state["total"] / state["auctions"]
    yield key[0], state["n"], state["total"], state["auctions"], average, row.event


WINNING = Stage(
    "winning", winning, "category bigint, before bigint, price bigint, event bigint", ("auction",)
)
MEAN = Stage(
    "mean",
    mean,
    "category bigint, n bigint, total bigint, auctions bigint, mean double, event bigint",
    ("category",),
)


def _native(source: Source) -> Any:
    return by_key(source, by_key(source, source.read(AUCTIONS).union(source.read(BIDS)), WINNING), MEAN)


def reference(run: Run) -> dict[int, tuple[int, int]]:
    """Per category the sum of winning prices and how many auctions have one."""
    auctions = {sold["id"]: sold for sold in run.events(Kind.AUCTION)}
    best: dict[int, int] = {}
    for bid in run.events(Kind.BID):
        sold = auctions.get(bid["auction"])
        if sold is not None and sold["dateTime"] <= bid["dateTime"] <= sold["expires"]:
            best[sold["id"]] = max(best.get(sold["id"], 0), bid["price"])
    prices: dict[int, list[int]] = defaultdict(list)
    for auction, price in best.items():
        prices[auctions[auction]["category"]].append(price)
    return {category: (sum(found), len(found)) for category, found in prices.items()}


def judge(run: Run, rows: Iterable[Row]) -> Judgement:
    found, expected = Judgement(), reference(run)
    groups = numbered(rows, lambda row: row["category"], found)
    for category, members in groups.items():
        last = members[-1]
        ends = last["total"], last["auctions"]
        if ends != expected.get(category) or any(r["mean"] != r["total"] / r["auctions"] for r in members):
            found.note("contradicted", f"category {category} ends with {ends}, not {expected.get(category)}")
    for category in expected.keys() - groups.keys():
        found.note("lost", f"all of category {category}")
    return found


QUERY = Query(
    name="q4",
    title="mean winning price of each category, running",
    inputs=(AUCTIONS, BIDS),
    stages=(WINNING, MEAN),
    native=Native(
        _native,
        "update",
        lambda source: in_arrow(source, (AUCTIONS, BIDS), (WINNING, MEAN)),
        python=True,
    ),
    judge=judge,
)

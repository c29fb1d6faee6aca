"""Q1, currency conversion: every bid with its price in another currency. Stateless, no shuffle needed, no clock.

A pure function of one row; what causal logging costs here is the plumbing alone. Natively one expression in the JVM.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clonos.tools.nexmark.judging import judge_rows
from clonos.tools.nexmark.query import Input, Judgement, Native, Query, Row, Run, Source, Stage
from clonos.tools.nexmark.workload import Kind

RATE = 0.82

BIDS = Input(
    Kind.BID,
    ("auction", "bidder", "price", "dateTime", "event"),
    lambda bid: {name: bid[name] for name in ("auction", "bidder", "price", "dateTime", "event")},
)


def convert(row: Any) -> tuple[Any, ...]:
    return row.auction, row.bidder, RATE * row.price, row.dateTime, row.event


def _native(source: Source) -> Any:
    return source.read(BIDS).selectExpr("auction", "bidder", f"{RATE}D * price as price", "dateTime", "event")


def judge(run: Run, rows: Iterable[Row]) -> Judgement:
    expected = {
        bid["event"]: (bid["auction"], bid["bidder"], RATE * bid["price"], bid["dateTime"])
        for bid in run.events(Kind.BID)
    }
    return judge_rows(
        expected,
        rows,
        lambda row: row["event"],
        lambda row: (row["auction"], row["bidder"], row["price"], row["dateTime"]),
    )


QUERY = Query(
    name="q1",
    title="currency conversion",
    inputs=(BIDS,),
    stages=(
        Stage(
            "convert", convert, "auction bigint, bidder bigint, price double, dateTime bigint, event bigint"
        ),
    ),
    native=Native(_native, "append", realtime=_native),
    judge=judge,
)

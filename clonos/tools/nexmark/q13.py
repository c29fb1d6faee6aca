"""Q13, a bounded table joined to the bids: every bid with what the table says of its auction modulo 10,000.

The table goes to the instances with the function. Natively a broadcast join with a static DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from clonos.tools.nexmark.draw import below, words
from clonos.tools.nexmark.judging import judge_rows
from clonos.tools.nexmark.query import Input, Judgement, Native, Query, Row, Run, Source, Stage
from clonos.tools.nexmark.workload import Kind

ROWS = 10_000

BIDS = Input(
    Kind.BID,
    ("auction", "bidder", "price", "dateTime", "event"),
    lambda bid: {name: bid[name] for name in ("auction", "bidder", "price", "dateTime", "event")},
)


@cache
def table() -> list[int]:
    """The bounded side: a value for each number below `ROWS`."""
    found: list[int] = below(words(0, "side input", np.arange(ROWS, dtype=np.int64)), 1_000_000).tolist()
    return found


def look_up(row: Any) -> tuple[Any, ...]:
    return row.auction, row.bidder, row.price, row.dateTime, table()[row.auction % ROWS], row.event


def _native(source: Source) -> Any:
    from pyspark.sql import functions as f

    side = source.spark.createDataFrame(list(enumerate(table())), "key bigint, value bigint")
    bids = source.read(BIDS)
    joined = bids.join(f.broadcast(side), f.col("auction") % ROWS == f.col("key"))
    return joined.select("auction", "bidder", "price", "dateTime", "value", "event")


def judge(run: Run, rows: Iterable[Row]) -> Judgement:
    names = ("auction", "bidder", "price", "dateTime")
    expected = {
        bid["event"]: (*(bid[name] for name in names), table()[bid["auction"] % ROWS])
        for bid in run.events(Kind.BID)
    }
    return judge_rows(
        expected,
        rows,
        lambda row: row["event"],
        lambda row: tuple(row[name] for name in (*names, "value")),
    )


QUERY = Query(
    name="q13",
    title="bids with a bounded table",
    inputs=(BIDS,),
    stages=(
        Stage(
            "look_up",
            look_up,
            "auction bigint, bidder bigint, price bigint, dateTime bigint, value bigint, event bigint",
        ),
    ),
    native=Native(_native, "append", realtime=_native),
    judge=judge,
)

"""Q11, bids of a user in a session: until no bid has come for ten seconds of event time.

A session is handed on when the watermark has passed its end. The watermark waits for late bids; one that is later opens
a session of its own. Natively Spark's session window in append mode, which drops it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from clonos.protocol.destination import destination
from clonos.testing.ledger import micros
from clonos.tools.nexmark.query import Input, Judgement, Native, Query, Row, Run, Source, Stage
from clonos.tools.nexmark.workload import Kind

GAP_MS = 10_000
DELAY_S = 10

BIDS = Input(
    Kind.BID,
    ("bidder", "dateTime", "timestamp_millis(dateTime) as at", "event"),
    lambda bid: {"bidder": bid["bidder"], "dateTime": bid["dateTime"], "at": None, "event": bid["event"]},
)


def session(key: Any, row: Any, ctx: Any) -> None:
    state = ctx.state
    state["sessions"] = merged([*state.get("sessions", ()), (row.dateTime, row.dateTime, 1, row.event)])
    _await(ctx)


def merged(sessions: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Sessions (start, end, bids, last event) that are not further apart than the gap are one."""
    found: list[tuple[int, ...]] = []
    for start, end, bids, event in sorted(sessions):
        if found and start - found[-1][1] <= GAP_MS:
            first, last, before, latest = found[-1]
            found[-1] = first, max(last, end), before + bids, max(latest, event)
        else:
            found.append((start, end, bids, event))
    return found


def session_ends(key: Any, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    state = ctx.state
    passed = micros(ctx.watermark) // 1000
    left = []
    for start, end, bids, event in state.get("sessions", ()):
        if end + GAP_MS <= passed:
            yield key[0], bids, start, end, event
        else:
            left.append((start, end, bids, event))
    if left:
        state["sessions"], state["due"] = left, None
        _await(ctx)
    else:
        del ctx.state


def _await(ctx: Any) -> None:
    """Have one timer, no later than the end of the first session. One that is early looks again: a timer for each bid
    would cost more."""
    state = ctx.state
    first = min(end for _, end, _, _ in state["sessions"]) + GAP_MS
    due = state.get("due")
    if due is None or first < due:
        state["due"] = first
        ctx.timer(at=first * 1000, event=True)


SESSION = Stage(
    "session",
    session,
    "bidder bigint, bids bigint, start bigint, end bigint, event bigint",
    key=("bidder",),
    on_timer=session_ends,
    watermark=("at", DELAY_S),
)


def _native(source: Source) -> Any:
    from pyspark.sql import functions as f

    bids = source.read(BIDS).withWatermark("at", f"{DELAY_S} seconds")
    sessions = bids.groupBy(f.session_window("at", f"{GAP_MS} milliseconds"), "bidder").agg(
        f.count("*").alias("bids"),
        f.min("dateTime").alias("start"),
        f.max("dateTime").alias("end"),
        f.max("event").alias("event"),
    )
    return sessions.select("bidder", "bids", "start", "end", "event")


def judge(run: Run, rows: Iterable[Row]) -> Judgement:
    """A late bid makes two sessions of one, never another number of bids: they are put together before comparing. Of a
    session that has not ended for its instance there may be a part that looked like one before a late bid came."""
    found = Judgement()
    bids: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    latest: dict[int, int] = defaultdict(int)
    for bid in run.events(Kind.BID):
        bids[bid["bidder"]].append((bid["dateTime"], bid["dateTime"], 1, bid["event"]))
        owner = destination((bid["bidder"],), run.parallelism)
        latest[owner] = max(latest[owner], bid["dateTime"])
    given: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for row in rows:
        found.outputs += 1
        one = row["start"], row["end"], row["bids"], row["event"]
        if one in given[row["bidder"]]:
            found.note("repeated", f"{dict(row)}")
        given[row["bidder"]].append(one)
    for bidder in bids.keys() | given.keys():
        passed = latest[destination((bidder,), run.parallelism)] - DELAY_S * 1000 - GAP_MS
        _judge_bidder(found, bidder, bids[bidder], merged(set(given[bidder])), passed)
    return found


def _judge_bidder(
    found: Judgement, bidder: int, bids: list[tuple[int, ...]], given: list[tuple[int, ...]], passed: int
) -> None:
    """`given` against the bids, for a watermark that has passed the ends up to `passed`."""
    wanted = merged(bids)
    for one in given:
        start, end, count, _ = one
        whole = next((session for session in wanted if session[0] <= start <= session[1]), (0, 0))
        part = sum(start <= bid[0] <= end for bid in bids)
        if one != whole and (whole[1] <= passed or end > min(passed, whole[1]) or count > part):
            found.note("contradicted", f"{one} of {bidder}, whose bids are {bids}")
    for session in wanted:
        if session[1] <= passed and not any(session[0] <= one[0] <= session[1] for one in given):
            found.note("lost", f"{session} of {bidder}")


QUERY = Query(
    name="q11",
    title="bids of a user in a session of event time",
    inputs=(BIDS,),
    stages=(SESSION,),
    native=Native(_native, "append", differs="late bids are dropped"),
    judge=judge,
)

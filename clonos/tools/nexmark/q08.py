"""Q8, new users: persons who opened an auction in the same ten seconds as they joined. A windowed join, running.

Windows are of processing time: which one a record falls into is decided by the clock when it arrives (`ctx.now_us`,
one recorded reading per bundle). A match is emitted at once, by whichever side comes later; what a window kept goes
with it. The output says nothing about records without a match, so the judge calls a match lost only where the windows
of others on the same way leave no choice. Natively a stream-stream join on the batch's time, in micro-batch mode
only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from clonos.tools.nexmark.feed import partitions_of
from clonos.tools.nexmark.judging import Windows
from clonos.tools.nexmark.native import in_arrow
from clonos.tools.nexmark.query import Input, Judgement, Native, Query, Row, Run, Source, Stage
from clonos.tools.nexmark.workload import Kind

WINDOW_US = 10_000_000

PERSONS = Input(
    Kind.PERSON,
    ("id as person", "name", "cast(null as bigint) as auction", "event"),
    lambda person: {
        "person": person["id"],
        "name": person["name"],
        "auction": None,
        "event": person["event"],
    },
)
AUCTIONS = Input(
    Kind.AUCTION,
    ("seller as person", "cast(null as string) as name", "id as auction", "event"),
    lambda sold: {"person": sold["seller"], "name": None, "auction": sold["id"], "event": sold["event"]},
)


def join(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    state = ctx.state
    window = ctx.now_us() // WINDOW_US
    if state.get("window") != window:
        ctx.timer(at=(window + 1) * WINDOW_US)
        state.clear()
        state["window"] = window
    if row.auction is None:
        state["person"] = row.name, row.event
        for auction, event in state.get("auctions", ()):
            yield key[0], row.name, auction, window, row.event, event
    else:
        state.setdefault("auctions", []).append((row.auction, row.event))
        if "person" in state:
            name, event = state["person"]
            yield key[0], name, row.auction, window, event, row.event


def clear(key: Any, timer: Any, ctx: Any) -> None:
    if (ctx.state.get("window", 0) + 1) * WINDOW_US <= timer.due_us:
        del ctx.state


JOIN = Stage(
    "join",
    join,
    "person bigint, name string, auction bigint, window bigint, person_event bigint, auction_event bigint",
    key=("person",),
    on_timer=clear,
)


def _native(source: Source) -> Any:
    def windowed(given: Input, window: str) -> Any:
        frame = source.read(given).selectExpr("*", "current_timestamp() as at")
        return frame.withWatermark("at", "0 seconds").selectExpr("*", f"window(at, '10 seconds') as {window}")

    persons = windowed(PERSONS, "w1").selectExpr("person", "name", "w1", "event as person_event")
    auctions = windowed(AUCTIONS, "w2").selectExpr(
        "person as seller", "auction", "w2", "event as auction_event"
    )
    joined = persons.join(auctions, (persons.person == auctions.seller) & (persons.w1 == auctions.w2))
    window = "cast(w1.start as bigint) div 10 as window"
    return joined.selectExpr("person", "name", "auction", window, "person_event", "auction_event")


def judge(run: Run, rows: Iterable[Row]) -> Judgement:
    persons = {person["id"]: person for person in run.events(Kind.PERSON)}
    auctions = {auction["id"]: auction for auction in run.events(Kind.AUCTION)}
    paths = {}
    for kind, made, key in ((Kind.PERSON, persons, "id"), (Kind.AUCTION, auctions, "seller")):
        where = partitions_of(run.workload, [event["event"] for event in made.values()], run.partitions)
        for event, partition in zip(made.values(), where):
            paths[event["event"]] = (kind, partition, run.owner((event[key],)))
    found, windows = Judgement(), Windows(paths)
    seen: dict[int, Row] = {}
    for row in rows:
        found.outputs += 1
        person, auction = persons.get(row["person"]), auctions.get(row["auction"])
        known = seen.setdefault(row["auction"], row)
        if known is not row:
            found.note("repeated" if dict(known) == dict(row) else "contradicted", f"{dict(row)}")
        elif person is None or auction is None or not _fits(row, person, auction):
            found.note("contradicted", f"{dict(row)} joins what does not belong together")
        elif not all(windows.put(row[side], row["window"]) for side in ("person_event", "auction_event")):
            found.note("contradicted", f"{dict(row)} in another window than before")
    _judge_windows(found, windows.bounds(), persons, auctions, set(seen))
    return found


def _fits(row: Row, person: Row, auction: Row) -> bool:
    return (auction["seller"], person["name"], person["event"], auction["event"]) == (
        *(row["person"], row["name"], row["person_event"], row["auction_event"]),
    )


def _judge_windows(
    found: Judgement,
    bounds: dict[int, tuple[float, float]],
    persons: dict[int, dict[str, Any]],
    auctions: dict[int, dict[str, Any]],
    matched: set[int],
) -> None:
    """What the rows leave open must be possible: no event falls into a window before that of an earlier one, and an
    auction in the window of its seller has met the seller."""
    for event, (low, high) in bounds.items():
        if low > high:
            found.note("contradicted", f"event {event} is between windows {low} and {high}")
    by_seller: dict[int, list[Row]] = defaultdict(list)
    for auction in auctions.values():
        if auction["id"] not in matched:
            by_seller[auction["seller"]].append(auction)
    for seller in by_seller.keys() & persons.keys():
        window = bounds[persons[seller]["event"]]
        for waiting in by_seller[seller]:
            if window[0] == window[1] and bounds[waiting["event"]] == window:
                found.note("lost", f"auction {waiting['id']} with its seller {seller} in window {window[0]}")


QUERY = Query(
    name="q8",
    title="new users: join in windows of processing time, running",
    inputs=(PERSONS, AUCTIONS),
    stages=(JOIN,),
    native=Native(
        _native,
        "append",
        lambda source: in_arrow(source, (PERSONS, AUCTIONS), (JOIN,)),
        differs="in micro-batch mode all records of a batch have the batch's time",
    ),
    judge=judge,
    origins=("person_event", "auction_event"),
)

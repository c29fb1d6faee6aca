"""Q3, local item suggestion: who in OR, ID or CA sells an item of category 10. An incremental join without a window.

An auction may come before its seller, so both sides wait for each other, for ever. A person comes once; auctions that
have met theirs need not be kept. Natively a stream-stream inner join without a watermark, in micro-batch mode only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from clonos.tools.nexmark.judging import judge_rows
from clonos.tools.nexmark.native import in_arrow
from clonos.tools.nexmark.query import Input, Judgement, Native, Query, Row, Run, Source, Stage
from clonos.tools.nexmark.workload import Kind

STATES = ("OR", "ID", "CA")
CATEGORY = 10


def _person(person: Row) -> dict[str, Any] | None:
    if person["state"] not in STATES:
        return None
    names = {name: person[name] for name in ("name", "city", "state")}
    return {"person": person["id"], **names, "auction": None, "event": person["event"]}


def _auction(auction: Row) -> dict[str, Any] | None:
    if auction["category"] != CATEGORY:
        return None
    nameless = dict.fromkeys(("name", "city", "state"))
    return {"person": auction["seller"], **nameless, "auction": auction["id"], "event": auction["event"]}


PERSONS = Input(
    Kind.PERSON,
    ("id as person", "name", "city", "state", "cast(null as bigint) as auction", "event"),
    _person,
    f"state in {STATES}",
)
AUCTIONS = Input(
    Kind.AUCTION,
    (
        "seller as person",
        *(f"cast(null as string) as {name}" for name in ("name", "city", "state")),
        "id as auction",
        "event",
    ),
    _auction,
    f"category = {CATEGORY}",
)


def join(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    state = ctx.state
    if row.auction is None:
        state["person"] = row.name, row.city, row.state, row.event
        for auction, event in state.pop("waiting", ()):
            yield row.name, row.city, row.state, auction, row.event, event
    elif "person" in state:
        name, city, living, person = state["person"]
        yield name, city, living, row.auction, person, row.event
    else:
        state.setdefault("waiting", []).append((row.auction, row.event))


JOIN = Stage(
    "join",
    join,
    "name string, city string, state string, auction bigint, person_event bigint, auction_event bigint",
    key=("person",),
)


def _native(source: Source) -> Any:
    persons = source.read(PERSONS).selectExpr("person", "name", "city", "state", "event as person_event")
    auctions = source.read(AUCTIONS).selectExpr("person as seller", "auction", "event as auction_event")
    joined = persons.join(auctions, persons.person == auctions.seller)
    return joined.select("name", "city", "state", "auction", "person_event", "auction_event")


def judge(run: Run, rows: Iterable[Row]) -> Judgement:
    persons = {made["person"]: made for made in map(_person, run.events(Kind.PERSON)) if made}
    auctions = [made for made in map(_auction, run.events(Kind.AUCTION)) if made]
    expected = {}
    for auction in auctions:
        seller = persons.get(auction["person"])
        if seller is not None:
            expected[auction["auction"]] = (
                *(seller[name] for name in ("name", "city", "state")),
                *(seller["event"], auction["event"]),
            )
    return judge_rows(
        expected,
        rows,
        lambda row: row["auction"],
        lambda row: tuple(row[name] for name in ("name", "city", "state", "person_event", "auction_event")),
    )


QUERY = Query(
    name="q3",
    title="local item suggestion: incremental join",
    inputs=(PERSONS, AUCTIONS),
    stages=(JOIN,),
    native=Native(_native, "append", lambda source: in_arrow(source, (PERSONS, AUCTIONS), (JOIN,))),
    judge=judge,
    origins=("person_event", "auction_event"),
)

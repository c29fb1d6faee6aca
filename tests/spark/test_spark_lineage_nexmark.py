"""Lineage of the NexMark queries, whose replicas were killed, equals a reference: for each visible row, of which events
it is, and over the state of its functions, of which others it may be."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from modes import MODES, in_turns
from nexmark_lineage import Of, Reference
from pyspark.sql import functions as f
from streams import Place

import clonos
from clonos.archive.explain import RowId
from clonos.archive.reading import ArchivedQuery
from clonos.tools.nexmark import q05
from clonos.tools.nexmark.feed import EventLogs
from clonos.tools.nexmark.pace import Pace
from clonos.tools.nexmark.queries import QUERIES
from clonos.tools.nexmark.query import Query, Run, Source, causal
from clonos.tools.nexmark.workload import Kind, Workload

pytestmark = pytest.mark.spark

EVENTS = 1_200
FIRST = 1_000
SECONDS = 60


def run_with_kills(place: Place, query: Query, mode: str) -> Run:
    workload = Workload(seed=4, kinds=query.kinds, pace=Pace.constant(EVENTS // SECONDS))
    run = Run(workload, EVENTS, partitions=2 // len(query.inputs))
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.snapshot.interval", "200ms")
    with EventLogs(run.workload, place.base, run.partitions) as logs:
        logs.write(0, FIRST)
        place.start(causal(query, Source(place.spark, str(place.base)), run.parallelism), mode)
        place.until(lambda: bool(place.rows()), "rows")
        for replica in islice((r for r in place.query.replicas() if not r["standby"]), 0, None, 2):
            place.kill(replica["node"], replica["instance"])
        logs.write(FIRST, EVENTS - FIRST)
    place.until(
        lambda: query.judge(run, [{name: row[name] for name in query.columns} for row in place.rows()]).exact,
        "exact output",
    )
    place.finish()
    return run


def found_by_lineage(
    place: Place, query: Query, reference: Reference, *, through_state: bool
) -> dict[str, Of]:
    last = query.stages[-1].name
    lines = clonos.lineage(
        place.spark, str(place.checkpoint), of=last, to="sources", through_state=through_state
    )
    assert lines.where("input is null or kept_before is not null").count() == 0
    grouped = lines.groupBy("row").agg(
        f.collect_list(f.expr("if(exact, input, null)")).alias("exact"),
        f.collect_list(f.expr("if(exact, null, input)")).alias("at_most"),
    )
    ids = {str(RowId.of(record)): event for record, event in reference.events.items()}
    found = {}
    for row in grouped.collect():
        exact, at_most = [ids[each] for each in row["exact"]], [ids[each] for each in row["at_most"]]
        found[row["row"]] = Of(frozenset(exact), frozenset(at_most))
        assert len(exact) + len(at_most) == len(found[row["row"]].all), "each once"
    return found


def needed(query: Query, run: Run, row: dict[str, Any], of: Of) -> bool:
    """What must be among them, by what the row says and the events that were fed."""
    if query.name in ("q3", "q8"):
        return {row["person_event"], row["auction_event"]} <= of.all
    bids = {bid["event"]: bid for bid in run.events(Kind.BID)}
    mine = [bids[event] for event in of.all if event in bids]
    if query.name == "q5":
        window = range(row["window"] - q05.PANES, row["window"])
        counted = [
            bid
            for bid in mine
            if bid["auction"] == row["auction"] and bid["dateTime"] // q05.PANE_MS in window
        ]
        return len(counted) == row["bids"]
    if query.name == "q11":
        in_it = [
            bid
            for bid in mine
            if bid["bidder"] == row["bidder"] and row["start"] <= bid["dateTime"] <= row["end"]
        ]
        return len(in_it) == row["bids"]
    if query.name == "q12":
        return all(bid["bidder"] == row["bidder"] for bid in mine) and len(mine) >= row["n"]
    return row["event"] in of.exact


def check(place: Place, query: Query, mode: str) -> None:
    run = run_with_kills(place, query, mode)
    archived = ArchivedQuery(str(place.checkpoint))
    archived.load_programs()
    reference = Reference.of(query.name, archived)
    rows = {row["clonos_id"].rpartition("/")[2]: row for row in place.rows()}
    wanted = {id: reference.rows[RowId.parse(id, archived.id).record] for id in rows}
    exact = found_by_lineage(place, query, reference, through_state=False)
    assert exact == {id: Of(of.exact) for id, of in wanted.items()}
    through = found_by_lineage(place, query, reference, through_state=True)
    assert through.keys() == wanted.keys()
    wrong = {id: (through[id], wanted[id], rows[id]) for id in wanted if through[id] != wanted[id]}
    assert not wrong, next(iter(wrong.items()))
    for id, row in rows.items():
        assert needed(query, run, row, wanted[id]), (row, wanted[id])
    if query.name not in ("q1", "q13"):
        assert any(of.at_most for of in wanted.values())


@pytest.mark.parametrize(("name", "mode"), in_turns(["q5", "q11"]))
def test_lineage_over_state_equals_the_reference(place: Place, name: str, mode: str) -> None:
    check(place, QUERIES[name], mode)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", sorted(QUERIES.keys() - {"q5", "q11"}))
def test_lineage_of_the_others_equals_the_reference(place: Place, name: str, mode: str) -> None:
    check(place, QUERIES[name], mode)

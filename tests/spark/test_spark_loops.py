"""Loops: rows that come back, exact under kills; a graph whose edges come and go."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from modes import mostly
from streams import Place

import clonos
from clonos.errors import CheckpointMismatch, ClonosError, QueryDefinitionError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NUMBERS = "id long, left int, drawn array<long>"


def countdown(place: Place, log: str = "again", partitions: int = 2, name: str = "loop") -> Any:
    """Each row comes back until nothing is left of it, and has a draw of every turn."""

    def turn(row: Any, ctx: Any) -> Any:
        drawn = [*row.drawn, ctx.random.getrandbits(40)]
        if row.left > 1:
            ctx.side_output("again", (row.id, row.left - 1, drawn))
        yield row.id, row.left, drawn

    def body(rows: Any) -> Any:
        turns = rows.flat_map(turn, NUMBERS, name="turn", side_outputs={"again": NUMBERS}, parallelism=2)
        return turns.side_output("again"), turns

    return place.causal(NUMBERS).iterate(body, str(place.base / log), name=name, partitions=partitions)


def rows_of(ids: Any, turns: int = 3) -> list[dict[str, Any]]:
    return [{"id": id_, "left": turns, "drawn": []} for id_ in ids]


def check(rows: list[dict[str, Any]], ids: Any, turns: int = 3) -> None:
    """Each turn of each row came once, and a later turn has the draws of the earlier ones: none was made anew."""
    assert Counter((row["id"], row["left"]) for row in rows) == Counter(
        (id_, left) for id_ in ids for left in range(1, turns + 1)
    )
    for id_ in ids:
        drawn = {row["left"]: row["drawn"] for row in rows if row["id"] == id_}
        for left in range(1, turns):
            assert drawn[left][:-1] == drawn[left + 1], id_


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_rows_come_back_once_although_replicas_die(place: Place, mode: str) -> None:
    """Of the operator inside the loop, of the sink at its end, and of the other sink."""
    place.start(countdown(place), mode)
    for number in range(4):
        place.write(rows_of(range(10 * number, 10 * number + 10)))
        place.await_rows(30 * (number + 1))
        nodes = {(replica["node"], replica["instance"]) for replica in place.query.replicas()}
        node, instance = sorted(nodes)[number % len(nodes)]
        place.kill(node, instance)
    check(place.await_rows(120), range(40))
    assert place.query.restarts == []


@pytest.mark.parametrize("recovery", ["coordinated", "uncoordinated"])
def test_rows_come_back_once_where_no_step_is_repeated(place: Place, recovery: str) -> None:
    """A row comes back when it may be seen, so no failure leads behind what has come back."""
    place.spark.conf.set("spark.clonos.recovery", recovery)
    place.spark.conf.set("spark.clonos.recovery.interval", "100ms")
    place.start(countdown(place), "realtime")
    for number in range(3):
        place.write(rows_of(range(10 * number, 10 * number + 10)))
        place.until(lambda n=number: len(place.rows()) > 30 * n, "the first turn")
        nodes = {(replica["node"], replica["instance"]) for replica in place.query.replicas()}
        node, instance = sorted(nodes)[number % len(nodes)]
        place.kill(node, instance)
        place.await_rows(30 * (number + 1))
    check(place.await_rows(90), range(30))
    assert place.query.restarts


@pytest.mark.parametrize("recovery", ["causal", "batch"])
def test_a_loop_goes_on_after_a_restart_and_available_now_waits_for_its_end(
    place: Place, recovery: str
) -> None:
    """Also for what the loop itself has added meanwhile: nothing is under way when the query has ended."""
    place.spark.conf.set("spark.clonos.recovery", recovery)
    place.write(rows_of(range(10), turns=5))
    for begin in (10, 20):
        place.writer(countdown(place)).trigger(availableNow=True).start().awaitTermination()
        check([{**row} for row in place.rows()], range(begin), turns=5)
        place.write(rows_of(range(begin, begin + 10), turns=5))


def test_all_turns_are_over_when_all_is_processed(place: Place) -> None:
    """Also where a row comes back when its epoch has committed."""
    place.spark.conf.set("spark.clonos.recovery", "batch")
    query = place.start(countdown(place))
    for number in range(2):
        place.write(rows_of(range(10 * number, 10 * number + 10)))
        query.processAllAvailable()
        check([{**row} for row in place.rows()], range(10 * (number + 1)))


def test_a_log_is_of_one_loop_and_stays_where_it_is(place: Place) -> None:
    place.write(rows_of(range(4)))
    place.writer(countdown(place)).trigger(availableNow=True).start().awaitTermination()
    with pytest.raises(CheckpointMismatch):
        place.writer(countdown(place, log="elsewhere")).trigger(availableNow=True).start()
    place.checkpoint = place.base / "another"
    place.output = place.base / "out-of-another"
    query = place.writer(countdown(place)).trigger(availableNow=True).start()
    with pytest.raises(ClonosError, match="this query has written none of them"):
        query.awaitTermination()


@pytest.mark.parametrize("gone", ["folder", "file"])
def test_a_loop_whose_log_is_gone_is_refused(place: Place, gone: str) -> None:
    """Whatever else there is to read: nothing of it may be passed over."""
    place.write(rows_of(range(4)))
    place.writer(countdown(place, partitions=1)).trigger(availableNow=True).start().awaitTermination()
    log = place.base / "again"
    if gone == "folder":
        shutil.rmtree(log)
        with pytest.raises(CheckpointMismatch, match="the log of the loop 'loop' is not where it was"):
            place.writer(countdown(place, partitions=1)).trigger(availableNow=True).start()
    else:
        (log / "0.log").unlink()
        place.write(rows_of(range(4, 6)))
        query = place.writer(countdown(place, partitions=1)).trigger(availableNow=True).start()
        with pytest.raises(ClonosError, match=r"cut off|has 0 bytes"):
            query.awaitTermination()


def test_a_row_that_could_not_be_read_back_is_refused(place: Place) -> None:
    """Not taken for another one: a text beyond what Spark reads, and settings and columns that change values."""

    def grown(row: Any, ctx: Any) -> Any:
        ctx.side_output("again", (row.id, "x" * 21_000_000))
        yield (row.id,)

    def looped(schema: str = "id long, said string") -> Any:
        def body(rows: Any) -> Any:
            made = rows.flat_map(grown, "id long", name="grow", side_outputs={"again": schema})
            return made.side_output("again"), made

        return place.causal(schema).iterate(body, str(place.base / "again"))

    place.write([{"id": 1, "said": "a"}])
    query = place.writer(looped()).trigger(availableNow=True).start()
    with pytest.raises(ClonosError, match="could not be read back"):
        query.awaitTermination()
    numbered = place.causal("id long").map(
        lambda row, ctx: (row.id, {}), "id long, said map<int, string>", name="n"
    )
    with pytest.raises(QueryDefinitionError, match="cannot be read back from JSON"):
        numbered.iterate(lambda rows: (rows, rows), str(place.base / "other"))
    place.spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    try:
        with pytest.raises(QueryDefinitionError, match="to CORRECTED"):
            looped()
    finally:
        place.spark.conf.unset("spark.sql.legacy.timeParserPolicy")


def test_to_define_a_loop_touches_nothing(place: Place) -> None:
    countdown(place)
    assert not (place.base / "again").exists()


def test_what_is_no_loop_is_refused(place: Place) -> None:
    rows = place.causal(NUMBERS)
    log = str(place.base / "again")

    def of(body: Any) -> Any:
        return lambda: rows.iterate(body, log)

    other = rows.map(lambda row, ctx: (row.id,), "id long", name="other")
    for make, says in (
        (of(lambda stream: stream), "was given"),
        (of(lambda stream: (other, stream)), "with other columns than they came with"),
        (lambda: rows.iterate(lambda stream: (stream, stream), log, partitions=0), "at least one partition"),
        (lambda: rows.iterate(lambda stream: (stream, stream), log, name="a/b"), "not a loop name"),
    ):
        with pytest.raises(QueryDefinitionError, match=says):
            make()


def test_a_watermark_that_rows_that_come_back_would_hold_up_or_miss_is_refused(place: Place) -> None:
    """Where the operator is told of event time: in front of the loop, inside it, and from an operator before."""
    rows = place.causal("id long, at timestamp")

    def looped(stream: Any, inside: Callable[[Any], Any] = lambda stream: stream) -> Any:
        def body(given: Any) -> Any:
            counted = inside(given).groupBy("id").window("1 minute").count(name="windows")
            return given.filter(lambda row, ctx: False, name="none"), counted

        return stream.iterate(body, str(place.base / "again"))

    timed = said_again(rows)
    inherits = timed.filter(lambda row, ctx: True, name="all")
    for made, says in (
        (
            looped(rows.withWatermark("at", "1 minute")),
            "hold the watermark of '(none|windows)' back for ever",
        ),
        (looped(rows, lambda given: given.withWatermark("at", "1 minute")), "of 'windows' back for ever"),
        (looped(inherits), r"they would be late\..*on the stream that goes into the loop"),
    ):
        with pytest.raises(QueryDefinitionError, match=says):
            place.start(made)
    for good in (looped(timed), looped(said_again(inherits)), looped(rows, said_again)):
        place.writer(good)._compiled()


def said_again(stream: Any) -> Any:
    return stream.withWatermark("at", "1 minute", idle_after="1 minute")


# ------------------------------------------------------------------- a graph


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_what_can_be_reached_in_a_graph_whose_edges_come_and_go(
    place: Place, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import reachability

    rng = random.Random(f"graph {mode}")
    vertices = [reachability.ROOT, *(f"v{n}" for n in range(12))]
    edges: Counter[tuple[str, str]] = Counter()
    schema = "vertex string, what string, other string, path array<string>"
    place.start(reachability.reached(place.causal(schema, partitions=1), str(place.base / "again"), 2), mode)
    for number in range(4):
        changes = []
        for _ in range(15):
            known = list(edges.elements())
            if known and rng.random() < 0.4:
                what, edge = "delete", rng.choice(known)
                edges[edge] -= 1
            else:
                what, edge = "insert", (rng.choice(vertices), rng.choice(vertices))
                edges[edge] += 1
            changes.append({"vertex": edge[0], "what": what, "other": edge[1], "path": None})
        place.write(changes, partitions=1)
        replica = place.replicas(5)[number]
        place.kill(replica["node"], replica["instance"])
    expected = from_root(+edges)
    place.until(lambda: latest(place.rows()) == expected, f"{expected}")
    rows = place.rows()
    assert Counter((row["vertex"], row["change"]) for row in rows) == Counter(
        (vertex, change)
        for vertex in {row["vertex"] for row in rows}
        for change in range(1, 1 + max(row["change"] for row in rows if row["vertex"] == vertex))
    )


def from_root(edges: Counter[tuple[str, str]]) -> set[str]:
    found, ahead = {"root"}, ["root"]
    while ahead:
        at = ahead.pop()
        behind = {to for begin, to in edges if begin == at} - found
        found |= behind
        ahead += behind
    return found - {"root"}


def latest(rows: list[dict[str, Any]]) -> set[str]:
    newest = {row["vertex"]: row for row in sorted(rows, key=lambda row: int(row["change"]))}
    return {vertex for vertex, row in newest.items() if row["path"] is not None}


def test_the_name_of_a_loop_is_none_of_another_nodes(place: Place) -> None:
    looped = countdown(place, name="turn")
    with pytest.raises(QueryDefinitionError, match="two operators or sinks are called 'turn'"):
        looped.writeStream.to(clonos.sinks.jsonl(place.output)).option("checkpointLocation", "x").start()


def test_two_loops_by_one_folder_are_refused(place: Place) -> None:
    """Whichever way its path is written."""
    (place.base / "again").mkdir()
    (place.base / "link").symlink_to(place.base / "again")

    def body(rows: Any) -> Any:
        turns = rows.map(lambda row, ctx: row, NUMBERS, name="second")
        return turns.where("left > 1"), turns

    looped = countdown(place).iterate(body, str(place.base / "link"), name="another")
    writer = looped.writeStream.to(clonos.sinks.jsonl(place.output)).option("checkpointLocation", "x")
    with pytest.raises(QueryDefinitionError, match="loop and another would both write to LogSink"):
        writer.start()

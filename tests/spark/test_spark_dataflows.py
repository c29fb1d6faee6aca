"""Dataflows that are no chain: streams that feed several operators, by ways of different lengths, under kills."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from modes import mostly
from streams import TRIGGERS, Place

import clonos
from clonos.errors import QueryDefinitionError
from clonos.spark.checkpoint import Checkpoint

SCHEMA = "id long, way string, draw long, n long"


def drawn(row: Any, ctx: Any) -> tuple[Any, ...]:
    """Each record draws once."""
    return row.id, "", ctx.random.getrandbits(40), 0


def counted(way: str) -> Any:
    def count(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield row.id, f"{row.way}{way}", row.draw, ctx.state["n"]

    return count


def bucketed(way: str, buckets: int) -> Any:
    def mark(row: Any, ctx: Any) -> tuple[Any, ...]:
        return row.id, f"{row.way}{way}", row.draw, row.id % buckets

    return mark


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_stream_feeds_several_operators_that_see_the_same_draws(place: Place, mode: str) -> None:
    """Where its ways meet again, a record comes once by each, and every instance is killed once meanwhile."""
    source = place.causal("id long")
    first = source.map(drawn, SCHEMA, name="first", parallelism=2)
    left = first.map(bucketed("l", 3), SCHEMA, name="left")
    right = first.map(bucketed("r", 5), SCHEMA, name="right", parallelism=2)
    far = right.map(bucketed("f", 2), SCHEMA, name="far")
    both = (
        left.union(far).union(first).groupBy("id").process(counted("+"), SCHEMA, name="both", parallelism=2)
    )
    place.start(both.union(right), mode)
    records = range(60)
    nodes = [(2, 0), (2, 1), (3, 0), (4, 0), (4, 1), (5, 0), (6, 0), (6, 1), (7, 0)]
    for at, (node, instance) in enumerate(nodes):
        share = records[at::9]
        place.write([{"id": id_} for id_ in share])
        wanted = 4 * sum(len(records[before::9]) for before in range(at + 1))
        place.until(lambda: len(place.rows()) >= wanted, f"{wanted} rows")  # noqa: B023 - it is asked at once
        place.kill(node, instance)
    rows = place.await_rows(240)
    ways: dict[int, list[str]] = {}
    draws: dict[int, set[int]] = {}
    for row in rows:
        ways.setdefault(row["id"], []).append(row["way"])
        draws.setdefault(row["id"], set()).add(row["draw"])
    assert ways.keys() == set(records)
    assert all(sorted(found) == ["+", "l+", "r", "rf+"] for found in ways.values())
    assert all(len(found) == 1 for found in draws.values()) and len(set.union(*draws.values())) == 60
    counts = {(row["id"], row["n"]) for row in rows if row["way"].endswith("+")}
    assert counts == {(id_, n) for id_ in records for n in (1, 2, 3)}


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_several_sinks_show_what_one_query_draws(place: Place, mode: str) -> None:
    """A database and two folders, each with a stream of its own or shared; every instance is killed, and the query
    started again."""
    database, other = place.base / "rows.db", Place(place.spark, place.base / "other")
    source = place.causal("id long")
    first = source.map(drawn, SCHEMA, name="first", parallelism=2)
    both = first.groupBy("draw").process(counted("+"), SCHEMA, name="both", parallelism=2)
    sinks = clonos.sinks
    jsonl = [sinks.jsonl(folder, durable=False) for folder in (place.output, other.output)]
    writer = (
        first.writeStream.to(jsonl[0], name="drawn")
        .to(sinks.sql(f"sqlite:///{database}", "counted"), stream=both, name="table")
        .to(jsonl[1], stream=both, parallelism=2, name="copy")
        .option("checkpointLocation", str(place.checkpoint))
        .trigger(**TRIGGERS[mode])
    )
    place.query = writer.start()

    def table() -> dict[str, tuple[Any, ...]]:
        if not database.exists():
            return {}
        with contextlib.closing(sqlite3.connect(database)) as connection:
            there = connection.execute("SELECT name FROM sqlite_master WHERE name = 'counted'").fetchall()
            rows = connection.execute("SELECT clonos_id, id, way, draw, n FROM counted") if there else ()
            return {row[0]: row[1:] for row in rows}

    nodes = [(2, 0), (2, 1), (3, 0), (3, 1), (4, 0), (5, 0), (6, 0), (6, 1)]
    for at, (node, instance) in enumerate(nodes, 1):
        place.write([{"id": id_} for id_ in range(10 * at - 10, 10 * at)])
        wanted = 10 * at
        place.until(lambda: min(len(place.rows()), len(table()), len(other.rows())) >= wanted, wanted)  # noqa: B023
        place.kill(node, instance)
        if at == 4:
            place.stop()
            place.query = writer.start()
    place.write([{"id": id_} for id_ in range(80, 90)])
    shown = place.await_rows(90)
    place.until(lambda: len(table()) >= 90, "all rows in the table")
    place.until(lambda: len(other.rows()) >= 90, "all rows in the other folder")
    copies = {row.pop("clonos_id"): tuple(row.values()) for row in other.rows()}
    assert len(other.rows()) == 90 and copies == table(), "ids and rows are the same in both"
    assert {row["id"]: row["draw"] for row in shown} == {id_: draw for id_, _, draw, _ in copies.values()}
    assert sorted(row["id"] for row in shown) == list(range(90))
    topology = Checkpoint(str(place.checkpoint)).history().bindings[-1].program
    assert [node.name for node in topology.nodes] == ["source-1", "first", "both", "drawn", "table", "copy"]


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_side_outputs_have_readers_of_their_own(place: Place, mode: str) -> None:
    """Rows of three kinds, in sinks of their own and in an operator, while every instance is killed."""
    folders = {name: Place(place.spark, place.base / name) for name in ("odd", "texts", "counted")}
    source = place.causal("id long")

    def split(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        draw = ctx.random.getrandbits(40)
        if row.id % 2:
            ctx.side_output("odd", (row.id, draw))
        else:
            yield row.id, draw
        if row.id % 3 == 0:
            ctx.side_output("texts", {"said": f"{row.id} {draw}"})

    def count(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield row.said, ctx.state["n"]

    sides = {"odd": "id long, draw long", "texts": "said string"}
    even = source.groupBy("id").process(
        split, "id long, draw long", name="split", parallelism=2, side_outputs=sides
    )
    counted = (
        even.side_output("texts")
        .groupBy("said")
        .process(count, "said string, n long", name="counted", parallelism=2)
    )
    jsonl = {name: clonos.sinks.jsonl(folder.output, durable=False) for name, folder in folders.items()}
    writer = (
        even.writeStream.to(clonos.sinks.jsonl(place.output, durable=False), name="even")
        .to(jsonl["odd"], stream=even.side_output("odd"), name="odd")
        .to(jsonl["texts"], stream=even.side_output("texts"), name="texts")
        .to(jsonl["counted"], stream=counted, name="count")
        .option("checkpointLocation", str(place.checkpoint))
        .trigger(**TRIGGERS[mode])
    )
    place.query = writer.start()

    def shown() -> int:
        return sum(len(each.rows()) for each in (place, *folders.values()))

    def due(ids: range) -> int:
        return len(ids) + 2 * sum(id_ % 3 == 0 for id_ in ids)

    nodes = [(2, 0), (2, 1), (3, 0), (3, 1), (4, 0), (5, 0), (6, 0), (7, 0)]
    for at, (node, instance) in enumerate(nodes):
        place.write([{"id": id_} for id_ in range(12 * at, 12 * at + 12)])
        place.until(lambda: shown() >= due(range(12 * at + 12)), at)  # noqa: B023 - it is asked at once
        place.kill(node, instance)
        if at == 3:
            place.stop()
            place.query = writer.start()
    place.write([{"id": id_} for id_ in range(96, 108)])
    place.until(lambda: shown() >= due(range(108)), "all rows")
    draws = {row["id"]: row["draw"] for each in (place, folders["odd"]) for row in each.await_rows(54)}
    assert sorted(draws) == list(range(108))
    assert sorted(row["id"] % 2 for row in place.rows()) == [0] * 54
    texts = [f"{id_} {draws[id_]}" for id_ in range(0, 108, 3)]
    assert sorted(row["said"] for row in folders["texts"].await_rows(36)) == sorted(texts)
    assert sorted((row["said"], row["n"]) for row in folders["counted"].await_rows(36)) == sorted(
        (text, 1) for text in texts
    )


def test_a_sink_is_given_to_several_queries(place: Place) -> None:
    """Each remembers the columns of its own rows."""
    sink = clonos.sinks.jsonl(place.output, durable=False)
    first = place.causal("id long").map(drawn, SCHEMA, name="first")
    second = place.causal("id long").map(lambda row: (row.id,), "other long", name="second", pure=True)
    place.start(first, sink=sink)
    other = (
        second.writeStream.to(sink)
        .option("checkpointLocation", str(place.base / "second"))
        .trigger(**TRIGGERS["microbatch"])
        .start()
    )
    try:
        place.write([{"id": id_} for id_ in range(5)])
        place.until(lambda: len(place.rows()) >= 10, "rows of both")
        place.kill()  # what takes its place has the columns of its own query, too
        place.write([{"id": id_} for id_ in range(5, 10)])
        place.until(lambda: len(place.rows()) >= 20, "all rows")
    finally:
        other.stop()
    rows = place.rows()
    assert sorted(row["other"] for row in rows if "other" in row) == list(range(10))
    assert sorted(row["id"] for row in rows if "draw" in row) == list(range(10))


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_source_feeds_several_operators_and_those_behind_them(place: Place, mode: str) -> None:
    one = place.causal("id long, key string", "one")
    two = place.causal("id long, key string", "two")

    def shown(row: Any, ctx: Any) -> tuple[Any, ...]:
        return row.id, row.key, ctx.random.getrandbits(40), 0

    def count(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield row.id, row.key, 0, ctx.state["n"]

    by_key = (
        one.union(two)
        .groupBy("key")
        .process(count, SCHEMA.replace("way", "key"), name="by_key", parallelism=2)
    )
    by_id = one.groupBy("id").process(count, SCHEMA.replace("way", "key"), name="by_id", parallelism=3)
    plain = two.map(shown, SCHEMA.replace("way", "key"), name="plain")
    place.start(by_key.union(by_id).union(plain), mode)
    place.write([{"id": n, "key": f"k{n % 4}"} for n in range(20)], "one")
    place.write([{"id": n, "key": f"k{n % 4}"} for n in range(20, 40)], "two")
    place.until(lambda: len(place.rows()) >= 80, "rows of both")
    place.kill(3, 0)
    place.write([{"id": n, "key": f"k{n % 4}"} for n in range(40, 60)], "one")
    rows = place.await_rows(120)
    assert sorted(row["id"] for row in rows) == sorted([*range(60)] * 2)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_two_streams_with_schemas_of_their_own_are_connected(place: Place, mode: str) -> None:
    """One operator, one state for both, fed by a source and by an operator; every instance is killed meanwhile."""
    orders = place.causal("id long, amount long", "orders")
    payments = place.causal("order_id long, sum double, note string", "payments")
    noted = payments.map(
        lambda row, ctx: (row.order_id, row.sum, ctx.random.getrandbits(40)),
        "order_id long, sum double, draw long",
        name="noted",
        parallelism=2,
    )

    def ordered(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        ctx.state["amount"] = row.amount
        yield from matched(key, ctx)

    def paid(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        ctx.state["sum"], ctx.state["draw"] = row.sum, row.draw
        yield from matched(key, ctx)

    def matched(key: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        found = ctx.state
        if len(found) == 3:
            yield key[0], found["amount"], found["sum"], found["draw"], ctx.random.getrandbits(40)

    match = (
        clonos.connect(orders, noted)
        .groupBy(left="id", right="order_id")
        .process(
            ordered,
            paid,
            "id long, amount long, sum double, draw long, own long",
            name="match",
            parallelism=2,
        )
    )
    place.start(match, mode)
    for at, (node, instance) in enumerate([(3, 0), (3, 1), (4, 0), (4, 1), (5, 0)]):
        ids = range(12 * at, 12 * at + 12)
        place.write([{"id": id_, "amount": id_ * 10} for id_ in ids], "orders")
        place.write([{"order_id": id_, "sum": id_ / 2, "note": "x"} for id_ in ids], "payments")
        place.until(lambda: len(place.rows()) >= 12 * at + 12, at)  # noqa: B023 - it is asked at once
        place.kill(node, instance)
    place.write([{"order_id": 60, "sum": 30.0}], "payments")
    place.await_commit()
    place.stop()
    place.start(match, mode)
    place.write([{"id": 60, "amount": 600}], "orders")
    rows = place.await_rows(61)
    assert sorted((row["id"], row["amount"], row["sum"]) for row in rows) == [
        (id_, id_ * 10, id_ / 2) for id_ in range(61)
    ]
    assert len({row["draw"] for row in rows}) == len({row["own"] for row in rows}) == 61


def test_a_stream_goes_to_a_place_once_by_whatever_path(place: Place) -> None:
    (place.base / "real").mkdir()
    (place.base / "link").symlink_to(place.base / "real")
    stream = place.causal("id long").map(drawn, SCHEMA, name="first")
    sinks = clonos.sinks
    for one, other in (
        (sinks.jsonl(place.base / "real"), sinks.jsonl(place.base / "link")),
        (
            sinks.sql(f"sqlite:///{place.base}/real/x.db", "t"),
            sinks.sql(f"sqlite:///{place.base}/link/x.db?timeout=5", "t"),
        ),
    ):
        writer = stream.writeStream.to(one, name="one").to(other, name="other")
        with pytest.raises(QueryDefinitionError, match="would get the rows of first twice"):
            writer.option("checkpointLocation", str(place.checkpoint)).start()

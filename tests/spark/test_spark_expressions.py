"""Spark's own `select`, `where` and their like on a causal stream: exact, for no operator more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from modes import MODES
from pyspark.sql import functions as f
from streams import TRIGGERS, Place

import clonos

MASTER = "local[16,4]"


def drawn(row: Any, ctx: Any) -> tuple[int, int]:
    return row.id, ctx.random.getrandbits(40)


def split(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    draw = ctx.random.getrandbits(40)
    ctx.side_output("texts", {"said": f"{row.id} {draw}", "id": row.id})
    yield row.id, draw


def count(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.twice, row.draw, ctx.state["n"]


@pytest.mark.parametrize("mode", MODES)
def test_rows_go_through_expressions_of_each_reader_while_all_are_killed(place: Place, mode: str) -> None:
    """The main output through one chain to a sink and through another to an operator, and a side output to a sink."""
    folders = {name: Place(place.spark, place.base / name) for name in ("texts", "counted")}
    source = place.causal("id long").where("id % 7 != 3").withColumn("more", f.col("id") + 1).select("id")
    sides = {"texts": "said string, id long"}
    main = source.groupBy("id").process(
        split, "id long, draw long", name="split", parallelism=2, side_outputs=sides
    )
    shown = main.where("id % 2 = 0").selectExpr("id", "draw % 1000000007 AS d")
    counted = (
        main.select((f.col("id") * 2).alias("twice"), "draw")
        .filter("twice % 4 = 2")
        .groupBy("twice")
        .process(count, "twice long, draw long, n long", name="counted", parallelism=2)
    )
    texts = main.side_output("texts").filter(f.col("id") % 3 == 0).select(f.upper("said").alias("said"))
    jsonl = {name: clonos.sinks.jsonl(folder.output, durable=False) for name, folder in folders.items()}
    writer = (
        shown.writeStream.to(clonos.sinks.jsonl(place.output, durable=False), name="shown")
        .to(jsonl["texts"], stream=texts, name="texts")
        .to(jsonl["counted"], stream=counted, name="count")
        .option("checkpointLocation", str(place.checkpoint))
        .trigger(**TRIGGERS[mode])
    )
    place.query = writer.start()

    def ids(upto: int) -> list[int]:
        return [id_ for id_ in range(upto) if id_ % 7 != 3]

    def due(upto: int) -> int:
        return len(ids(upto)) + sum(id_ % 3 == 0 for id_ in ids(upto))

    def visible() -> int:
        return sum(len(each.rows()) for each in (place, *folders.values()))

    nodes = [(2, 0), (2, 1), (3, 0), (3, 1), (4, 0), (5, 0)]
    for at, (node, instance) in enumerate(nodes):
        place.write([{"id": id_} for id_ in range(12 * at, 12 * at + 12)])
        place.until(lambda: visible() >= due(12 * at + 12), at)  # noqa: B023 - it is asked at once
        place.kill(node, instance)
        if at == 3:
            place.stop()
            place.query = writer.start()
    place.write([{"id": id_} for id_ in range(72, 84)])
    place.until(lambda: visible() >= due(84), "all rows")
    known = ids(84)
    said = folders["texts"].await_rows(sum(id_ % 3 == 0 for id_ in known))
    draws = {int(row["said"].split()[0]): int(row["said"].split()[1]) for row in said}
    odd = [id_ for id_ in known if id_ % 2]
    rows = folders["counted"].await_rows(len(odd))
    assert sorted((row["twice"], row["n"]) for row in rows) == [(2 * id_, 1) for id_ in odd]
    all_draws = {row["twice"] // 2: row["draw"] for row in rows}
    even = {row["id"]: row["d"] for row in place.await_rows(len(known) - len(odd))}
    assert sorted(even) == [id_ for id_ in known if id_ % 2 == 0]
    for id_, draw in draws.items():
        assert all_draws[id_] == draw if id_ % 2 else even[id_] == draw % 1000000007

"""Dataflows that are no chain: streams that feed several operators, by ways of different lengths, under kills."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from modes import MODES
from streams import Place

MASTER = "local[32,4]"
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


@pytest.mark.parametrize("mode", MODES)
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


@pytest.mark.parametrize("mode", MODES)
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

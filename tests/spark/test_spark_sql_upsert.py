"""A real query into a table with the newest row per key, through kills of its replicas and a restart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa
from streams import Place

import clonos

SCHEMA = "card string, n long, total long, draw long, gone boolean"


def count(key: Any, row: Any, ctx: Any) -> Any:
    """The rows of a card so far, with a draw that no other execution would repeat; each seventh one deletes."""
    n = ctx.state.get("n", 0) + 1
    total = ctx.state.get("total", 0) + row.amount
    ctx.state["n"], ctx.state["total"] = n, total
    yield key[0], n, total, ctx.random.getrandbits(40), n % 7 == 0


class Table:
    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url, poolclass=sa.pool.NullPool)

    def rows(self) -> dict[str, tuple[int, int]]:
        with self._engine.connect() as connection:
            if not sa.inspect(connection).has_table("counted"):
                return {}
            found = connection.execute(sa.text("SELECT card, n, total FROM counted")).all()
        assert len({card for card, _, _ in found}) == len(found)
        return {card: (n, total) for card, n, total in found}


def expected(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    n = Counter(row["card"] for row in rows)
    total = Counter[str]()
    for row in rows:
        total[row["card"]] += row["amount"]
    return {card: (count, total[card]) for card, count in n.items() if count % 7}


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("sqlite", "realtime"),
        pytest.param("mysql", "microbatch", marks=pytest.mark.mysql),
        pytest.param("sqlite", "microbatch", marks=pytest.mark.soak),
        pytest.param("mysql", "realtime", marks=[pytest.mark.mysql, pytest.mark.soak]),
    ],
)
def test_the_table_holds_the_newest_row_of_each_key(
    place: Place, kind: str, mode: str, request: pytest.FixtureRequest
) -> None:
    sqlite = kind == "sqlite"
    url = f"sqlite:///{place.base}/out.db" if sqlite else request.getfixturevalue("mysql").fresh_database()
    table = Table(url)
    sink = clonos.sinks.sql(url, "counted", mode="upsert", key="card", delete="gone", durable=False)
    stream = (
        place.causal("card string, amount long")
        .groupBy("card")
        .process(count, SCHEMA, name="count", parallelism=2)
    )
    given: list[dict[str, Any]] = []

    def feed(rows: int) -> None:
        more = [{"card": f"card {n % 11}", "amount": n} for n in range(len(given), len(given) + rows)]
        given.extend(more)
        place.write(more)

    def is_right() -> bool:
        return table.rows() == expected(given)

    place.start(stream, mode, sink)
    feed(60)
    place.until(is_right, "the first rows")
    for node in (2, 3):  # the operator, and the sink
        place.kill(node)
        feed(50)
        place.until(is_right, f"the rows after a kill of node {node}")
    place.start(stream, mode, sink)
    feed(41)
    place.until(is_right, "the rows after a restart")

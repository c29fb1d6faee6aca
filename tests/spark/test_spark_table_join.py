"""A stream beside a table: what Spark's own join gives, and a table that changes while replicas die."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from modes import mostly
from streams import Place

from clonos.errors import ClonosError, QueryDefinitionError

CARDS = "card string, amount int, at timestamp"


def test_each_row_meets_the_rows_that_sparks_own_join_gives_it(place: Place) -> None:
    rng = random.Random("a table")
    columns = "card string, opened timestamp, limits struct<day: decimal(10,2), tags: array<string>>"
    day = dt.datetime(2024, 11, 3, 1, 30)
    rows = [(rng.choice(["a", "b", "c", "d", None]), day, (None, ["x", None])) for _ in range(6)]
    table = place.spark.createDataFrame(rows, columns)
    cards = [rng.choice(["a", "b", "c", "x", None]) for _ in range(40)]
    place.write([{"card": card, "amount": at, "at": "2024-01-01 00:00:00"} for at, card in enumerate(cards)])
    for how in ("left", "left_anti"):  # the others in tests/testing/test_table_join.py
        place.checkpoint, place.output = place.base / f"checkpoint-{how}", place.base / f"out-{how}"
        own = place.read(CARDS).join(table, "card", how).writeStream.format("parquet")
        own = own.option("path", str(place.base / f"own-{how}"))
        own = own.option("checkpointLocation", str(place.base / f"own-checkpoint-{how}"))
        own.trigger(availableNow=True).start().awaitTermination()
        joined = place.causal(CARDS).join(table, "card", how, parallelism=2)
        place.writer(joined).trigger(availableNow=True).start().awaitTermination()
        expected = place.spark.read.parquet(str(place.base / f"own-{how}"))
        schema = joined.schema
        assert schema.simpleString() == expected.schema.simpleString()
        found = place.spark.read.schema(schema).json(str(place.output))
        assert Counter(map(str, found.collect())) == Counter(map(str, expected.collect()))
        assert found.count() > 0


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_table_that_changes_is_seen_and_what_was_seen_is_repeated(place: Place, mode: str) -> None:
    """Every row once, with one version of the table, although the process dies that had asked for it."""
    version = place.base / "version"
    version.write_text("0")

    def table() -> Any:
        number = int(version.read_text())
        return place.spark.createDataFrame([(card, number) for card in "ab"], "card string, version int")

    def drawn(row: Any, ctx: Any) -> Any:
        return row.card, row.amount, row.version, ctx.random.getrandbits(40)

    joined = place.causal("card string, amount int").join(
        table, "card", "left", refresh="1 second", parallelism=2
    )
    stream = joined.map(drawn, "card string, amount int, version int, draw long", name="draw", parallelism=1)
    place.start(stream, mode)
    sent = 0
    for number in range(3):
        version.write_text(str(number))

        def is_seen(number: int = number) -> bool:
            nonlocal sent
            place.write([{"card": card, "amount": sent + at} for at, card in enumerate("abc")])
            sent += 3
            place.until(lambda: len(place.rows()) >= sent, "rows")
            return number in {row["version"] for row in place.rows()}

        place.until(is_seen, f"version {number}")
        place.kill(node=2, instance=number % 2)
    rows = place.await_rows(sent)
    assert Counter(row["amount"] for row in rows) == Counter(range(sent))
    assert {row["version"] for row in rows if row["card"] == "c"} == {None}
    ordered = [
        row["version"] for row in sorted(rows, key=lambda row: int(row["amount"])) if row["card"] == "a"
    ]
    assert ordered == sorted(ordered), "of one instance"
    assert len({row["draw"] for row in rows}) == sent


def test_a_start_reads_the_table_anew(place: Place) -> None:
    for number in range(2):
        table = pa.table({"card": ["a"], "version": [number]})
        place.write([{"card": "a", "amount": number}])
        joined = place.causal("card string, amount int").join(table, "card")
        place.writer(joined).trigger(availableNow=True).start().awaitTermination()
        folder = Path(place.checkpoint) / "clonos" / "tables" / "2"
        assert len(list(folder.iterdir())) == 2 + number, "what an open epoch may have seen is kept"
    assert [(row["amount"], row["version"]) for row in place.rows()] == [(0, 0), (1, 1)]


def test_the_columns_are_those_of_the_definition(place: Place) -> None:
    """In another order they are found by their names; one that is gone is named, and the checkpoint stays free."""
    tables = iter(
        [
            pa.table({"card": ["a"], "x": [1], "y": [2]}),
            pa.table({"y": [2], "card": ["a"]}),
            pa.table({"y": [2], "x": [1], "card": ["a"]}),
        ]
    )
    joined = place.causal("card string").join(lambda: next(tables), "card")
    place.write([{"card": "a"}])
    with pytest.raises(ClonosError, match="the table has other columns than when the query was defined"):
        place.writer(joined).trigger(availableNow=True).start()
    place.writer(joined).trigger(availableNow=True).start().awaitTermination()
    assert [(row["x"], row["y"]) for row in place.rows()] == [(1, 2)]


def test_a_read_that_hangs_holds_nothing_up(place: Place) -> None:
    """Neither the end of the query nor its stop."""
    reads, hangs, ends = [], threading.Event(), threading.Event()

    def table() -> Any:
        reads.append(len(reads))
        if len(reads) > 2:
            hangs.set()
            ends.wait(180)
        return pa.table({"card": ["a"], "version": [len(reads)]})

    try:
        place.start(place.causal("card string").join(table, "card", refresh="1 second"))
        assert hangs.wait(120)
        place.stop()
        folder = place.checkpoint / "clonos" / "tables" / "2"
        before = sorted(each.name for each in folder.iterdir())
    finally:
        ends.set()
    place.write([{"card": "a"}])
    assert sorted(each.name for each in folder.iterdir()) == before


def test_what_is_no_table_is_refused(place: Place) -> None:
    cards = place.causal("card string, n int, f double")
    table = place.spark.createDataFrame([("a", 1, 1.0)], "card string, n long, f double")
    for make, says in (
        (lambda: cards.join(place.read("card string"), "card"), "cannot be joined with"),
        (lambda: cards.join(lambda: 5, "card"), "cannot be joined with 5"),
        (lambda: cards.join(5, "card"), "cannot be joined with a int"),
        (lambda: cards.join(cards, "card"), 'Give within="10 minutes"'),
        (lambda: cards.join(table, "card", within="1 hour"), "with a causal stream, not with a DataFrame"),
        (lambda: cards.join(table, "card", "outer"), "inner, left, left_semi or left_anti"),
        (lambda: cards.join(table, "card"), "both have a column 'f'"),
        (lambda: cards.join(table, "n"), "different types"),
        (lambda: cards.join(table, "f", "left_semi"), "f"),
        (lambda: cards.join(table, []), "at least one column"),
        (lambda: cards.join(table, "card", refresh="0 seconds"), "cannot be read every"),
    ):
        with pytest.raises(QueryDefinitionError, match=says):
            make()

"""Both sides of routing agree: where Spark sends a source row is where an operator would send it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from clonos.errors import QueryDefinitionError
from clonos.operators.rows import RowDecoder
from clonos.operators.types import arrow_schema
from clonos.protocol.destination import destination
from clonos.spark import routing

pytestmark = pytest.mark.spark

ZONE = "America/New_York"
PARALLELISM = 1009
KEYS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(codec="utf-8"), max_size=8)
    | st.sampled_from(["", "\x00N", "\x1f", "ß", "😀"]),
    "boolean": st.booleans(),
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "decimal(38,0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    "decimal(5,0)": st.integers(-99999, 99999).map(Decimal),
    "date": st.dates(dt.date(1, 1, 1)),
    "timestamp": st.datetimes(
        dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1), timezones=st.sampled_from([dt.UTC, ZoneInfo(ZONE)])
    ),
    "binary": st.binary(max_size=6),
}
ROW = st.tuples(*[st.none() | strategy for strategy in KEYS.values()])
SCHEMA = ", ".join(f"c{n} {kind}" for n, kind in enumerate(KEYS))


def rows_of_keys(count: int) -> list[tuple[Any, ...]]:
    """Generated rows, gathered, because a run of Spark per row would take all day."""
    rows: list[tuple[Any, ...]] = []

    @settings(max_examples=count, database=None, deadline=None)
    @given(row=ROW)
    def gather(row: tuple[Any, ...]) -> None:
        rows.append(row)

    gather()
    return rows


def test_every_allowed_key_type(spark: Any) -> None:
    from pyspark.sql import functions as f

    spark.conf.set("spark.sql.session.timeZone", ZONE)
    rows = rows_of_keys(400)
    frame = spark.createDataFrame(rows, SCHEMA, verifySchema=False)
    names = frame.schema.names
    keys = (
        [(name,) for name in names] + [(names[n], names[n - 1]) for n in range(len(names))] + [tuple(names)]
    )
    found = frame.select(
        "*", f.array(*[routing.by_key(frame.schema, key, PARALLELISM) for key in keys]).alias("d")
    ).toArrow()
    decoded = RowDecoder(arrow_schema(frame.schema), ZONE)
    as_operators_see_them = decoded.rows(
        decoded.columns(found.drop(["d"]).combine_chunks().to_batches()[0], 0), len(rows)
    )
    for row, targets in zip(as_operators_see_them, found.column("d").to_pylist(), strict=True):
        for key, target in zip(keys, targets, strict=True):
            values = [getattr(row, name) for name in key]
            assert destination(values, PARALLELISM, ZoneInfo(ZONE)) == target, (key, values)


@pytest.mark.parametrize(
    "kind",
    ["float", "double", "decimal(5,2)", "timestamp_ntz", "array<int>", "struct<a:int>", "map<int,int>"],
)
def test_other_types_are_no_keys(spark: Any, kind: str) -> None:
    schema = spark.createDataFrame([], f"a int, k {kind}").schema
    with pytest.raises(QueryDefinitionError, match=r"column 'k' of type .* cannot be a key"):
        routing.check_key_types(schema, ("a", "k"))


def test_columns_may_be_called_anything(spark: Any) -> None:
    frame = spark.createDataFrame([("x",)], "`a.b ``c` string")
    (row,) = frame.select(routing.by_key(frame.schema, ("a.b `c",), 7)).collect()
    assert row[0] == destination(("x",), 7)

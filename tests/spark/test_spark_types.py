"""Every type that a row may have passes through operators and conduits unchanged, nested and null ones too."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
from modes import in_turns, mostly
from streams import Place

import clonos
from clonos.errors import QueryDefinitionError

pytestmark = pytest.mark.spark

# By id: 0 ordinary, 1 extreme, 2 null, 3 odd.
VALUES = {
    "boolean": ("true", "false", "null", "true"),
    "tinyint": ("7", "-128", "null", "127"),
    "smallint": ("7", "-32768", "null", "32767"),
    "int": ("7", "-2147483648", "null", "2147483647"),
    "bigint": ("7", "-9223372036854775807", "null", "9223372036854775807"),
    "float": ("1.5", "'-infinity'", "null", "'nan'"),
    "double": ("0.1", "'infinity'", "null", "-0.0"),
    "decimal(38,18)": ("1.5", "-99999999999999999999.999999999999999999", "null", "0.000000000000000001"),
    "decimal(5,2)": ("1.5", "-999.99", "null", "0"),
    "string": ("'plain'", "''", "null", "'ß😀 \"quoted\"'"),
    "binary": ("X'00FF'", "X''", "null", "X'41'"),
    "date": ("'2024-02-29'", "'0001-01-01'", "null", "'9999-12-31'"),
    "timestamp": (
        "'2024-03-31 02:30:00.123456'",
        "'1900-01-01 00:00:00'",
        "null",
        "'2200-12-31 23:59:59.999999'",
    ),
    "timestamp_ntz": (
        "'2024-03-31 02:30:00.123456'",
        "'0001-01-01 00:00:00'",
        "null",
        "'9999-12-31 23:59:59.999999'",
    ),
    "interval day to second": (
        "interval '1 02:03:04.5' day to second",
        "interval '-9 0:0:0.000001' day to second",
        "null",
        "interval '0 0:0:0' day to second",
    ),
    "array<int>": ("array(1, 2)", "array()", "null", "array(1, null, 3)"),
    "map<string,double>": ("map('a', 1.5D)", "map()", "null", "map('b', null, 'a', 2D)"),
    "struct<a:int,b:string>": (
        "named_struct('a', 1, 'b', 'x')",
        "named_struct('a', null, 'b', null)",
        "null",
        "named_struct('a', 2, 'b', '')",
    ),
    "array<struct<m:map<string,array<date>>,t:timestamp>>": (
        "array(named_struct('m', map('k', array(date'2024-01-01', null)), 't', timestamp'2024-01-01 00:00:00'))",
        "array()",
        "null",
        "array(null, named_struct('m', null, 't', null))",
    ),
    "map<date,struct<s:struct<x:binary,y:decimal(10,1)>>>": (
        "map(date'2024-01-01', named_struct('s', named_struct('x', X'01', 'y', 1.5)))",
        "map()",
        "null",
        "map(date'2024-01-02', null)",
    ),
}


def columns() -> list[Any]:
    from pyspark.sql import functions as f

    made = [f.col("id").cast("int").alias("id")]
    for number, (kind, texts) in enumerate(VALUES.items()):
        choice = f.lit(None)
        for index, text in enumerate(texts):
            choice = f.when(f.col("id") == index, f.expr(f"cast({text} as {kind})")).otherwise(choice)
        made.append(choice.cast(kind).alias(f"c{number}"))
    return made


def plain(value: Any) -> Any:
    """Comparable: rows as tuples, NaN equal to itself, the sign of zero told."""
    if isinstance(value, float):
        return repr(value) if math.isnan(value) or value == 0 else value
    if isinstance(value, dict):
        return sorted((plain(k), plain(v)) for k, v in value.items())
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, list):
        return list(map(plain, value))
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.parametrize(("codegen", "mode"), in_turns(["CODEGEN_ONLY", "NO_CODEGEN"]))
def test_every_type_passes_through(place: Place, mode: str, codegen: str) -> None:
    """With the code that Spark generates for a row, and where it evaluates expressions instead."""
    place.spark.conf.set("spark.sql.codegen.factoryMode", codegen)
    place.spark.conf.set("spark.sql.codegen.wholeStage", str(codegen == "CODEGEN_ONLY").lower())
    folder = place.base / "received"
    folder.mkdir()

    def keep(rows: list[Any], ids: list[str]) -> None:
        for row, id_ in zip(rows, ids, strict=True):
            Path(folder, id_.rpartition("/")[2]).write_bytes(pickle.dumps(tuple(row)))

    def same(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state["last"] = row.c13
        yield row

    spark = place.spark
    source = place.read("id int").select(*columns())
    schema = source.schema
    stream = clonos.causal(source).map(lambda row: row, schema, name="map", pure=True)
    stream = stream.groupBy("id").process(same, schema, name="process", parallelism=1)
    place.write([{"id": id_} for id_ in range(4)], partitions=2)
    place.start(stream, mode, sink=clonos.sinks.call(keep))
    place.until(lambda: len(list(folder.iterdir())) == 4, "rows at the sink")
    received = [pickle.loads(path.read_bytes()) for path in folder.iterdir()]
    expected = [tuple(row) for row in spark.range(4).select(*columns()).collect()]
    names = ["id", *VALUES]
    for got, wanted in zip(sorted(received, key=lambda row: row[0]), expected, strict=True):
        for name, a, b in zip(names, got, wanted, strict=True):
            assert plain(a) == plain(b), (name, a, b)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_row_may_have_more_columns_than_spark_generates_code_for(place: Place, mode: str) -> None:
    width = int(place.spark.conf.get("spark.sql.codegen.maxFields")) + 50
    source = place.read("id int").selectExpr("id", *[f"id + {n} AS c{n}" for n in range(width)])

    def same(key: Any, row: Any, ctx: Any) -> Any:
        yield row

    place.write([{"id": id_} for id_ in range(8)])
    place.start(clonos.causal(source).groupBy("c7").process(same, source.schema, name="same"), mode)
    rows = place.await_rows(8)
    assert sorted(row["id"] for row in rows) == list(range(8))
    assert all(row[f"c{n}"] == row["id"] + n for row in rows for n in range(width))


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("parse_json('1')", "variant"),
        ("interval '1' month", "interval month"),
        ("make_interval(1)", "interval"),
    ],
)
def test_types_that_have_no_place_in_python_are_refused(place: Place, expression: str, kind: str) -> None:
    source = place.read("id int").selectExpr("id", f"{expression} as odd")
    with pytest.raises(QueryDefinitionError, match=f"the type '{kind}' is not supported"):
        clonos.causal(source)


@pytest.mark.parametrize("unit", ["hour", "day", "minute to second"])
def test_intervals_of_other_units_than_sinks_write_are_refused(place: Place, unit: str) -> None:
    value = {"hour": "'5' hour", "day": "'3' day", "minute to second": "'1:02' minute to second"}[unit]
    source = place.read("id int").selectExpr("id", f"named_struct('a', array(interval {value})) as odd")
    stream = clonos.causal(source).map(lambda row: row, source.schema, name="m", pure=True)
    with pytest.raises(
        QueryDefinitionError, match=f"of type 'interval {unit}'.*Cast it to interval day to second"
    ):
        place.start(stream)
    cast = clonos.causal(source.selectExpr("id", "cast(odd.a[0] as interval day to second) as odd"))
    place.start(cast.map(lambda row: row, "id int, odd interval day to second", name="m", pure=True))
    place.write([{"id": 1}])
    assert place.await_rows(1)[0]["odd"].endswith("DAY TO SECOND")


def test_both_halves_of_a_repeated_hour_stay_apart_in_sinks(place: Place) -> None:
    """And readers in another zone find the same instants."""
    import sqlite3

    place.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    schema = "t timestamp, nested struct<a: array<timestamp>, m: map<string, timestamp>>, wall timestamp_ntz"

    def nest(row: Any, ctx: Any) -> Any:
        moments = [dt.datetime(2024, 11, 3, 1, 30, fold=half) for half in (0, 1)]
        return [(moment, ([moment], {"x": moment}), row.t) for moment in moments]

    place.write([{"t": "2024-11-03 01:30:00"}])
    stream = place.causal("t timestamp_ntz").flat_map(nest, schema, name="nest", parallelism=1)
    database = place.base / "out.db"
    for sink, folder in ((None, "jsonl"), (clonos.sinks.sql(f"sqlite:///{database}", "out"), "sql")):
        writer = place.writer(stream, sink=sink).option("checkpointLocation", str(place.base / folder))
        writer.trigger(availableNow=True).start().awaitTermination()
    with contextlib.closing(sqlite3.connect(database)) as connection:
        found = connection.execute("select t, wall from out order by t").fetchall()
    assert found == [
        (f"2024-11-03 0{hour}:30:00.000000+00:00", "2024-11-03 01:30:00.000000") for hour in (5, 6)
    ]
    place.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    columns = ("t", "nested.a[0]", "nested.m['x']")
    back = place.spark.read.schema(schema).json(str(place.output))
    read = back.selectExpr(*(f"unix_timestamp({column})" for column in columns), "cast(wall as string)")
    assert sorted(map(tuple, read.collect())) == [
        (second, second, second, "2024-11-03 01:30:00") for second in (1_730_611_800, 1_730_615_400)
    ]

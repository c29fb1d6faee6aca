"""`stream["amount"]` and `stream.amount`, for a stream's own expressions; and expressions in the test driver."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f
from streams import Place

from clonos.errors import QueryDefinitionError
from clonos.testing.driver import OperatorDriver, SideOutput, stream

pytestmark = pytest.mark.spark
SCHEMA = "id long not null, at timestamp, name string, tags array<string>, place struct<x:int,y:double>"


def keep(row: Any, ctx: Any) -> Any:
    return row


@pytest.fixture
def streams(place: Place) -> dict[str, Any]:
    """Of every kind of upstream, with the same columns."""
    source = place.causal(SCHEMA)
    made = source.map(keep, SCHEMA, name="op", side_outputs={"side": SCHEMA})
    other = place.causal(SCHEMA, "other")
    return {
        "source": source,
        "main": made,
        "side": made.side_output("side"),
        "derived": source.map(keep, SCHEMA, name="before").where("id > 0"),
        "sources": source.union(other),
        "united": made.union(other),
    }


ASKED = [
    lambda s: s.where(s.id > 1),
    lambda s: s[s["id"] > 1],
    lambda s: s.select(s.id, s["place.x"], s.place.y.alias("y"), s[2]),
    lambda s: s[["id", s["NAME"]]],
    lambda s: s.withColumn("more", s.id + 1).where((f.col("more") > 2) & (s.id > 0)),
    lambda s: s.select(s.id, f.upper(s.name).alias("upper")).filter(s.id.isNotNull()),
    lambda s: s.drop(s.tags),
    lambda s: s.where(s.place.getField("x") == s.id).select(s.tags[0].alias("tag")),
]


@pytest.mark.parametrize("asked", ASKED)
def test_columns_are_as_those_of_a_dataframe(spark: Any, streams: dict[str, Any], asked: Any) -> None:
    expected = asked(spark.createDataFrame([], streams["main"].schema)).schema
    for name, given in streams.items():
        assert asked(given).schema.simpleString() == expected.simpleString(), name


def test_a_column_of_another_stream_is_refused_as_by_spark(place: Place, streams: dict[str, Any]) -> None:
    main, side, source, united = (streams[name] for name in ("main", "side", "source", "united"))
    for wrong in (
        lambda: main.where(side.id > 1),
        lambda: main.select(source["id"]),
        lambda: main.withColumn("n", main.map(keep, SCHEMA, name="next")["id"] + 1),
        lambda: side.groupBy(main.id),
        lambda: source.where(streams["derived"].id > 1),
        lambda: united.where(place.causal(SCHEMA, "other").id > 1),
        lambda: main.select(main.id)["name"],
        lambda: main["missing"],
    ):
        with pytest.raises(AnalysisException):
            wrong()
    # A union has the first one's columns, as in Spark
    assert united.where(main.id > 1).columns == main.columns
    timed = main.withWatermark("at", "1 minute")
    assert timed.where((main.id > 1) & (timed.id > 1)).event_time == timed.event_time
    kept = main.filter(lambda row, ctx: True, name="kept")
    assert kept.where(main.id > 1).groupBy(main.id, kept["name"])._key == ("id", "name")
    windowed = main.withColumnRenamed("at", "window")  # as Spark calls what its function of that name makes
    for no_column in (f.window("window", "1 minute"), f.col("*"), f.lit(1), main.id + 1, main.id.alias("n")):
        with pytest.raises(QueryDefinitionError, match="Compute the key as a column before"):
            windowed.groupBy(no_column)
    with pytest.raises(QueryDefinitionError, match="named by text or a number"):
        main[1.5]
    with pytest.raises(AttributeError, match="has no 'missing'"):
        _ = main.missing
    assert copy.copy(main).columns == main.columns and not hasattr(main, "missing")


def test_rows_of_all_upstreams_go_through_them(place: Place) -> None:
    schema = "id long, k string"
    one = place.causal(schema, "one").map(lambda row: row, schema, name="one", pure=True)
    two, three = place.causal(schema, "two"), place.causal(schema, "three")
    both = two.union(three).union(one)
    shown = both.where(both.id % 2 == 0).withColumn("more", both.id + 1)
    last = shown.where(shown.more != 5).select(both.k, shown["more"], both.id)
    for log in ("one", "two", "three"):
        place.write([{"id": n, "k": log} for n in range(8)], log)
    place.start(last)
    rows = place.await_rows(9)
    found = sorted((row["k"], row["id"], row["more"]) for row in rows)
    assert found == sorted((log, n, n + 1) for log in ("one", "two", "three") for n in (0, 2, 6))


def test_the_driver_evaluates_expressions_behind_an_operator(spark: Any) -> None:
    def judge(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.side_output("late", (row.n,))
        yield key[0], row.n, ctx.state["n"], ctx.random.random()

    zone = spark.conf.get("spark.sql.session.timeZone")
    cards = stream("k string, n long", timezone=zone)
    made = cards.groupBy(cards.k).process(
        judge, "k string, n long, seen long, draw double", name="judge", side_outputs={"late": "n long"}
    )
    shown = made.where(made.n % 2 == 1).select("k", (made["draw"] < 2).alias("drawn"), made.seen + 1)
    with OperatorDriver(shown.toDF("k", "drawn", "more")) as driver:
        said = driver.feed([("a", 1), ("a", 2), ("b", 3)])
        assert said == [
            SideOutput("late", (1,)), ("a", True, 2), SideOutput("late", (2,)), SideOutput("late", (3,)),
            ("b", True, 2),
        ]  # fmt: skip
        assert said[1].more == 2 and driver.state("a") == {"n": 2}
        assert driver.kill() == []
        driver.end_epoch()
        assert driver.feed([("a", 5)])[1].more == 4
        driver.kill()
    late = made.side_output("late")
    with OperatorDriver(late.where(late.n > 1).selectExpr("n * 2 AS twice")) as driver:
        assert driver.feed([("a", 1), ("a", 2)]) == [(4,)]
        driver.kill()
    with pytest.raises(QueryDefinitionError, match="in front of an operator"):
        cards.where("n > 1")
    with pytest.raises(QueryDefinitionError, match="time zone"):
        stream("n long", timezone="Asia/Tokyo").map(keep, "n long", name="op").where("n > 1")

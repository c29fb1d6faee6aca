"""`groupBy(...).agg(...)` of a causal stream: Spark's own results, and every row once although replicas die."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from modes import mostly
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from streams import Place

from clonos.errors import QueryDefinitionError, StateError, UserFunctionError
from clonos.operators.expressions.aggregates import Fold
from clonos.operators.expressions.compiled import EvaluationError
from clonos.operators.rows import RowDecoder, RowEncoder
from clonos.operators.types import arrow_schema
from clonos.spark.aggregation import aggregation
from clonos.spark.parity import check_append
from clonos.spark.stream_columns import StreamColumns
from clonos.values.grouping_keys import key_of

pytestmark = pytest.mark.spark
SCHEMA = (
    "k string, t tinyint, i int, l bigint, f float, d double, n decimal(5,2), w decimal(38,10), s string, b boolean, "
    "bin binary, day date, at timestamp, ntz timestamp_ntz"
)
NOON = dt.datetime(2024, 3, 31, 12)
COLUMNS: dict[str, list[Any]] = {
    "k": ["a", "b", None],
    "t": [0, 1, -128, 127, None],
    "i": [0, 7, -7, 2**31 - 1, -(2**31), None],
    "l": [0, 1, -13, 2**40, None],
    "f": [0.0, -0.0, 1.5, -2.25, math.nan, math.inf, None],
    "d": [0.0, -0.0, 1.5, -2.25, math.nan, -math.inf, None],
    "n": [Decimal("0.01"), Decimal("-999.99"), Decimal("999.99"), None],
    "w": [Decimal("0.0000000001"), Decimal("12345678901234567890.5"), None],
    "s": ["", "a", "B", "äö", "\U0001f600", None],
    "b": [True, False, None],
    "bin": [b"", b"\x00", b"\xff\x01", None],
    "day": [dt.date(2024, 1, 1), dt.date(1969, 12, 31), None],
    "at": [NOON, NOON + dt.timedelta(hours=30), dt.datetime(1960, 1, 1), None],
    "ntz": [NOON, dt.datetime(1960, 1, 1), None],
}
AGGREGATES = [
    *["count(1)", "count(*)", "count(i)", "count(i, d)", "count_if(i > 0)"],
    *[f"{fn}({column})" for fn in ("sum", "avg") for column in "tilfdnw"],
    *[f"{fn}({column})" for fn in ("min", "max") for column in list(COLUMNS)[1:]],
    *[f"{fn}({column})" for fn in ("first", "last") for column in ("i", "s", "at")],
    *[
        "first(i, true)",
        "last(s, true)",
        "any_value(l)",
        "bool_and(b)",
        "every(i > 0)",
    ],
    *["sum(i) FILTER (WHERE b)", "count(*) FILTER (WHERE i > 0)", "sum(2 * i + t)"],
    *["sum(i) / count(i)", "max(i) - min(i)", "concat(max(s), '-', k)", "1"],
    "CASE WHEN count(i) > 2 THEN avg(n) ELSE sum(n) END",
]


def drawn(rng: random.Random, count: int) -> list[tuple[Any, ...]]:
    return [tuple(rng.choice(values) for values in COLUMNS.values()) for _ in range(count)]


def ours(spark: Any, rows: list[tuple[Any, ...]], expression: str) -> dict[Any, Any]:
    """The value of each key."""
    schema = StructType.fromDDL(SCHEMA)
    made, output = aggregation(
        StreamColumns(spark, (), schema),
        schema.names,
        ("k",),
        lambda grouped: grouped.agg(f.expr(expression)),
    )
    fold = Fold(made)
    decoder = RowDecoder(arrow_schema(schema), made.zone)
    batch = RowEncoder(arrow_schema(schema), made.zone).batch(rows)
    kept: dict[Any, list[Any]] = {}
    for row in decoder.rows(decoder.columns(batch), batch.num_rows):
        fold.add(kept.setdefault(row[0], [*fold.nothing]), row)
    results = [fold.row(key_of((key,)), each) for key, each in kept.items()]
    shown = RowDecoder(arrow_schema(output), made.zone, instants=True)
    given = RowEncoder(arrow_schema(output), made.zone).batch(results)
    return dict(zip(*shown.columns(given), strict=True))


def sparks(spark: Any, rows: list[tuple[Any, ...]], expressions: list[str]) -> list[dict[Any, Any]]:
    schema = StructType.fromDDL(SCHEMA)
    batch = RowEncoder(arrow_schema(schema), spark.conf.get("spark.sql.session.timeZone")).batch(rows)
    given = spark.createDataFrame(pa.Table.from_batches([batch]), schema).coalesce(1)
    made = given.groupBy("k").agg(*[f.expr(each).alias(f"a{at}") for at, each in enumerate(expressions)])
    found = arrow_schema(made.schema)
    (whole,) = made.toArrow().cast(found).combine_chunks().to_batches()
    key, *columns = RowDecoder(found, "UTC", instants=True).columns(whole)
    return [dict(zip(key, column, strict=True)) for column in columns]


def check_same(spark: Any, rows: list[tuple[Any, ...]], expressions: list[str]) -> None:
    """Value by value and type by type; where ours fails, Spark's does."""
    mine: dict[str, Any] = {}
    for expression in expressions:
        try:
            mine[expression] = ours(spark, rows, expression)
        except EvaluationError:
            with pytest.raises(PySparkException):
                sparks(spark, rows, [expression])
    for (expression, found), theirs in zip(mine.items(), sparks(spark, rows, [*mine]), strict=True):
        assert found.keys() == theirs.keys()
        for key, value in theirs.items():
            assert (str(found[key]), type(found[key])) == (str(value), type(value)), (expression, key)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_results_are_sparks_own(spark: Any, ansi: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    rng = random.Random("aggregates")
    nothing = dict.fromkeys(COLUMNS)
    large = {"l": 2**63 - 1, "w": Decimal("9999999999999999999999999999.9")}
    try:
        for count in (1, 3, 24, 24):
            check_same(spark, drawn(rng, count), AGGREGATES)
        overflowing = [tuple({**nothing, **large}.values()) for _ in range(2)]
        check_same(spark, overflowing, ["sum(l)", "sum(w)", "avg(w)", "avg(l)", "max(w)"])
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("count(DISTINCT i)", "distinct values"),
        ("collect_list(i)", "CollectList"),
        ("stddev(i)", "StddevSamp"),
        ("sum(i) + rand()", "is another one when a row is made again"),
        ("max(current_timestamp())", "is another one when a row is made again"),
        ("try_sum(i)", "try_sum"),
    ],
)
def test_what_is_not_known_to_be_equal_is_refused(place: Place, expression: str, said: str) -> None:
    with pytest.raises(QueryDefinitionError, match=said):
        place.causal("k string, i int").groupBy("k").agg(f.expr(expression))


def test_what_spark_refuses_is_refused_in_its_words(place: Place) -> None:
    by_key = place.causal("k string, i int").groupBy("k")
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        by_key.agg(f.sum("nothing"))
    with pytest.raises(AnalysisException, match="MISSING_AGGREGATION"):
        by_key.agg(f.col("i"))
    with pytest.raises(AnalysisException, match="NONDETERMINISTIC"):
        by_key.agg(f.sum(f.rand()))


def test_a_key_may_have_a_name_that_is_no_identifier(place: Place) -> None:
    named = place.causal("k string, i int").withColumnRenamed("k", "a.`b")
    assert named.groupBy("a.`b").sum("i").columns == ["a.`b", "sum(i)"]


def test_a_result_that_changes_is_not_shown_in_append_mode(place: Place) -> None:
    """There Spark shows it once, when no row can change it any more: what windows do."""
    timed = place.causal("k string, n long").withColumn("at", f.timestamp_seconds("n"))
    timed = timed.withWatermark("at", "1 second")
    for counts in (timed.groupBy("k").count(), timed.groupBy("at").count().where("count > 1")):
        with pytest.raises(
            QueryDefinitionError, match=r"'append' shows each result once, and 'count'.*window"
        ):
            place.writer(counts).outputMode("Append").start()
    check_append(timed.groupBy("k").window("2 seconds").count().plan)


def test_aggregates_without_a_name_are_numbered(place: Place) -> None:
    stream = place.causal("k string, n long")
    twice = stream.groupBy("k").count().withColumnRenamed("count", "c").groupBy("c").count()
    timed = stream.withColumn("at", f.timestamp_seconds("n")).withWatermark("at", "1 second")
    windows = timed.groupBy("k").window("2 seconds").count()
    query = place.start(twice)
    place.write([{"k": "a", "n": 1}])
    place.await_rows(1)
    query.processAllAvailable()
    progress = query.recentProgress[-1]
    assert [each.operatorName for each in progress.stateOperators] == ["count-1", "count-2"]
    assert windows.plan[0].binding.name == "count" and not windows.plan[0].binding.named


def test_columns_may_be_quoted(place: Place) -> None:
    stream = place.causal("`a.b` string, n long").withColumn("e.t", f.timestamp_seconds("n"))
    assert stream.groupBy("`a.b`").count().columns == ["a.b", "count"]
    timed = stream.withWatermark("`e.t`", "1 second").event_time
    assert timed is not None and timed.column == "e.t"


def test_what_is_kept_goes_by_the_names_of_columns(place: Place) -> None:
    """A column may be added in front of them."""
    for schema in ("k string, i int", "x int, k string, i int"):
        place.write([{"k": "a", "i": 1}])
        names = [column.split()[0] for column in schema.split(", ")]
        given = place.causal("k string, i int, x int").select(*names)
        stream = given.groupBy("k").agg(
            f.sum("i").alias("total"), f.expr("count(*) FILTER (WHERE i > 0) AS n")
        )
        place.writer(stream).trigger(availableNow=True).start().awaitTermination()
    assert [(r["total"], r["n"]) for r in place.rows()] == [(1, 1), (2, 2)]


def test_names_and_types_are_sparks_own(place: Place) -> None:
    stream = place.causal("k string, i int, n decimal(5,2)")
    empty = place.spark.createDataFrame([], stream.schema).groupBy("k")
    for own in (
        lambda grouped: grouped.count(),
        lambda grouped: grouped.sum(),
        lambda grouped: grouped.avg("i", "n"),
        lambda grouped: grouped.mean("n"),
        lambda grouped: grouped.min("i"),
        lambda grouped: grouped.max("n"),
        lambda grouped: grouped.agg({"i": "sum", "n": "max"}),
        lambda grouped: grouped.agg(f.sum(f.col("i") * 2).alias("x"), f.count("*")),
    ):
        assert own(stream.groupBy("k")).schema == own(empty).schema


def test_a_batch_gives_the_rows_of_sparks_update_mode(place: Place) -> None:
    """Batch by batch."""
    schema = "k string, i int"
    place.spark.conf.set("spark.sql.shuffle.partitions", "2")
    aggregates = [f.count("*").alias("n"), f.sum("i").alias("total"), f.min("i").alias("least")]

    def keep(rows: Any, batch: int) -> None:
        rows.write.mode("append").parquet(str(place.base / "native"))

    for number in range(3):
        place.write([{"k": "abc"[at % (3 - number)], "i": at + number} for at in range(10)])
        own = (
            place.read(schema)
            .groupBy("k")
            .agg(*aggregates)
            .writeStream.foreachBatch(keep)
            .outputMode("update")
            .option("checkpointLocation", str(place.base / "native-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        own.awaitTermination()
        causal = place.causal(schema).groupBy("k").agg(*aggregates, per="batch", parallelism=2)
        place.writer(causal).trigger(availableNow=True).start().awaitTermination()
    expected = place.spark.read.parquet(str(place.base / "native")).collect()
    assert len(expected) == 3 + 2 + 1
    assert Counter((r["k"], r["n"], r["total"], r["least"]) for r in place.rows()) == Counter(
        map(tuple, expected)
    )


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_results_are_exact_although_replicas_die(place: Place, mode: str) -> None:
    """The rows carry draws: a row that came a second time would be another one, and sums would show it."""
    drawn = place.causal("k string").map(
        lambda row, ctx: (row.k, ctx.random.getrandbits(30)), "k string, draw long", name="draw"
    )
    totals = drawn.groupBy("k").agg(f.count("*").alias("n"), f.sum("draw").alias("total"), parallelism=2)
    place.start(totals.withColumn("mean", f.expr("total / n")), mode)
    for step in range(4):
        place.write([{"k": "abcde"[at % 5]} for at in range(20)])
        place.until(lambda: sum(latest(place.rows()).values()) == 20 * (step + 1), step)  # noqa: B023
        place.kill(node=2 + step % 2, instance=step // 2)
    assert latest(place.rows()) == dict.fromkeys("abcde", 16)
    for key in "abcde":
        rows = sorted((r["n"], r["total"]) for r in place.rows() if r["k"] == key)
        assert len({n for n, _ in rows}) == len(rows), "each count was shown once"
        assert all(a[1] <= b[1] for a, b in itertools.pairwise(rows)), "and totals go on from each other"


def latest(rows: list[dict[str, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        found[row["k"]] = max(found.get(row["k"], 0), row["n"])
    return found


def test_other_aggregates_do_not_go_on_with_what_is_kept(place: Place) -> None:
    for number, own in enumerate((f.min("i"), f.max("i"))):
        place.write([{"k": "a", "i": number}])
        stream = place.causal("k string, i int").groupBy("k").agg(own.alias("x"))
        query = place.writer(stream).trigger(availableNow=True).start()
        if number == 0:
            query.awaitTermination()
        else:
            with pytest.raises(StateError, match="of other aggregates than it has now"):
                query.awaitTermination()


def test_a_sum_that_does_not_fit_names_the_record(place: Place) -> None:
    place.write([{"k": "a", "l": 2**63 - 1}, {"k": "a", "l": 1}], partitions=1)
    stream = place.causal("k string, l long", partitions=1).groupBy("k").sum("l")
    with pytest.raises(UserFunctionError, match=r"an aggregate of 'sum-1' has no value: sum\(.*position"):
        place.writer(stream).trigger(availableNow=True).start().awaitTermination()

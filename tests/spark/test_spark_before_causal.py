"""What may not stand before `causal()` is refused with its name and a hint, and what the hint says works."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from modes import mostly
from streams import Place

import clonos
from clonos.errors import ExpressionError, QueryDefinitionError
from clonos.spark.before_causal import check_before_causal
from clonos.spark.failure import QueryFailed, translate
from clonos.spark.identity import check_kafka

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"


def coin(rows: Any) -> Any:
    return rows


def refusals() -> dict[str, tuple[Callable[[Any], Any], str]]:
    from pyspark.sql import functions as f

    def column(text: str) -> Callable[[Any], Any]:
        return lambda df: df.withColumn("extra", f.expr(text))

    chance, clock, call = r"ctx\.random", r"ctx\.now\(\)", r"ctx\.call"
    unpredictable = f.udf(coin, "long").asNondeterministic()
    return {
        "rand": (column("rand()"), rf"rand\(\) in column 'extra' .*not deterministic.*{chance}"),
        "seeded": (column("n + rand(3)"), rf"rand\(3\) in column 'extra'.*{chance}"),
        "randn": (column("randn()"), rf"randn\(.*{chance}"),
        "uuid": (column("uuid()"), r"uuid\(\) in column 'extra'.*ctx\.uuid4"),
        "shuffle": (column("shuffle(array(1, 2))"), rf"shuffle\(.*{chance}"),
        "partition": (column("spark_partition_id()"), r"SPARK_PARTITION_ID.*channel= and position="),
        "filtered by chance": (lambda df: df.filter("rand() < 0.5"), rf"rand\(\) in a Filter.*{chance}"),
        "reflection": (column("reflect('java.util.UUID', 'randomUUID')"), rf"reflect\(.*{call}"),
        "udf": (lambda df: df.withColumn("extra", unpredictable("n")), rf"coin\(n.*'extra'.*{call}"),
        "timestamp": (column("current_timestamp()"), rf"current_timestamp\(\) in column 'extra'.*{clock}"),
        "now": (column("now()"), rf"now\(\) in column 'extra'.*{clock}"),
        "date": (column("current_date()"), rf"current_date\(.*{clock}"),
        "local": (column("localtimestamp()"), rf"localtimestamp\(.*{clock}"),
        "time": (column("string(current_time())"), rf"current_time\(.*{clock}"),
        "nested": (column("unix_timestamp()"), rf"current_timestamp\(\) in column 'extra'.*{clock}"),
        "filtered by time": (lambda df: df.filter("now() > '2020-01-01'"), rf"now\(\) in a Filter.*{clock}"),
        "repartition": (lambda df: df.repartition(3), "Repartition.*order of records.*parallelism="),
        "by key": (lambda df: df.repartition("k"), "Repartition.*groupBy"),
        "sort": (lambda df: df.sort("n"), "Sort.*order of records"),
        "explode": (lambda df: df.select(f.explode(f.array("n", "n"))), "Generate.*several rows.*flat_map"),
        "pandas": (lambda df: df.mapInPandas(coin, SCHEMA), "MapInPandas.*flat_map"),
        "limit": (lambda df: df.limit(3), r"Limit.*filter\(fn\)"),
        "sample": (lambda df: df.sample(0.5), rf"Sample.*{chance}"),
        "distinct": (lambda df: df.distinct(), r"Deduplicate.*ctx\.state"),
        "duplicates": (lambda df: df.dropDuplicates(["k"]), r"Deduplicate.*ctx\.state"),
        "aggregate": (lambda df: df.groupBy("k").count(), r"Aggregate.*groupBy\(\.\.\.\)\.process"),
        "static join": (
            lambda df: df.join(df.sparkSession.range(3)),
            r"Join.*another one.*causal\(a\)\.join\(table, key\)",
        ),
        "subquery": (
            lambda df: df.filter("n in (select id from range(3))"),
            r"subquery in a Filter.*causal\(a\)\.join\(table, key\)",
        ),
        "itself": (lambda df: df.union(df), r"Union.*one identity.*causal\(a\)\.union\(causal\(b\)\)"),
    }


NAMES = (
    "rand seeded randn uuid shuffle partition filtered_by_chance reflection udf timestamp now date local time nested "
    "filtered_by_time repartition by_key sort explode pandas limit sample distinct duplicates aggregate static_join "
    "subquery itself"
).split()


def test_every_refusal_is_tried(spark: Any) -> None:
    assert [name.replace("_", " ") for name in NAMES] == list(refusals())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_the_same_at_each_reading_is_refused(place: Place, name: str) -> None:
    made, says = refusals()[name.replace("_", " ")]
    with pytest.raises(QueryDefinitionError, match=says):
        clonos.causal(made(place.read(SCHEMA)))


def test_columns_of_an_identity_are_looked_at_as_well(place: Place) -> None:
    from pyspark.sql import functions as f

    source = place.read(SCHEMA)
    with pytest.raises(QueryDefinitionError, match=r"SPARK_PARTITION_ID\(\) in column 'channel'"):
        clonos.causal(source, channel=f.spark_partition_id(), position="n")
    with pytest.raises(QueryDefinitionError, match=r"rand\(\) in column 'position'"):
        clonos.causal(source, channel="n", position=f.expr("bigint(rand() * 9)"))


def test_what_is_the_same_at_each_reading_may_stand_there(place: Place) -> None:
    from pyspark.sql import functions as f

    pure = f.udf(lambda n: n + 1, "long")
    source = place.read(SCHEMA)
    source.createOrReplaceTempView("pure_source")
    for frame in (
        source.alias("a").withColumn("file", f.input_file_name()),
        source.withColumn("n", pure("n")).filter("n > 1").select("k", f.col("n").cast("string")),
        source.withColumn("at", f.timestamp_seconds("n")).withWatermark("at", "1 second"),
        source.observe("seen", f.count(f.lit(1))).coalesce(1),
        place.spark.sql("select k, n from pure_source where k is not null"),
    ):
        check_before_causal(frame)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_what_the_hints_say_works(place: Place, mode: str) -> None:
    """Several rows of one record, chance, the clock, identifiers, a look-up that changes, and rows seen before."""
    names = place.base / "names"
    names.write_text("first")

    def tag(row: Any, ctx: Any) -> Any:
        name = ctx.call(names.read_text)
        return [(row.k, row.n, copy, name, ctx.random.random()) for copy in range(2)]

    def once(key: Any, row: Any, ctx: Any) -> Any:
        seen = ctx.state.setdefault("seen", [])
        if (row.n, row.copy) not in seen:
            seen.append((row.n, row.copy))
            yield row.k, row.n, row.copy, row.name, row.draw, str(ctx.uuid4()), ctx.now()

    stream = (
        place.causal(SCHEMA)
        .flat_map(tag, "k string, n long, copy int, name string, draw double", name="tag", parallelism=2)
        .filter(
            lambda row, ctx: ctx.random.random() >= 0 and 0 <= row.draw < 1, name="by chance", parallelism=1
        )
        .groupBy("k")
        .process(
            once,
            "k string, n long, copy int, name string, draw double, id string, at timestamp",
            name="once",
            parallelism=2,
        )
    )
    place.write({"k": f"k{n % 3}", "n": n} for n in (0, 1, 2, 0, 1, 2))
    place.start(stream, mode)
    place.await_rows(6)
    names.write_text("second")
    place.kill(node=4)
    place.write({"k": f"k{n % 3}", "n": n} for n in range(3, 6))
    rows = place.await_rows(12)
    assert {(row["n"], row["copy"]) for row in rows} == {(n, copy) for n in range(6) for copy in range(2)}
    assert {row["name"] for row in rows if row["n"] < 3} == {"first"}
    assert {row["name"] for row in rows if row["n"] >= 3} == {"second"}
    assert len({row["id"] for row in rows}) == 12


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "cards", "minPartitions": "8"}, "option minPartitions splits"),
        ({"subscribe": "cards", "maxRecordsPerPartition": "8"}, "option maxRecordsPerPartition splits"),
    ],
)
def test_kafka_as_it_cannot_be_identified_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(QueryDefinitionError, match=says):
        check_kafka(options)
    check_kafka({"subscribe": "cards,shops", "includeHeaders": "true", "startingOffsets": "earliest"})


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_an_expression_that_fails_ends_the_query(place: Place, mode: str) -> None:
    """At once; in real time all stages fail together, and Spark may first have heard a neighbour's failure."""
    from pyspark.sql import functions as f

    source = place.read("text string")
    place.write([{"text": "1"}, {"text": "x"}])
    bad = clonos.causal(source.select(f.col("text").cast("long").alias("n")))
    place.start(bad.map(lambda row: row, "n long", name="m", pure=True), mode)
    with pytest.raises(ExpressionError, match=r"\[CAST_INVALID_INPUT\] The value 'x' .*try_cast"):
        place.query.awaitTermination(60)
    assert mode == "realtime" or place.query.restarts == []
    place.stop()
    good = clonos.causal(source.selectExpr("try_cast(text as long) as n").filter("n is not null"))
    place.start(good.map(lambda row: row, "n long", name="m", pure=True), mode)
    assert [row["n"] for row in place.await_rows(1)] == [1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "Job aborted: SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n at",
            r"\[DIVIDE_BY_ZERO\] Division by zero\.",
        ),
        ("[USER_RAISED_EXCEPTION] no such card SQLSTATE: P0001", "no such card"),
        (
            "[STREAM_FAILED]: [DUPLICATED_MAP_KEY] Duplicate map key 1 was found. SQLSTATE: 23505 SQLSTATE: XXKST",
            r"failed: \[DUPLICATED_MAP_KEY\] Duplicate map key 1 was found\.",
        ),
        (
            "[INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION] Another result SQLSTATE: 42K0B",
            "Another result",
        ),
    ],
)
def test_spark_says_whose_error_it_is(text: str, says: str) -> None:
    error = translate(Exception(text))
    assert isinstance(error, ExpressionError) and not error.retryable
    assert re.search(says, str(error))
    assert isinstance(translate(Exception("[STREAM_FAILED] ExecutorLost SQLSTATE: XXKST")), QueryFailed)
    raised = "[STREAM_FAILED] Query: [PYTHON_EXCEPTION] the service is away SQLSTATE: 38000 SQLSTATE: XXKST"
    assert isinstance(translate(Exception(raised)), QueryFailed), "it may be there again"
    plan = (
        "Job 3 cancelled\n=== Streaming Query ===\nraise_error([clonos:InputError] a record has the channel"
    )
    assert isinstance(translate(Exception(plan)), QueryFailed), "the plan says what might have failed"

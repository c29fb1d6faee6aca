"""Spark's own `select`, `where` and their like on a causal stream: exact, for no operator more."""

from __future__ import annotations

import datetime as dt
import os
import signal
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from modes import mostly
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from streams import TRIGGERS, Place

import clonos
from clonos.errors import CheckpointMismatch, InputError, QueryDefinitionError, UserFunctionError
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.expression_tree import Reader
from clonos.testing.driver import OperatorDriver, stream as rows_alone
from clonos.tools.checkpoint.describe import described, render


def drawn(row: Any, ctx: Any) -> tuple[int, int]:
    return row.id, ctx.random.getrandbits(40)


def split(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    draw = ctx.random.getrandbits(40)
    ctx.side_output("texts", {"said": f"{row.id} {draw}", "id": row.id})
    yield row.id, draw


def count(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.twice, row.draw, ctx.state["n"]


@pytest.mark.parametrize("mode", mostly("microbatch"))
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


# What a stream is


SCHEMA = "id long not null, at timestamp, name string, tags array<string>, place struct<x:int,y:double>"


def keep(row: Any, ctx: Any) -> Any:
    return row


@pytest.fixture
def streams(place: Place) -> dict[str, Any]:
    """A source, an operator and a side output with the same columns."""
    source = place.causal(SCHEMA)
    made = source.map(keep, SCHEMA, name="op", side_outputs={"side": SCHEMA})
    return {"source": source, "main": made, "side": made.side_output("side")}


ASKED = [
    lambda s: s.select("place.x", (f.col("id") + 1).alias("more"), "*"),
    lambda s: s.selectExpr("id AS k", "place.*", "tags[0] AS tag", "upper(name) AS name"),
    lambda s: s.where("id > 1").select("name").where(f.col("name").isNotNull()),
    lambda s: s.filter(f.col("id") > 1).drop("tags", "place", "nothing"),
    lambda s: s.withColumn("id", f.col("id").cast("string")).withColumn("n", f.lit(1.5)),
    lambda s: s.withColumns({"a": f.coalesce("name", f.lit("-")), "b": f.col("id") % 2}),
    lambda s: s.withColumnRenamed("id", "k").withColumnsRenamed({"at": "then"}).select("k", "then"),
    lambda s: s.select("id", "name").toDF("a", "b"),
    lambda s: s.select([f.struct("id", f.col("name").alias("n")).alias("s")]),
]


@pytest.mark.parametrize("asked", ASKED)
def test_columns_types_and_nulls_are_as_spark_says(spark: Any, streams: dict[str, Any], asked: Any) -> None:
    expected = asked(spark.createDataFrame([], streams["main"].schema)).schema
    for name in ("main", "side"):
        made = asked(streams[name])
        assert made.schema == expected and made.columns == expected.names
    of_source = asked(streams["source"])  # there Spark says that what comes from JSON may be null
    assert of_source.schema.simpleString() == expected.simpleString()
    united = asked(streams["source"].union(streams["main"]))
    assert united.columns == expected.names and len(united.plan) == 2


def test_what_spark_refuses_spark_refuses(streams: dict[str, Any]) -> None:
    for stream in streams.values():
        for wrong in (
            lambda s: s.select("missing"),
            lambda s: s.where("id + 'a' = tags"),
            lambda s: s.selectExpr("id +"),
            lambda s: s.toDF("a"),
        ):
            with pytest.raises(PySparkException):
                wrong(stream)
        with pytest.raises(QueryDefinitionError, match="two columns called"):
            stream.select("id", f.col("name").alias("ID"))
        with pytest.raises(QueryDefinitionError, match="names that begin with _clonos are taken"):
            stream.withColumn("_clonos_x", f.lit(1))


def test_what_is_not_evaluated_behind_an_operator_is_named(spark: Any, streams: dict[str, Any]) -> None:
    twice = f.udf(lambda text: text, "string")
    for stream in (streams["main"], streams["side"], streams["main"].select("id", "name", "tags")):
        for asked, says, hint in (
            (
                lambda s: s.select(f.rand()),
                r"rand\(.* is another one when a row is made again",
                r"ctx\.random",
            ),
            (
                lambda s: s.where(f.current_timestamp() > f.lit(None)),
                "current_timestamp.* is another one",
                r"ctx\.now",
            ),
            (lambda s: s.select(f.explode("tags")), "Generate cannot follow an operator", "flat_map"),
            (lambda s: s.select(f.sum("id")), "Aggregate cannot follow an operator", r"groupBy.*process"),
            (lambda s: s.select(twice("name")), "PythonUDF", r"map\(fn"),
            (lambda s: s.where("id in (select 1)"), "is not evaluated behind an operator", r"map\(fn"),
            (lambda s: s.selectExpr("regexp_replace(name, 'a', 'b')"), "RegExpReplace", r"map\(fn"),
            (lambda s: s.where("name rlike '(a)\\\\1'"), "of its regular expression", r"map\(fn"),
            (lambda s: s.where("name rlike 'a{2,1}'"), "Python knows no such regular expression", r"map\(fn"),
            (lambda s: s.selectExpr("cast(name as double)"), r"string to double", r"map\(fn"),
        ):
            with pytest.raises(QueryDefinitionError, match=f"{says}.*{hint}"):
                asked(stream)
    with pytest.raises(QueryDefinitionError, match=r"rand\(.*is not deterministic.*ctx\.random"):
        streams["source"].select(f.rand())
    with pytest.raises(QueryDefinitionError, match="filter takes a function of a row and a name"):
        streams["main"].filter(keep)


@pytest.mark.parametrize("call", ["NumberFormatException", "NullPointerException"])
def test_what_the_jvm_cannot_say_is_refused_by_the_expressions_name(
    streams: dict[str, Any], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whatever it raises, and whatever of the expression is looked at."""

    def raises(reader: Any, expression: Any, op: str) -> Any:
        java = reader._spark._jvm.java
        if call == "NullPointerException":
            return java.util.Objects.requireNonNull(None)
        return java.lang.Integer.parseInt("x")

    monkeypatch.setattr(Reader, "_more", raises)
    says = rf"does not say of .*id \+ .* what a replica must know .*{call}.*map\(fn"
    for ask in (lambda s: s.selectExpr("id + 1 AS n"), lambda s: s.where("id + 1 > 3")):
        with pytest.raises(QueryDefinitionError, match=says):
            ask(streams["main"])
    with pytest.raises(QueryDefinitionError, match=rf"does not say of .*id.*{call}"):
        streams["main"].groupBy("name").agg(f.max(f.col("id") * 2))


def test_columns_are_told_apart_by_their_names_and_maps_have_keys_of_a_type(streams: dict[str, Any]) -> None:
    main = streams["main"]
    for twice in (
        lambda s: s.select("id", "id"),
        lambda s: s.withColumnRenamed("id", "at"),
        lambda s: s.toDF("a", "a", "b", "c", "d"),
    ):
        for stream in (main, streams["source"]):
            with pytest.raises(
                QueryDefinitionError, match=r"two columns called '.*'\. Name them apart, or drop"
            ):
                twice(stream)
    assert main.select("id", f.col("id").alias("again")).columns == ["id", "again"]
    assert main.drop("at").withColumnRenamed("id", "at").columns == ["at", "name", "tags", "place"]
    for empty in (
        lambda: main.select(f.create_map().alias("m")),
        lambda: clonos.causal(streams["source"].plan[0].df.select(f.create_map().alias("m"))),
    ):
        with pytest.raises(QueryDefinitionError, match=r"keys of no type.*map<string,int>"):
            empty()
    assert main.map(lambda row, ctx: ({},), "m map<string,int>", name="empty").columns == ["m"]


def test_days_beyond_those_that_python_has(spark: Any) -> None:
    """Spark goes on. What the message says helps."""
    schema = "id long, day date"
    made = rows_alone(schema, timezone="UTC").map(keep, schema, name="op")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = [(1, dt.date(9999, 12, 31)), (2, dt.date(1, 1, 1))]
    ask = {
        "date_add(day, 1)": "9999-12-31, 1",
        "date_sub(day, int(id))": "0001-01-01, 2",
    }
    for asked, of in ask.items():
        with OperatorDriver(made.selectExpr("id", f"{asked} AS x")) as driver:
            says = rf"of {of} is beyond the years 1 to 9999.*Drop such rows with where"
            with pytest.raises(UserFunctionError, match=says):
                driver.feed(rows)
    kept = made.where("day > date'0002-01-01'").selectExpr("id", "date_sub(day, int(id)) AS x")
    with OperatorDriver(kept) as driver:
        assert [tuple(row) for row in driver.feed(rows)] == [(1, dt.date(9999, 12, 30))]


def test_a_reader_takes_one_output_of_an_operator(place: Place, streams: dict[str, Any]) -> None:
    main, side = streams["main"].select("id"), streams["side"].select("id")
    for united, says in (
        (
            main.union(streams["main"].select((f.col("id") + 1).alias("id"))),
            "would read two outputs of op: its main ",
        ),
        (main.union(side), "its main output through select .*id.* and its side output 'side' through"),
        (main.union(streams["main"].select("id")), "would get rows of .* main output through .* of op twice"),
    ):
        with pytest.raises(QueryDefinitionError, match=says):
            place.writer(united).start()


def test_the_name_of_a_derived_output_is_that_of_what_it_does(spark: Any, streams: dict[str, Any]) -> None:
    """The log knows outputs by their names: they are the same in each process that starts the query."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    outputs = [
        each.plan[0].output for each in (streams["main"].where("id > 1"), streams["main"].where("id > 1"))
    ]
    assert outputs[0] == outputs[1] == "/72bb77ce93f0112f"
    others = [
        streams["main"].where("id > 2"),
        streams["main"].where("id >= 1"),
        streams["main"].where("id > 1").drop("at"),
        streams["side"].where("id > 1"),
    ]
    assert len({outputs[0], *(each.plan[0].output for each in others)}) == 5


def test_event_time_follows_its_column(streams: dict[str, Any]) -> None:
    for stream in (streams["source"], streams["main"]):
        timed = stream.withWatermark("at", "1 minute")
        renamed = timed.where("id > 1").selectExpr("id", "at AS then", "upper(name) AS at")
        assert renamed.event_time is not None and renamed.event_time.column == "then"
        copied = timed.select("*", f.col("at").alias("b"))
        assert copied.event_time is not None and copied.event_time.column == "at"
        hours = timed.selectExpr("*", "hour(at) AS h").union(timed.selectExpr("*", "1 AS h"))
        seconds = timed.withColumn("s", f.unix_seconds("at") + 1).withColumnRenamed("s", "r")
        for computed, condition in ((copied, "b > '2020-01-01'"), (seconds, "r > 9"), (hours, "h > 3")):
            with pytest.raises(QueryDefinitionError, match="or for what was computed from it"):
                computed.where(condition)
        assert (
            timed.withColumn("s", f.unix_seconds("at")).drop("s").where("id > 3").event_time
            == timed.event_time
        )
        with pytest.raises(QueryDefinitionError, match=r"'at' is gone.*withWatermark\(\) behind"):
            timed.drop("at")
        with pytest.raises(QueryDefinitionError, match=r"'at' is gone"):
            timed.select("id", f.date_trunc("hour", "at").alias("at"))
        with pytest.raises(QueryDefinitionError, match=r"asks for 'at'.*Call where\(\) before withWatermark"):
            timed.where("at > '2020-01-01'")
        before = stream.where("at > '2020-01-01'").withWatermark("at", "1 minute")
        assert before.event_time == timed.event_time == before.where("id > 1").select("at").event_time
        # Has its watermark from the operator before
        kept = timed.filter(lambda row: True, name="all", pure=True)
        assert kept.drop("at").event_time is None and kept.where("at is not null").event_time is not None


# What a query does


def rows_of(place: Place, stream: Any, count: int, mode: str = "microbatch") -> list[dict[str, Any]]:
    place.start(stream, mode)
    return place.await_rows(count)


def test_values_arrive_as_spark_would_have_made_them(place: Place) -> None:
    """A function gives values in many forms; an expression gets them as the next operator would."""
    schema = "a int, d double, m decimal(10,2), t timestamp, s string, tags array<int>"

    def odd(row: Any, ctx: Any) -> Any:
        import datetime as dt

        import numpy as np

        moment = dt.datetime(2024, 7, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
        return {"a": np.int64(7), "d": True, "m": 3, "t": moment, "s": b"text", "tags": (1, 2)}

    place.spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    made = place.causal("id long").map(odd, schema, name="odd")
    asked = made.where("t = timestamp'2024-07-01 12:00:00' AND d = 1").selectExpr(
        "a + 1 AS a", "m / 2 AS m", "concat(s, '!') AS s", "tags[1] AS tag", "t"
    )
    place.write([{"id": 1}])
    (row,) = rows_of(place, asked, 1)
    assert (row["a"], Decimal(row["m"]), row["s"], row["tag"]) == (8, Decimal("1.5"), "text!", 2)


def test_an_error_in_an_expression_ends_the_query_and_says_where(place: Place) -> None:
    made = place.causal("id long").map(drawn, "id long, draw long", name="draw")
    place.write([{"id": 3}, {"id": 0}])
    place.start(made.selectExpr("10 div id AS share"))
    says = r"behind 'draw' has no value: .* div id\): division by zero \(operator 'draw', instance"
    with pytest.raises(UserFunctionError, match=says):
        place.query.awaitTermination(120)
    place.query = None


def test_a_value_that_does_not_fit_is_refused_before_an_expression_sees_it(place: Place) -> None:
    made = place.causal("id long").map(lambda row, ctx: ("text",), "n int", name="odd")
    place.write([{"id": 3}])
    place.start(made.where("n > 1"))
    with pytest.raises(InputError, match="column 'n'"):
        place.query.awaitTermination(120)
    place.query = None


@pytest.mark.parametrize("channel", ["part", "cast(part as int)"])
def test_a_source_with_columns_for_a_place_may_lose_them(place: Place, channel: str) -> None:
    source = place.read("part string, line long, n long", partitions=1).withColumn("file", f.expr(channel))
    stream = (
        clonos.causal(source, channel="file", position="line")
        .where("n > 1")
        .select((f.col("n") * 2).alias("m"))
    )
    stream = (
        stream.withColumn("k", f.col("m") + 1).drop("m").map(drawn_of_k, "k long, draw long", name="draw")
    )
    place.write([{"part": "1", "line": line, "n": line} for line in range(4)], partitions=1)
    rows = rows_of(place, stream, 2)
    assert sorted(row["k"] for row in rows) == [5, 7]
    place.kill(2, 0)
    place.write([{"part": "1", "line": line, "n": line} for line in range(4, 6)], partitions=1)
    again = place.await_rows(4)
    assert sorted(row["k"] for row in again) == [5, 7, 9, 11] and all(row in again for row in rows)


def drawn_of_k(row: Any, ctx: Any) -> tuple[int, int]:
    return row.k, ctx.random.getrandbits(40)


def test_event_time_goes_on_behind_expressions(place: Place) -> None:
    """Of a source and of an operator: a timer of event time fires, also where the column has another name."""

    def wait(key: Any, row: Any, ctx: Any) -> Any:
        ctx.timer(at=row.then, event=True)
        return [(key[0], "row")]

    def due(key: Any, timer: Any, ctx: Any) -> Any:
        return [(key[0], "due")]

    made = place.causal("k string, at timestamp", partitions=1).map(keep, "k string, at timestamp", name="op")
    timed = made.withWatermark("at", "5 seconds").where("k != 'no'").selectExpr("k", "at AS then")
    waiting = timed.groupBy("k").process(wait, "k string, what string", name="wait", on_timer=due)
    place.write([{"k": "a", "at": "2024-01-01 00:00:01"}], partitions=1)
    place.start(waiting)
    place.await_rows(1)
    place.write([{"k": "b", "at": "2024-01-01 00:00:09"}], partitions=1)
    rows = place.await_rows(3)
    assert sorted((row["k"], row["what"]) for row in rows) == [("a", "due"), ("a", "row"), ("b", "row")]


def test_another_expression_waits_for_the_end_of_an_epoch_that_was_seen(place: Place) -> None:
    def stream(condition: str) -> Any:
        return place.causal("id long").map(drawn, "id long, draw long", name="draw").where(condition)

    def long_epoch(condition: str) -> Any:
        return place.writer(stream(condition)).trigger(realTime="5 minutes").start()

    place.query = long_epoch("id > 0")
    place.write([{"id": 1}, {"id": 2}])
    before = place.await_rows(2)
    place.stop()
    place.query = long_epoch("id > 0")  # the same goes on
    place.write([{"id": 3}])
    assert all(row in place.await_rows(3) for row in before)
    place.stop()
    changed = r"what is read of node 2 of node 3 .* went through 'where \(id > .*0.*and goes through 'where \(id > .*1"
    with pytest.raises(CheckpointMismatch, match=changed) as refused:
        long_epoch("id > 1")
    assert "availableNow=True" in str(refused.value)
    report = place.writer(stream("id > 1")).explain_upgrade()
    assert report.refused
    lines = list(render(described(Checkpoint(str(place.checkpoint)))))
    assert any("reads node 2 through 'where (id > " in line for line in lines)
    assert place.writer(stream("id > 0")).trigger(availableNow=True).start().awaitTermination(120)
    place.query = long_epoch("id > 1")
    place.write([{"id": 1}, {"id": 5}])
    assert sorted(row["id"] for row in place.await_rows(4)) == [1, 2, 3, 5]


def test_expressions_go_behind_what_is_called_once_per_batch_and_has_a_standby(place: Place) -> None:
    """What is given at an epoch's end goes through them, too, by whichever process gives it."""
    import pandas as pd

    def counted(key: Any, frames: Any, state: Any) -> Any:
        count = sum(map(len, frames)) + (state.getOption or (0,))[0]
        state.update((count,))
        yield pd.DataFrame({"k": [key[0]], "n": [count], "draw": [clonos.current().random.random()]})

    grouped = place.causal("k string").groupBy("k")
    counts = grouped.applyInPandasWithState(
        counted,
        "k string, n long, draw double",
        "n long",
        "update",
        "NoTimeout",
        name="count",
        per="batch",
        standby="hot",
        parallelism=2,
    )
    shown = counts.where("n % 2 = 0").selectExpr("upper(k) as k", "n div 2 as pairs", "draw")
    place.start(shown)
    for number in range(1, 4):
        place.write([{"k": key} for key in "abcd" for _ in range(2)])
        place.query.processAllAvailable()
        (pid,) = [
            each["pid"]
            for each in place.query.replicas()
            if (each["node"], each["instance"], each["standby"]) == (2, number % 2, False)
        ]
        os.kill(pid, signal.SIGKILL)
    place.write([{"k": "e"}, {"k": "e"}])
    rows = place.await_rows(13)
    assert {(row["k"], row["pairs"]) for row in rows} == {
        *((key, number) for key in "ABCD" for number in range(1, 4)),
        ("E", 1),
    }
    assert len({row["draw"] for row in rows}) == 13

"""What cannot work is refused when the query is built, and the message says what to do instead."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from streams import Place

import clonos
from clonos import environment
from clonos.errors import ConfigurationError, InputError, QueryDefinitionError
from clonos.spark import session as sessions

pytestmark = pytest.mark.spark

MASTER = "local[8,4]"  # so few that queries are refused for want of slots
SCHEMA = "k string, n long, f double"


def nothing(*_: Any) -> None:
    """A function of rows that does nothing."""


@pytest.fixture
def stream(place: Place) -> Any:
    return place.causal(SCHEMA)


class Declaring:
    """A processor whose `init` does what the test says."""

    def __init__(self, init: Any) -> None:
        self._init = init

    def init(self, handle: Any) -> None:
        self._init(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return iter(())


def test_a_time_zone_that_changes_between_definition_and_start_is_refused(place: Place) -> None:
    """Functions read rows in the one, and watermarks would be counted in the other."""
    zone = place.spark.conf.get("spark.sql.session.timeZone")
    defined = place.causal("k string").map(nothing, "k string", name="x")
    place.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        with pytest.raises(
            QueryDefinitionError, match=r"'x' was defined while .* was .* starts with 'America/New_York'"
        ):
            place.start(defined)
    finally:
        place.spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.parametrize(
    ("init", "says"),
    [
        (lambda handle: handle.getValueState("x", "n int", 1000), "has a time to live, which needs timeMode"),
        (lambda handle: [handle.getListState("x", "n int") for _ in "ab"], "'x' of .* is declared twice"),
        (
            lambda handle: (handle.deleteIfExists("x"), handle.getValueState("x", "n int")),
            "deleted and declared in the same init",
        ),
    ],
)
def test_what_init_may_not_declare_is_refused_at_the_start(
    stream: Any, place: Place, init: Any, says: str
) -> None:
    grouped = stream.groupBy("k").transformWithState(Declaring(init), "n int", "update", "None", name="x")
    with pytest.raises(QueryDefinitionError, match=says):
        place.start(grouped)
    assert not (place.checkpoint / "clonos" / "query.json").exists(), "it is bound to nothing"


# Sources


def test_a_source_without_identity_is_named(spark: Any, tmp_path: Path) -> None:
    rate = spark.readStream.format("rate").load()
    with pytest.raises(
        QueryDefinitionError, match=r"no identity that Clonos knows: .*rate.*channel=\.\.\., position="
    ):
        clonos.causal(rate)
    # columns of Kafka's names do not make a source Kafka
    with pytest.raises(QueryDefinitionError, match="no identity"):
        clonos.causal(rate.selectExpr("value as partition", "value as offset"))
    files = spark.readStream.schema("a int").json(str(tmp_path))
    with pytest.raises(QueryDefinitionError, match=f"no identity that Clonos knows: .*{tmp_path.name}"):
        clonos.causal(files)


def test_identity_columns_are_checked(spark: Any, tmp_path: Path) -> None:
    files = spark.readStream.schema("part int, line long, flag boolean").json(str(tmp_path))
    for channel, position, says in (
        ("part", None, "give both or neither"),
        ("part", "row", "no column 'row' for the position; there are part, line, flag"),
        ("flag", "line", "the channel column is boolean; it must be an integer or text"),
        ("part", files.line / 2, "the position column is double; it must be an integer"),
        ("part", 7, "the position is a column or its name, not 7"),
    ):
        with pytest.raises(QueryDefinitionError, match=says):
            clonos.causal(files, channel=channel, position=position)


def test_only_a_streaming_dataframe_of_this_session(spark: Any) -> None:
    with pytest.raises(QueryDefinitionError, match="not streaming"):
        clonos.causal(spark.range(3))
    with pytest.raises(QueryDefinitionError, match="takes a streaming DataFrame, not list"):
        clonos.causal([])
    connect = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(ConfigurationError, match="this is a Spark Connect session"):
        clonos.causal(connect)
    with pytest.raises(ConfigurationError, match="this is a Spark Connect session"):
        sessions.require_session(type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})())


def test_column_names_that_are_taken(place: Place) -> None:
    source = place.read(SCHEMA)
    with pytest.raises(
        QueryDefinitionError, match="'_clonos_delta'; names that begin with _clonos are taken"
    ):
        clonos.causal(source.withColumnRenamed("n", "_clonos_delta"))
    with pytest.raises(QueryDefinitionError, match="the source has two columns called 'k'"):
        clonos.causal(source.selectExpr("k", "n as K"))


# Operators


def test_definitions_that_do_not_fit(stream: Any) -> None:
    keyed = stream.groupBy("k")
    for build, says in (
        (lambda: stream.groupBy(), "at least one column"),
        (lambda: stream.groupBy("f"), "column 'f' of type double cannot be a key"),
        (lambda: stream.groupBy("x"), "no column 'x'; there are k, n, f"),
        (lambda: stream.groupBy("k", "K"), "given twice"),
        (lambda: stream.groupBy(7), "groupBy takes column names"),
        (lambda: keyed.process(nothing, "a int", name=""), "is not an operator name"),
        (lambda: keyed.process(nothing, "a int", name="a/b"), "is not an operator name"),
        (lambda: keyed.process(nothing, "a int", name="a", parallelism=0), "has parallelism 0"),
        (
            lambda: keyed.process(nothing, "a int", name="a", on_poison="skip"),
            "has on_poison='skip'.*dead_letter",
        ),
        (lambda: keyed.process(nothing, "a int", name="a", standby="warm"), "has standby='warm'.*passive"),
        (lambda: keyed.process(nothing, "a int", name="a", version=2), "must be text"),
        (lambda: keyed.process("fn", "a int", name="a"), "needs a function"),
        (lambda: keyed.process(nothing, "a wrong", name="a"), "cannot be read"),
        (lambda: keyed.process(nothing, ["a"], name="a"), "a schema is a StructType or DDL text, not list"),
        (lambda: keyed.process(nothing, "a int, A int", name="a"), "two columns called 'a'"),
        (lambda: stream.filter("n > 1", name="a"), "a condition of Spark's alone, not .n > 1."),
        (lambda: stream.union(stream.map(nothing, "a int", name="a")), "different schemas cannot be united"),
        (lambda: stream.union("k"), "Call causal\\(\\) on both"),
        (
            lambda: keyed.applyInPandasWithState(nothing, "a int", "b int", "Complete", "NoTimeout"),
            "output mode",
        ),
        (
            lambda: keyed.applyInPandasWithState(nothing, "a int", "b int", "Update", "Later"),
            "timeout 'Later'",
        ),
        (
            lambda: keyed.transformWithState(nothing, "a int", "Update", "None"),
            "instance of a StatefulProcessor",
        ),
        (lambda: keyed.transformWithState(nothing, "a int", "Update", "None", stream), "initialState"),
        (lambda: keyed.transformWithState(nothing, "a int", "Update", "EventTime"), "no watermark"),
        (
            lambda: keyed.transformWithState(nothing, "a int", "Update", "None", None, "a"),
            "needs timeMode EventTime",
        ),
    ):
        with pytest.raises(QueryDefinitionError, match=says):
            build()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("crossJoin", "causal.a..join.table, key"),
        ("agg", "groupBy.*.agg"),
        ("orderBy", "Leave it out"),
        ("repartition", "parallelism="),
        ("dropDuplicates", "ctx.state"),
        ("limit", "Use filter"),
        ("coalesce", "Apply coalesce to the source DataFrame before causal"),
    ],
)
def test_what_spark_alone_does_is_refused_with_what_to_do_instead(stream: Any, name: str, says: str) -> None:
    with pytest.raises(QueryDefinitionError, match=says):
        getattr(stream, name)("k")


def test_what_groups_lack_is_refused_and_unknown_names_are_unknown(stream: Any) -> None:
    with pytest.raises(QueryDefinitionError, match=r"pivot is not supported on a causal stream. Use process"):
        stream.groupBy("k").pivot("a")
    for unknown in (stream, stream.groupBy("k")):
        with pytest.raises(AttributeError):
            unknown.nonsense()


def test_what_is_said_in_place_of_a_dataframes_methods_works(stream: Any, place: Place) -> None:
    """`tests/api/test_streams.py` has the others, and asks for every method of a DataFrame."""
    from pyspark.sql import functions as f

    with pytest.raises(QueryDefinitionError, match=r'withColumn.*coalesce.*where\("n is not null'):
        _ = stream.fillna
    assert stream.withColumn("n", f.coalesce("n", f.lit(0))).where("n is not null").columns == ["k", "n", "f"]
    with pytest.raises(QueryDefinitionError, match=r'stream\["name"\].*withColumnRenamed'):
        _ = stream.alias
    assert stream.select(stream["n"]).withColumnRenamed("n", "other").columns == ["other"]
    with pytest.raises(QueryDefinitionError, match=r'format\("memory"\)\.queryName'):
        _ = stream.show
    seen = f"shown_{place.base.name}"
    place.write([{"k": "a", "n": 1, "f": 1.5}])
    writer = stream.writeStream.trigger(availableNow=True)
    started = writer.start(
        format="memory", outputMode="append", queryName=seen, checkpointLocation=str(place.checkpoint)
    )
    started.awaitTermination()
    assert [tuple(row) for row in place.spark.table(seen).collect()] == [("a", 1, 1.5)]
    with pytest.raises(
        QueryDefinitionError, match=r"start\('/out'\): .* Use \.to\(clonos\.sinks\.jsonl\(path\)\)"
    ):
        stream.writeStream.start("/out")
    for wrong in ("-1 second", "soon"):
        with pytest.raises(QueryDefinitionError, match=r"negative|not an interval"):
            stream.writeStream.trigger(processingTime=wrong)


def test_columns_of_spark_may_name_a_key(place: Place) -> None:
    from pyspark.sql import functions as f

    source = place.read(SCHEMA)
    stream = clonos.causal(source)
    for key in (source["k"], f.col("k"), source.k, "K", ["k"]):
        assert stream.groupBy(key)._key == ("k",)
    with pytest.raises(QueryDefinitionError, match="Compute the key as a column before"):
        stream.groupBy(f.col("n") + 1)


# Starting


def test_what_a_query_needs_to_start(place: Place, stream: Any) -> None:
    with pytest.raises(QueryDefinitionError, match="no sink"):
        stream.writeStream.start()
    with pytest.raises(QueryDefinitionError, match="is not a sink"):
        stream.writeStream.to("table")
    jsonl = clonos.sinks.jsonl
    with pytest.raises(QueryDefinitionError, match="is not a causal stream"):
        stream.writeStream.to(jsonl(place.output), stream="another")
    for names, refused in (
        (("a", "b"), r"would get the rows of .* twice, from a and b.* of its own"),
        (("a", "a"), "two operators or sinks are called 'a'"),
        (("a", None), r"has 2 sinks, and JsonlSink.* has no name.*Give each one"),
    ):
        twice = stream.writeStream
        for name in names:
            twice.to(jsonl(place.output), name=name)
        with pytest.raises(QueryDefinitionError, match=refused):
            twice.option("checkpointLocation", str(place.checkpoint)).start()
    with pytest.raises(QueryDefinitionError, match="'a/b' is not a sink name"):
        stream.writeStream.to(jsonl(place.output), name="a/b")
    with pytest.raises(QueryDefinitionError, match="has parallelism 0"):
        stream.writeStream.to(jsonl(place.output), parallelism=0)
    with pytest.raises(QueryDefinitionError, match="no checkpoint"):
        stream.writeStream.to(clonos.sinks.jsonl(place.output)).start()
    with pytest.raises(QueryDefinitionError, match="output mode 'complete' is not supported"):
        stream.writeStream.outputMode("complete")
    stream.writeStream.outputMode("Append").outputMode("UPDATE")  # Spark does not mind the case
    with pytest.raises(QueryDefinitionError, match="exactly one trigger"):
        stream.writeStream.trigger(processingTime="1 second", once=True)
    with pytest.raises(QueryDefinitionError, match="Use realTime"):
        stream.writeStream.trigger(continuous="1 second")


def test_names_are_given_once_and_a_union_has_a_stream_once(place: Place, stream: Any) -> None:
    same = stream.map(nothing, SCHEMA, name="same").map(nothing, SCHEMA, name="same")
    with pytest.raises(QueryDefinitionError, match="two operators or sinks are called 'same'"):
        place.start(same)
    one = stream.map(nothing, SCHEMA, name="one")
    with pytest.raises(QueryDefinitionError, match=r"sink would get rows of one twice.*such as map"):
        place.start(one.union(one))
    again = one.map(nothing, SCHEMA, name="again")
    place.start(one.union(again), "microbatch")  # as the hint says


def test_two_outputs_of_one_operator_come_together_as_the_hint_says(place: Place) -> None:
    columns = "id long, side boolean"

    def mark(row: Any, ctx: Any) -> tuple[Any, ...]:
        ctx.side_output("more", (row.id, True))
        return row.id, False

    def count(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        if ctx.state["n"] == 2:
            yield row.id, None

    split = place.causal("id long").map(mark, columns, name="split", side_outputs={"more": columns})
    more = split.side_output("more")
    for given in (
        split.union(more),
        clonos.connect(split, more).groupBy("id").process(count, count, columns, name="both"),
    ):
        with pytest.raises(
            QueryDefinitionError, match=r"would read two outputs of split: .*such as \.filter"
        ):
            place.start(given)
    through = more.filter(lambda row, ctx: True, name="through")
    both = clonos.connect(split, through).groupBy("id").process(count, count, columns, name="both")
    again = both.map(lambda row: row, columns, name="again", pure=True)
    place.start(split.union(through).union(again))
    place.write([{"id": id_} for id_ in range(10)])
    rows = sorted((row["id"], str(row["side"])) for row in place.await_rows(30))
    assert rows == sorted((id_, side) for id_ in range(10) for side in ("False", "None", "True"))


def test_a_function_that_cannot_be_pickled_leaves_no_checkpoint(place: Place, stream: Any) -> None:
    lock = threading.Lock()

    def holds(key: Any, row: Any, ctx: Any) -> None:
        lock.acquire()

    broken = stream.groupBy("k").process(holds, SCHEMA, name="holds")
    with pytest.raises(QueryDefinitionError, match=r"function or sink of 'holds' cannot be pickled.*lock"):
        place.start(broken)
    assert not place.checkpoint.exists()


def test_settings_are_checked(place: Place, stream: Any) -> None:
    conf = place.spark.conf
    conf.set("spark.clonos.paralellism", "2")
    with pytest.raises(
        ConfigurationError, match=r"unknown setting spark.clonos.paralellism. The settings are .*tick"
    ):
        place.start(stream)
    conf.unset("spark.clonos.paralellism")
    conf.set("spark.clonos.tick", "soon")
    with pytest.raises(
        ConfigurationError, match=r"spark.clonos.tick is 'soon'; it must be a time such as 500ms"
    ):
        place.start(stream)


def test_a_real_time_query_needs_its_slots(place: Place, stream: Any) -> None:
    wide = stream.map(nothing, SCHEMA, name="wide", parallelism=20)
    with pytest.raises(ConfigurationError, match="this one needs 23 slots, there are 8"):
        place.start(wide, "realtime")


def test_real_time_takes_a_release_that_has_exchanges_in_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write([{"a": 1}])
    stream = place.causal("a int").map(lambda row, ctx: row, "a int", name="kept", parallelism=1)
    monkeypatch.setattr(environment, "_pyspark_version", lambda: "4.2.0")
    with pytest.raises(ConfigurationError, match=r"takes Spark 4\.3, .* Give trigger\(processingTime="):
        place.start(stream, "realtime")
    assert not place.checkpoint.exists()
    place.start(stream)
    assert place.await_rows(1) == [{"a": 1}]


def test_a_session_with_sparks_own_exchanges_is_told_what_they_do(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place.write([], partitions=1)
    stream = place.causal("a int", partitions=1).map(nothing, SCHEMA, name="narrow", parallelism=1)
    place.start(stream, "realtime")
    place.stop()
    assert "may hold rows back" not in caplog.text
    monkeypatch.setattr(sessions, "WITH_PLUGIN", {"spark.shuffle.manager.incremental": "another"})
    place.start(stream, "realtime")
    assert "may hold rows back for 50 ms" in caplog.text and "clonos.configure" in caplog.text


def test_real_time_queries_share_the_slots(place: Place, tmp_path: Path) -> None:
    """A second one that found none would fail again and again, and might take those of the first one meanwhile."""
    first, second = place, Place(place.spark, tmp_path / "second")
    for each in (first, second):
        each.write([], partitions=1)
    narrow = [
        each.causal("a int", partitions=1).map(nothing, SCHEMA, name="narrow", parallelism=4)
        for each in (first, second)
    ]
    first.start(narrow[0], "realtime")
    with pytest.raises(
        ConfigurationError, match=r"needs (\d+) slots, there are 8, of which other .* have \1\."
    ):
        second.start(narrow[1], "realtime")
    first.stop()
    second.start(narrow[1], "realtime")
    second.stop()


def test_a_source_that_cannot_run_in_real_time_ends_the_query_at_once(place: Place) -> None:
    source = place.spark.readStream.schema("part int, line long").json(str(place.base))
    place.start(clonos.causal(source, channel="part", position="line"), "realtime")
    with pytest.raises(ConfigurationError, match="REAL_TIME"):
        place.query.awaitTermination(60)
    assert place.query.restarts == []


# Sessions


class Conf:
    """A stand-in for a session's configuration."""

    def __init__(self, **values: str) -> None:
        self._values = values

    def get(self, key: str, default: str = "") -> str:
        return self._values.get(key, default)


def test_a_session_without_the_plugin_or_with_speculation(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_has_class", lambda jvm, name: False)
    with pytest.raises(ConfigurationError, match=r"plugin is not in this Spark session. .*clonos.configure"):
        clonos.causal(spark.readStream.format("rate").load())
    monkeypatch.undo()
    stand_in = type("Session", (), {"_jvm": spark._jvm, "version": spark.version})()
    stand_in.conf = Conf(**{"spark.speculation": "true"})
    with pytest.raises(ConfigurationError, match=r"set spark.speculation=false"):
        sessions.require_session(stand_in)


def test_configure_appends_and_never_overwrites(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder()
    builder._options = {}
    builder.config("spark.jars", "/mine.jar").config(
        "spark.sql.streaming.realTimeMode.minBatchDuration", "9s"
    )
    builder.config("spark.plugins", "my.Plugin")
    clonos.configure(clonos.configure(builder))
    jars = builder._options["spark.jars"].split(",")
    assert jars == ["/mine.jar", str(clonos.jar_path())]
    assert builder._options["spark.plugins"] == f"my.Plugin,{sessions.PLUGIN}"
    assert builder._options["spark.sql.streaming.realTimeMode.minBatchDuration"] == "9s"
    assert builder._options["spark.shuffle.manager.incremental"].startswith("org.clonos.spark.exchange.")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # as under spark-submit
    spark._jvm.java.lang.System.setProperty("spark.plugins", "submitted.Plugin")
    try:
        builder._options = {}
        clonos.configure(builder)
        # As a URI, from this JVM's start
        assert builder._options["spark.jars"].count(str(clonos.jar_path())) == 1
        assert builder._options["spark.plugins"] == f"submitted.Plugin,{sessions.PLUGIN}"
    finally:
        spark._jvm.java.lang.System.clearProperty("spark.plugins")
    monkeypatch.setattr(sessions, "_has_class", lambda jvm, name: False)
    builder._options = {}
    # This JVM is there already: what it cannot load would keep a session from starting
    clonos.configure(builder)
    assert "spark.plugins" not in builder._options


# Rows


def test_any_source_works_with_explicit_columns(place: Place) -> None:
    folder = place.base / "files"
    folder.mkdir()
    source = place.spark.readStream.schema("part int, line long, text string").json(str(folder))
    place.start(
        clonos.causal(source, channel="part", position=source.line * 2).map(
            nothing_but, "text string", name="m"
        )
    )
    for part in range(3):
        lines = [{"part": part, "line": line, "text": f"{part}:{line}"} for line in range(5)]
        Path(folder, f"{part}.json").write_text("\n".join(map(json.dumps, lines)))
    rows = place.await_rows(15)
    assert {row["text"] for row in rows} == {f"{part}:{line}" for part in range(3) for line in range(5)}
    Path(folder, "4.json").write_text(json.dumps({"part": None, "line": 9, "text": "x"}))
    with pytest.raises(
        InputError, match=r"a record has the channel null, which names no place: .*FileSource"
    ):
        place.query.awaitTermination(60)


def nothing_but(row: Any, ctx: Any) -> Any:
    return [row.text]


def test_positions_that_step_back_end_the_query(place: Place) -> None:
    source = place.read("line long", partitions=1)
    place.write([{"line": line} for line in (1, 2, 2)], partitions=1)
    stepping = clonos.causal(source, channel=source.line * 0, position="line")
    place.start(stepping.map(lambda row: row, "line long", name="m", pure=True))
    with pytest.raises(InputError, match="position"):
        place.query.awaitTermination(60)
    assert place.query.restarts == [] and place.rows() == []

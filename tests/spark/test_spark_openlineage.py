"""OpenLineage events of real queries, as a consumer gets them over HTTP, against what the test has written."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from lineage_consumer import Consumer, lineage_consumer
from modes import MODES
from pyspark.sql import functions as f
from streams import Place

import clonos
from clonos.errors import ConfigurationError, UserFunctionError
from clonos.spark.openlineage import emitter as emitters
from clonos.spark.openlineage.query_datasets import Datasets, datasets_of
from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = pytest.mark.spark

SETTING = "spark.clonos.openlineage"
SECRET = "card-4711"
NOWHERE = "http://127.0.0.1:9"  # the port of discard, where nothing listens
DIRECT = {kind: ("DIRECT", kind) for kind in ("IDENTITY", "TRANSFORMATION", "AGGREGATION")}
INDIRECT = {kind: ("INDIRECT", kind) for kind in ("CONDITIONAL", "FILTER", "GROUP_BY", "JOIN")}
KIND = DIRECT | INDIRECT
Uses = set[tuple[str, str]]
"""Columns of inputs, each with the subtype of what becomes of it."""


@pytest.fixture
def consumer(spark: Any) -> Iterator[Consumer]:
    """A consumer that the session's queries tell, under the namespace `test`."""
    with lineage_consumer() as made:
        spark.conf.set(SETTING, made.url)
        spark.conf.set("spark.openlineage.namespace", "test")
        yield made


def named(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Datasets by what they are called."""
    return [(each["namespace"], each["name"]) for each in found]


def columns(dataset: dict[str, Any]) -> list[str]:
    return [field["name"] for field in dataset["facets"]["schema"]["fields"]]


def uses(inputs: list[dict[str, Any]]) -> Uses:
    return {(each["field"], kind["subtype"]) for each in inputs for kind in each["transformations"]}


def lineage_of(output: dict[str, Any]) -> dict[str, Uses]:
    """Of each column of which something is said."""
    facet = output["facets"]["columnLineage"]
    return {name: uses(field["inputFields"]) for name, field in facet["fields"].items()}


def fail(row: Any, ctx: Any) -> Any:
    raise ValueError(f"this will not do: {row}")


def same(row: Any, ctx: Any) -> Any:
    return tuple(row)


def large(row: Any, ctx: Any) -> bool:
    return bool(row.n > 0)


# --------------------------------------------------------------- real queries


@pytest.mark.parametrize("mode", MODES)
def test_a_query_is_a_run_with_what_it_reads_and_writes(place: Place, consumer: Consumer, mode: str) -> None:
    stream = place.causal("card string, n long").where("n % 2 = 0").withColumn("twice", f.col("n") * 2)
    place.query = place.writer(stream.filter(large, name="large"), mode).queryName("payments").start()
    place.until(lambda: consumer.types[:1] == ["START"], "it has started")
    place.write({"card": SECRET, "n": n} for n in range(1, 101))
    place.await_rows(50)
    place.until(lambda: "RUNNING" in consumer.types, "an epoch has committed")
    stop(place)

    assert consumer.types[0] == "START" and consumer.types[-1] == "COMPLETE"
    assert set(consumer.types[1:-1]) == {"RUNNING"}
    assert len({event["run"]["runId"] for event in consumer.events}) == 1
    assert {(e["job"]["namespace"], e["job"]["name"]) for e in consumer.events} == {("test", "payments")}
    for event in consumer.events:
        assert named(event["inputs"]) == [("file", str((place.base / "in").resolve()))]
        assert named(event["outputs"]) == [("file", str(place.output.resolve()))]
    facets = consumer.facets()
    assert facets["clonos_query"]["mode"] == mode and facets["clonos_query"]["starts"] == 1
    assert facets["clonos_query"]["checkpoint"].endswith(str(place.checkpoint))
    assert facets["clonos_query"]["committedEpoch"] == committed(place)
    assert facets["processing_engine"]["version"] == place.spark.version
    assert "errorMessage" not in facets
    (given,), (taken,) = consumer.events[-1]["inputs"], consumer.events[-1]["outputs"]
    assert columns(given)[:1] == ["value"] and columns(taken) == ["card", "n", "twice"]
    assert lineage_of(taken) == {name: {("value", "TRANSFORMATION")} for name in ("card", "n", "twice")}
    assert uses(taken["facets"]["columnLineage"]["dataset"]) == {("value", "FILTER")}
    assert given["inputFacets"]["inputStatistics"]["rowCount"] == 100
    assert taken["outputFacets"]["outputStatistics"]["rowCount"] == 50
    assert SECRET not in json.dumps(consumer.events)


def committed(place: Place) -> int:
    return max((int(path.name) for path in (place.checkpoint / "commits").glob("[0-9]*")), default=-1)


def stop(place: Place) -> None:
    """When all that has committed is told of, and nothing is under way."""
    place.await_commit()

    def is_told() -> bool:
        progress = place.query.lastProgress
        return progress is not None and progress.batchId == committed(place)

    place.until(is_told, "the progress of the last epoch")
    place.stop()


def test_a_function_that_raises_fails_the_run_and_its_rows_stay_here(
    place: Place, consumer: Consumer
) -> None:
    place.spark.conf.set("spark.clonos.restart.limit", "0")
    place.write([{"card": SECRET, "n": 1}])
    query = place.start(place.causal("card string, n long").map(fail, "card string, n long", name="score"))
    with pytest.raises(UserFunctionError, match=SECRET):
        query.awaitTermination()
    place.query = None
    event = consumer.of("FAIL")
    assert consumer.types[0] == "START" and consumer.types[-1] == "FAIL"
    said = event["run"]["facets"]["errorMessage"]["message"]
    assert said.startswith("UserFunctionError: ") and "operator 'score'" in said
    assert SECRET not in json.dumps(consumer.events)
    assert event["job"]["name"] == query_id(place), "it has no name of its own"
    assert "columnLineage" not in event["outputs"][0]["facets"], "what a function makes is not known"


def query_id(place: Place) -> str:
    return str(json.loads((place.checkpoint / "clonos" / "query.json").read_text())["body"]["query"])


def test_a_start_over_the_same_checkpoint_is_another_run_of_the_job(place: Place, consumer: Consumer) -> None:
    for start in range(2):
        place.query = place.writer(place.causal("n long")).queryName("again").start()
        place.write([{"n": start}])
        place.await_rows(start + 1)
        stop(place)
    first, second = ([e for e in consumer.events if e["run"]["runId"] == run] for run in runs(consumer))
    for events in (first, second):
        assert events[0]["eventType"] == "START" and events[-1]["eventType"] == "COMPLETE"
        assert {event["job"]["name"] for event in events} == {"again"}
        assert events[-1]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 1, "in this run"
    epochs = [events[-1]["run"]["facets"]["clonos_query"]["committedEpoch"] for events in (first, second)]
    assert epochs[0] < epochs[1]
    assert second[0]["run"]["facets"]["clonos_query"]["committedEpoch"] == epochs[0], "where it went on"


def runs(consumer: Consumer) -> list[str]:
    return list(dict.fromkeys(event["run"]["runId"] for event in consumer.events))


def test_a_restart_by_the_query_itself_is_the_same_run(
    place: Place, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emitters, "EVERY_SECONDS", 0.0)
    fail_once = script(Fault(point=Point.INPUT, strike=Strike.TASK, operator="same"))
    stream = place.causal("n long").map(same, "n long", name="same")
    place.start(stream, "realtime", **{"clonos.faults": fail_once})  # else Spark has the task run again
    place.write([{"n": 1}])
    place.await_rows(1)
    place.until(lambda: place.query.restarts, "the restart")
    place.until(lambda: consumer.facets()["clonos_query"]["starts"] == 2, "it is told")
    place.stop()
    assert len(runs(consumer)) == 1 and consumer.types[-1] == "COMPLETE"


def test_a_query_that_reads_all_there_is_completes_by_itself(place: Place, consumer: Consumer) -> None:
    place.write({"n": n} for n in range(10))
    query = place.writer(place.causal("n long")).trigger(availableNow=True).start()
    query.awaitTermination()
    event = consumer.of("COMPLETE")
    assert event["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 10


def test_several_sources_and_sinks(place: Place, consumer: Consumer) -> None:
    """Two logs into one table under other names, one of them into an embedded log, too."""
    database = place.base / "out.db"
    a, b = place.causal("k string, n long", "a"), place.causal("k string, n long", "b")
    both = a.union(b).map(same, "k string, n long", name="same")
    sink = clonos.sinks.sql(f"sqlite:///{database}", "totals", columns={"n": "amount"})
    log = clonos.sinks.log(place.base / "copy")
    writer = both.writeStream.to(sink, name="table").to(log, name="copy", stream=a)
    place.query = writer.option("checkpointLocation", str(place.checkpoint)).start()
    place.write(({"k": "a", "n": n} for n in range(4)), "a")
    place.write(({"k": "b", "n": n} for n in range(6)), "b")

    def shown() -> int:
        with sqlite3.connect(database) as open_:
            try:
                return int(open_.execute("select count(*) from totals").fetchone()[0])
            except sqlite3.OperationalError:
                return 0

    place.until(lambda: shown() == 10, "the rows of both")
    stop(place)
    event = consumer.of("COMPLETE")
    folders = {name: str((place.base / name).resolve()) for name in ("a", "b", "copy")}
    assert sorted(named(event["inputs"])) == [("file", folders["a"]), ("file", folders["b"])]
    outputs = {each["name"]: each for each in event["outputs"]}
    assert {each["namespace"] for each in event["outputs"]} == {f"sqlite://{database.resolve()}", "file"}
    assert (
        columns(outputs["totals"]) == ["k", "amount"] and "columnLineage" not in outputs["totals"]["facets"]
    )
    (used,) = (
        each for each in outputs[folders["copy"]]["facets"]["columnLineage"]["fields"]["n"]["inputFields"]
    )
    assert (used["namespace"], used["name"], used["field"]) == ("file", folders["a"], "value")
    rows = {name: each["outputFacets"]["outputStatistics"]["rowCount"] for name, each in outputs.items()} | {
        each["name"]: each["inputFacets"]["inputStatistics"]["rowCount"] for each in event["inputs"]
    }
    assert rows == {"totals": 10, folders["copy"]: 4, folders["a"]: 4, folders["b"]: 6}


@pytest.mark.parametrize("how", ["refuses", "hangs", "is away"])
def test_a_query_runs_and_stops_whatever_its_consumer_does(
    place: Place, consumer: Consumer, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    if how == "refuses":
        consumer.status = 500
    elif how == "hangs":
        consumer.answers.clear()
    else:
        place.spark.conf.set(SETTING, NOWHERE)
    for start in range(2):
        place.start(place.causal("n long"))
        place.write({"n": n} for n in range(5))
        place.await_rows(5 * (start + 1))
        place.await_commit()
        place.stop()
    assert consumer.events == []
    port = urlsplit(place.spark.conf.get(SETTING)).port  # that of a test before may still be told of
    said = [each for each in caplog.records if f"port={port})" in each.getMessage()]
    assert len(said) <= 2, "once for each run, at most"
    assert all(each.levelno == logging.WARNING for each in said)
    if how == "refuses":
        assert said


def test_no_events_unless_they_are_asked_for(place: Place, consumer: Consumer) -> None:
    place.spark.conf.unset(SETTING)
    place.start(place.causal("n long"))
    place.stop()
    assert consumer.events == []


def test_true_without_a_configuration_is_refused_and_the_hint_helps(
    place: Place, consumer: Consumer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    place.spark.conf.set(SETTING, "true")
    with pytest.raises(ConfigurationError, match="OPENLINEAGE_URL=http://HOST:PORT"):
        place.start(place.causal("n long"))
    monkeypatch.setenv("OPENLINEAGE_URL", consumer.url)
    for name in ("TYPE", "URL"):  # what the client adds to the environment goes with the test
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__{name}", "")
        monkeypatch.delenv(f"OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__{name}")
    place.start(place.causal("n long"))
    place.stop()
    assert consumer.types == ["START", "COMPLETE"]


def test_the_program_of_the_documentation(
    spark: Any,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (root / "docs" / "openlineage.md").read_text("utf-8")
    (program,) = (each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "LogWriter" in each)
    for name in ("TYPE", "LOG_FILE_PATH", "APPEND"):
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", "")  # so that what it sets goes with the test
    # Spark takes relative paths from where its JVM was started, and in a test that is the source tree.
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program.replace('"lineage', f'"{tmp_path}/lineage'), "openlineage.md", "exec"), names)
    events = names["events"]
    assert [event["eventType"] for event in events][:: len(events) - 1] == ["START", "COMPLETE"]
    (output,) = events[-1]["outputs"]
    assert lineage_of(output) == {"card": {("value", "TRANSFORMATION")}, "spent": {("value", "AGGREGATION")}}
    assert output["outputFacets"]["outputStatistics"]["rowCount"] >= 3, "of three cards"
    assert "COMPLETE" in capsys.readouterr().out


# ------------------------------------------- what is known of columns, unstarted


def described(writer: Any) -> Datasets:
    """Of a query that is not started."""
    return datasets_of(writer._compiled()[0], lambda place: ())


def told(place: Place, stream: Any) -> tuple[dict[str, Uses], Uses]:
    """Columns of the sink, of which it is known where they come from, and what has a say in its rows. A column of an
    input is called as its dataset's folder, a dot, and its name."""
    (taken,) = described(place.writer(stream)).outputs

    def plain(flow: Any) -> Uses:
        return {(f"{Path(each.dataset.name).name}.{each.name}", kind.value[1]) for each, kind in flow}

    return {name: plain(flow) for name, flow in taken.columns.items()}, plain(taken.rows)


@pytest.fixture
def events(place: Place) -> Any:
    """A stream of a folder of files, whose columns are its own: k, n, at."""
    folder = place.base / "events"
    place.spark.createDataFrame([], "k string, n long, at timestamp").write.parquet(str(folder))
    frame = place.spark.readStream.schema("k string, n long, at timestamp").parquet(str(folder))
    return clonos.causal(frame, channel=f.lit(0), position=f.col("n"))


def test_expressions_before_and_behind_an_operator(place: Place, events: Any) -> None:
    early = events.where("at is not null").withColumn("m", f.expr("case when k = 'x' then n else 0 end"))
    kept = early.filter(large, name="kept")
    late = kept.where("m > 3").select("k", (f.col("m") + f.col("n")).alias("s"), f.lit(1).alias("one"), "at")
    found, rows = told(place, late)
    assert found == {
        "k": {("events.k", "IDENTITY")},
        "s": {("events.n", "TRANSFORMATION"), ("events.k", "CONDITIONAL")},
        "at": {("events.at", "IDENTITY")},
    }, "of a constant there is nothing to say"
    assert rows == {("events.at", "FILTER"), ("events.n", "FILTER"), ("events.k", "CONDITIONAL")}


def test_what_a_function_makes_is_not_known_and_what_was_before_it_stays_known(
    place: Place, events: Any
) -> None:
    made = events.where("n > 3").map(same, "k string, n long, at timestamp", name="same").where("k = 'x'")
    assert told(place, made) == ({}, {("events.n", "FILTER")})


def test_aggregates(place: Place, events: Any) -> None:
    made = events.groupBy("k").agg(
        (f.sum("n") + 1).alias("s"),
        f.count(f.lit(1)).alias("c"),
        f.expr("max(at) filter (where n > 2)").alias("m"),
    )
    found, rows = told(place, made)
    assert found == {
        "k": {("events.k", "IDENTITY")},
        "s": {("events.n", "AGGREGATION")},
        "m": {("events.at", "AGGREGATION"), ("events.n", "CONDITIONAL")},
    }
    assert rows == {("events.k", "GROUP_BY")}


def test_windows_of_event_time(place: Place, events: Any) -> None:
    windows = events.withWatermark("at", "1 minute").groupBy("k").window("1 minute")
    found, rows = told(place, windows.agg(f.avg("n").alias("mean")))
    assert found == {
        "k": {("events.k", "IDENTITY")},
        "window": {("events.at", "TRANSFORMATION")},
        "mean": {("events.n", "AGGREGATION")},
    }
    assert rows == {("events.k", "GROUP_BY"), ("events.at", "GROUP_BY")}
    assert told(place, windows.process(lambda *given: (), "n long", name="own")) == ({}, set())


def test_joins_of_streams_and_with_tables(place: Place, events: Any) -> None:
    folder = place.base / "other"
    place.spark.createDataFrame([], "k string, x double, seen timestamp").write.parquet(str(folder))
    frame = place.spark.readStream.schema("k string, x double, seen timestamp").parquet(str(folder))
    other = clonos.causal(frame, channel=f.lit(0), position=f.lit(1)).withWatermark("seen", "1 minute")
    joined = events.withWatermark("at", "1 minute").join(other, "k", within="5 minutes")
    found, rows = told(place, joined)
    assert found == {
        "k": {("events.k", "IDENTITY")},
        "n": {("events.n", "IDENTITY")},
        "at": {("events.at", "IDENTITY")},
        "x": {("other.x", "IDENTITY")},
        "seen": {("other.seen", "IDENTITY")},
    }
    met = ("events.k", "other.k", "events.at", "other.seen")
    assert rows == {(column, "JOIN") for column in met}

    table = place.spark.read.parquet(str(folder)).select("k", (f.col("x") * 2).alias("y"))
    for how, more in (("inner", {"y": {("other.x", "TRANSFORMATION")}}), ("left_semi", {})):
        found, rows = told(place, events.join(table, "k", how))
        own = {name: {(f"events.{name}", "IDENTITY")} for name in ("k", "n", "at")}
        assert found == own | more
        assert rows == {("events.k", "JOIN"), ("other.k", "JOIN")}
    datasets = described(place.writer(events.join(table, "k"))).inputs
    assert [Path(each.dataset.name).name for each in datasets] == ["events", "other"]

    in_memory = pa.table({"k": ["a"], "y": [1.0]})
    made, _ = told(place, events.join(in_memory, "k"))
    assert "y" not in made and made["k"] == {("events.k", "IDENTITY")}


def test_sides_of_a_union_are_known_where_both_are(place: Place, events: Any) -> None:
    opaque = events.map(same, "k string, n long, at timestamp", name="same").withColumn("k", f.lit("none"))
    both = events.union(opaque).filter(large, name="both")
    found, _ = told(place, both)
    assert found == {"k": {("events.k", "IDENTITY")}}, "a constant on the other side"


def test_nothing_is_said_of_what_goes_round_a_loop(place: Place, events: Any) -> None:
    def body(stream: Any) -> tuple[Any, Any]:
        kept = stream.filter(large, name="kept")
        return kept.where("n > 3"), kept.where("n <= 3")

    looped = events.iterate(body, str(place.base / "loop"))
    said = described(place.writer(looped))
    assert [Path(each.dataset.name).name for each in said.inputs] == ["events"]
    assert [Path(each.dataset.name).name for each in said.outputs] == ["out"]
    assert said.outputs[0].columns == {}


def test_side_outputs_and_sources_that_have_no_name(place: Place, events: Any) -> None:
    made = events.groupBy("k").process(
        lambda *given: (), "n long", name="own", side_outputs={"odd": "k string"}
    )
    assert told(place, made.side_output("odd")) == ({}, set())
    rate = place.spark.readStream.format("rate").load()
    said = described(place.writer(clonos.causal(rate, channel=f.lit(0), position=f.col("value"))))
    assert said.inputs == () and said.outputs[0].columns == {}

"""What a function meets in Spark's own operator and in ours, over the same input: one word changes, nothing else."""

from __future__ import annotations

import datetime as dt
import sys
import uuid
from collections.abc import Callable
from typing import Any

import cloudpickle
import pandas as pd
import pyspark.cloudpickle
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupState
from streams import Place

import clonos
from clonos.errors import ClonosError, QueryDefinitionError

pytestmark = pytest.mark.spark
for pickler in (cloudpickle, pyspark.cloudpickle):  # workers cannot import this module
    pickler.register_pickle_by_value(sys.modules[__name__])

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STARTED = 60.0

# By id: two ordinary ones, a null, an extreme.
COLUMNS = {
    "boolean": ("true", "false", "null", "true"),
    "tinyint": ("7", "-128", "null", "127"),
    "smallint": ("7", "-32768", "null", "32767"),
    "int": ("7", "1", "null", "2147483647"),
    "bigint": ("7", "1", "null", "9007199254740991"),
    "float": ("1.5", "1.1", "null", "'nan'"),
    "double": ("0.1", "'infinity'", "null", "-0.0"),
    "decimal(5,2)": ("1.5", "-999.99", "null", "0"),
    "string": ("'plain'", "''", "null", "'x'"),
    "binary": ("X'00FF'", "X''", "null", "X'41'"),
    "date": ("'2024-02-29'", "'0001-01-01'", "null", "'9999-12-31'"),
    "timestamp": ("'2024-07-31 02:30:00.123456'", "'1950-01-01 00:00:00'", "null", "'2200-12-31 23:59:59'"),
    "timestamp_ntz": ("'2024-07-31 02:30:00.1'", "'1950-01-01 00:00:00'", "null", "'2200-12-31 23:59:59'"),
    "interval day to second": (
        "interval '1 02:03:04.5' day to second",
        "interval '-9 0:0:0.000001' day to second",
        "null",
        "interval '0 0:0:0' day to second",
    ),
    "array<int>": ("array(1, 2)", "array(3)", "null", "array(1, 3)"),
    "map<string,double>": ("map('a', 1.5D)", "map()", "null", "map('b', null, 'a', 2D)"),
    "struct<a:int,b:string>": (
        "named_struct('a', 1, 'b', 'x')",
        "named_struct('a', null, 'b', null)",
        "null",
        "named_struct('a', 2, 'b', '')",
    ),
    "array<struct<m:map<string,array<date>>,t:timestamp>>": (
        "array(named_struct('m', map('k', array(date'2024-01-01', null)), 't', timestamp'2024-01-01 00:00:00'))",
        "array(null, named_struct('m', null, 't', null))",
        "null",
        "array(null)",
    ),
    "map<timestamp,struct<x:int>>": (
        "map(timestamp'2024-01-01 00:00:00', named_struct('x', 1))",
        "map()",
        "null",
        "map(timestamp'2024-01-02 00:00:00', null)",
    ),
}  # fmt: skip


def columns(*names: str) -> list[Any]:
    from pyspark.sql import functions as f

    made = [f.col("k")]
    for name in names or COLUMNS:
        choice = f.lit(None)
        for index, text in enumerate(COLUMNS[name]):
            choice = f.when(f.col("id") == index, f.expr(f"cast({text} as {name})")).otherwise(choice)
        made.append(choice.cast(name).alias(f"c{list(COLUMNS).index(name)}"))
    return made


Apply = Callable[[Any], Any]


class Sides:
    """Stock Spark and Clonos over one log: `apply` gets a grouped stream and gives the operator's output."""

    def __init__(self, place: Place) -> None:
        self.place = place
        place.spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        place.spark.conf.set("spark.sql.shuffle.partitions", "1")

    def stock(self, source: Any, key: str, apply: Apply) -> list[dict[str, Any]]:
        """What Spark's operator gives."""
        name = f"stock_{uuid.uuid4().hex}"
        query = (
            apply(source.groupBy(key))
            .writeStream.format("memory")
            .queryName(name)
            .outputMode("update")
            .option("checkpointLocation", str(self.place.base / name))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(STARTED)
        return [row.asDict() for row in self.place.spark.table(name).collect()]

    def ours(self, source: Any, key: str, apply: Apply) -> list[dict[str, Any]]:
        """What ours gives, when all input has been processed."""
        stream = apply(clonos.causal(source).groupBy(key))
        query = self.place.writer(stream).trigger(availableNow=True).start()
        self.place.query = query
        assert query.awaitTermination(STARTED), query.exception()
        found = self.place.rows()
        for row in found:
            row.pop("clonos_id")
        return found

    def both(self, source: Any, key: str, apply: Apply) -> list[dict[str, Any]]:
        """What both give, in any order."""
        stock, ours = self.stock(source, key, apply), self.ours(source, key, apply)
        by = lambda row: sorted(map(repr, row.items()))  # noqa: E731
        assert sorted(ours, key=by) == sorted(stock, key=by)
        return stock


@pytest.fixture
def sides(place: Place) -> Sides:
    place.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    return Sides(place)


def kind(value: Any) -> str:
    return f"{type(value).__name__}:{value!r}"


class Looked(StatefulProcessor):
    """Says what each row is."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for row in rows:
            assert isinstance(row, Row)
            said = [f"{name} {kind(value)}" for name, value in zip(row.__fields__, row, strict=True)]
            yield Row(said=" ".join([kind(key[0]), *said]))

    def close(self) -> None:
        pass


def described(key: Any, frame: pd.DataFrame) -> str:
    said = [kind(key[0]), repr(frame.index)]
    for name in frame.columns:
        values = frame[name]
        said.append(f"{name} {values.dtype} {kind(values.iloc[0])} {[kind(v) for v in values.tolist()]}")
    return "\n".join(said)


class LookedAtFrames(Looked):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for frame in rows:
            yield pd.DataFrame({"said": [described(key, frame)]})


def looked_at(key: Any, frames: Any, state: Any) -> Any:
    assert isinstance(state, GroupState)
    for frame in frames:
        yield pd.DataFrame({"said": [described(key, frame)]})


LOOKS: dict[str, Apply] = {
    "rows": lambda g: g.transformWithState(Looked(), "said string", "update", "None"),
    "frames": lambda g: g.transformWithStateInPandas(LookedAtFrames(), "said string", "update", "None"),
    "groups": lambda g: g.applyInPandasWithState(looked_at, "said string", "n int", "update", "NoTimeout"),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(
    "ids",
    [
        pytest.param((0, 1), marks=pytest.mark.soak, id="two"),
        pytest.param((2,), id="null"),
        pytest.param((0, 3), id="extreme"),
        pytest.param((1, 2), id="one_null"),
    ],
)
def test_a_function_meets_the_values_and_dtypes_that_it_meets_in_spark(
    sides: Sides, look: str, ids: tuple[int, ...]
) -> None:
    # All rows are one key's, for Spark's own dtypes depend on which other keys are in an Arrow batch.
    sides.place.write(({"k": "a", "id": id_} for id_ in ids), partitions=1)
    source = sides.place.read("k string, id int", partitions=1).select(*columns())
    found = sides.both(source, "k", LOOKS[look])
    assert len(found) == (len(ids) if look == "rows" else 1)


class Kept(Looked):
    """The first state of each key, and what is kept of it."""

    def init(self, handle: Any) -> None:
        self.first = handle.getValueState("first", "f float, d date, s struct<a:int,b:int>")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        list(rows)
        self.first.update((1.1, pd.Timestamp("2024-01-02 03:04:05"), Row(p=1, q=2)))
        number, day, struct = self.first.get()
        yield Row(said=f"{number} {day} {tuple(struct)}")


def test_state_comes_back_as_in_spark(sides: Sides) -> None:
    sides.place.write([{"k": "a"}], partitions=1)
    source = sides.place.read("k string", partitions=1)
    found = sides.both(source, "k", lambda g: g.transformWithState(Kept(), "said string", "update", "None"))
    assert found == [{"said": "1.100000023841858 2024-01-02 (1, 2)"}]


class Returned(Looked):
    """Yields one row."""

    def __init__(self, row: Any) -> None:
        self.row = row

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        list(rows)
        yield self.row


@pytest.mark.parametrize(
    "row",
    [
        Row(b=2, a=1, t=dt.datetime(2024, 7, 1)),
        Row(a=1),
        Row(a=1.5, b=True, t=dt.datetime(2024, 7, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
    ],
    ids=["order", "missing", "cast"],
)
def test_a_returned_row_becomes_what_it_becomes_in_spark(sides: Sides, row: Any) -> None:
    sides.place.write([{"k": "a"}], partitions=1)
    source = sides.place.read("k string", partitions=1)
    output = "a int, b double, t timestamp, said string"
    apply: Apply = lambda g: g.transformWithState(Returned(row), output, "update", "None")  # noqa: E731
    stock = sides.stock(source, "k", apply)
    for found in stock:
        moment = found["t"] and found["t"].astimezone(dt.UTC)
        found["t"] = moment and moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert sides.ours(source, "k", apply) == stock


def test_a_returned_row_with_an_unknown_name_is_refused_not_nulled(sides: Sides) -> None:
    sides.place.write([{"k": "a"}], partitions=1)
    source = sides.place.read("k string", partitions=1)
    apply: Apply = lambda g: g.transformWithState(  # noqa: E731
        Returned(Row(a=1, x=5)), "a int, b int", "update", "None"
    )
    assert sides.stock(source, "k", apply) == [{"a": 1, "b": None}]
    with pytest.raises(ClonosError, match="unknown field 'x'"):
        sides.ours(source, "k", apply)


def test_intervals_in_json_lines_come_back_in_spark(sides: Sides) -> None:
    place = sides.place
    place.write(({"k": "a", "id": n} for n in range(4)), partitions=1)
    source = place.read("k string, id int", partitions=1)
    name = "interval day to second"
    spans = source.select("id", *columns(name))
    output = f"id int, span {name}"
    passed = clonos.causal(spans).map(lambda row: (row.id, row[2]), output, name="pass", pure=True)
    query = place.writer(passed).trigger(availableNow=True).start()
    place.query = query
    assert query.awaitTermination(STARTED), query.exception()
    read = place.spark.read.schema(output).json(str(place.output)).collect()
    wanted = place.spark.range(4).selectExpr("id", "'a' as k").select("id", *columns(name)).collect()
    assert sorted((r.id, r.span) for r in read if r.id != 2) == [(r[0], r[2]) for r in wanted if r[0] != 2]
    assert [r.span for r in read if r.id == 2] == [None]


def sessions(key: Any, frames: Any, state: Any) -> Any:
    """Counts until nothing has come for 5 seconds of event time; says what each call is given."""
    seconds = sorted(int(moment.timestamp()) % 60 for frame in frames for moment in frame["at"])
    (count,) = state.getOption or (0,)
    if state.hasTimedOut:
        state.remove()
    else:
        count += len(seconds)
        state.update((count,))
        state.setTimeoutTimestamp(
            max(max(seconds) * 1e3 + 5000.5 + MINUTE, state.getCurrentWatermarkMs() + 1)
        )
    said = f"{key[0]} {seconds} of {count}, {state.hasTimedOut}, {state.getCurrentWatermarkMs()}"
    yield pd.DataFrame({"said": [said]})


MINUTE = 1_704_067_200_000  # 2024-01-01 00:00:00 UTC
STEPS = (
    [("a", 1), ("b", 2), ("a", 3)],
    [("b", 20), ("a", 4), ("c", 21)],  # behind it the watermark is 11: "a" has timed out
    [("a", 10), ("a", 12), ("c", 11)],  # two of them are late
    [("b", 55)],  # everything but "b" times out
)


def said_in_steps(place: Place, query: Any, rows: Callable[[], list[dict[str, Any]]]) -> list[list[str]]:
    """What is said for each step of input."""
    told: list[list[str]] = []
    for step in STEPS:
        place.write(({"k": k, "at": f"2024-01-01 00:00:{second:02}"} for k, second in step), partitions=1)
        query.processAllAvailable()
        known = sum(map(len, told))
        told.append(sorted(row["said"] for row in rows()[known:]))
    query.stop()
    return told


def test_an_epoch_is_one_call_per_key_late_rows_are_dropped_and_timeouts_come_behind(place: Place) -> None:
    sides, spark = Sides(place), place.spark
    assert sides.place is place
    args = (sessions, "said string", "n long", "update", "EventTimeTimeout")
    source = place.read("k string, at timestamp", partitions=1)
    stock = (
        source.withWatermark("at", "10 seconds")
        .groupBy("k")
        .applyInPandasWithState(*args)
        .writeStream.format("memory")
        .queryName("stock_sessions")
        .outputMode("update")
        .option("checkpointLocation", str(place.base / "stock"))
        .start()
    )
    of_spark = said_in_steps(
        place, stock, lambda: [row.asDict() for row in spark.table("stock_sessions").collect()]
    )
    again = Place(spark, place.base / "again")
    stream = (
        again.causal("k string, at timestamp", partitions=1).withWatermark("at", "10 seconds").groupBy("k")
    )
    ours = again.start(stream.applyInPandasWithState(*args, parallelism=1, per="batch"))
    assert said_in_steps(again, ours, again.rows) == of_spark
    assert any("True" in said for step in of_spark for said in step)
    assert not any("[10" in said for step in of_spark for said in step)


def test_one_call_per_batch_needs_batches(place: Place) -> None:
    stream = place.causal("k string").groupBy("k")
    args = (looked_at, "said string", "n int", "update", "NoTimeout")
    with pytest.raises(QueryDefinitionError, match="which real time lacks"):
        place.start(stream.applyInPandasWithState(*args, per="batch"), "realtime")
    with pytest.raises(QueryDefinitionError, match="per='batch' and on_poison"):
        stream.applyInPandasWithState(*args, per="batch", on_poison="dead_letter")

"""Causal streams where they are defined; no Spark is needed."""

from __future__ import annotations

import pickle
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

import clonos
from clonos.api.streams import CausalStream
from clonos.errors import QueryDefinitionError
from clonos.spark.compile import Compiled
from clonos.spark.plan import SinkPlan
from clonos.spark.settings import read_settings
from clonos.testing.driver import OperatorDriver, stream

COLUMNS = "card string, amount long"
CARDS = stream(COLUMNS)


def doubled(given: CausalStream, times: int) -> CausalStream:
    return given.map(
        lambda row: (row.card, times * row.amount), "card string, amount long", name="doubled", pure=True
    )


def test_transform_gives_what_its_function_makes_of_the_stream() -> None:
    made = CARDS.transform(doubled, times=2)
    assert made.columns == ["card", "amount"] and made.plan != CARDS.plan
    with pytest.raises(QueryDefinitionError, match="returns a causal stream, not 7"):
        CARDS.transform(lambda given: 7)  # type: ignore[arg-type, return-value]


def test_the_schema_is_printed_as_spark_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert CARDS.isStreaming  # what a function that takes any DataFrame may ask
    CARDS.printSchema()
    assert capsys.readouterr().out.startswith("root\n |-- card: string (nullable = true)\n |-- amount: long")
    stream("a struct<b: int>").printSchema(1)
    assert "b:" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["foreach", "partitionBy"])
def test_sparks_own_ways_out_are_refused_with_ours(name: str) -> None:
    with pytest.raises(QueryDefinitionError, match=rf"{name} is Spark's own.* by \.to\(sink\)"):
        getattr(CARDS.writeStream, name)
    with pytest.raises(AttributeError, match="has no 'nothing'"):
        _ = CARDS.writeStream.nothing


def test_what_a_dataframe_has_is_there_or_refused_with_a_hint() -> None:
    from pyspark.sql import DataFrame

    for name in (name for name in dir(DataFrame) if not name.startswith("_")):
        if hasattr(CausalStream, name) or name in CARDS.__dict__:
            continue
        with pytest.raises(QueryDefinitionError) as refused:
            getattr(CARDS, name)
        assert isinstance(refused.value, AttributeError) and refused.value.hint, name
        assert not hasattr(CARDS, name)
    for name in ("nothing", "_repr_html_", "__array__"):
        with pytest.raises(AttributeError) as unknown:
            getattr(CARDS, name)
        assert not isinstance(unknown.value, QueryDefinitionError)
    for part in (CARDS.groupBy("card"), CARDS.writeStream):
        assert not hasattr(part, "pivot") and not hasattr(part, "partitionBy")
    again = pickle.loads(pickle.dumps(refused.value))
    assert type(again) is type(refused.value) and str(again) == str(refused.value)


def test_what_is_said_in_place_of_a_dataframes_methods_is_there() -> None:
    with pytest.raises(AttributeError, match=r"has no 'process'\. Group first: groupBy\(\"key\"\)"):
        _ = CARDS.process
    assert CARDS.groupBy("card").process(lambda key, row, ctx: [row], COLUMNS, name="kept").columns
    with pytest.raises(AttributeError, match=r"has no 'melt'\. Use flat_map\(fn, output, name="):
        _ = CARDS.melt
    many = CARDS.flat_map(
        lambda row, ctx: [(row.card, "a"), (row.card, "b")], "card string, s string", name="m"
    )
    with OperatorDriver(many) as driver:
        assert [tuple(row) for row in driver.feed([("x", 1)])] == [("x", "a"), ("x", "b")]
    assert CARDS.dtypes == [("card", "string"), ("amount", "bigint")]
    assert stream("melt int, n int").columns == ["melt", "n"]


@pytest.mark.parametrize(
    "trigger",
    [
        {"processingTime": "-1 second"},
        {"realTime": "-5 minutes"},
        {"processingTime": "soon"},
        {"processingTime": 10},
        {"processingTime": "1 month"},
        {"availableNow": False},
        {"once": None},
        {"sometimes": "1 second"},
        {},
        {"availableNow": True, "once": True},
        {"continuous": "1 second"},
    ],
)
def test_a_trigger_that_spark_does_not_have_is_refused_when_it_is_set(trigger: dict[str, Any]) -> None:
    with pytest.raises(QueryDefinitionError, match=r"trigger|cannot be read|months|continuous"):
        CARDS.writeStream.trigger(**trigger)


def test_the_triggers_that_the_message_names_are_taken() -> None:
    with pytest.raises(QueryDefinitionError) as refused:
        CARDS.writeStream.trigger(processingTime="-1 second")
    assert "'-1 second' is negative. Give processingTime='10 seconds'" in str(refused.value)
    for text in re.findall(r"(\w+)=('[\w ]+'|True)", str(refused.value)):
        CARDS.writeStream.trigger(**{text[0]: text[1] == "True" or text[1].strip("'")})
    CARDS.writeStream.trigger(processingTime="0 seconds")


def test_no_files_are_written_by_the_way() -> None:
    for given in ({"path": "/data/out"}, {"partitionBy": "card"}):
        with pytest.raises(
            QueryDefinitionError, match=r"does not write files by itself\. Use \.to\(clonos\.sinks"
        ):
            CARDS.writeStream.start(**given)
    with pytest.raises(QueryDefinitionError, match="does not write 'parquet' by itself"):
        CARDS.writeStream.start(format="parquet")


def rows_of(row: Any, ctx: Any) -> Iterator[Any]:
    yield row


async def rows_awaited(row: Any, ctx: Any) -> AsyncIterator[Any]:
    yield row


class Yielding:
    def __call__(self, row: Any, ctx: Any) -> Iterator[Any]:
        yield row


@pytest.mark.parametrize("fn", [rows_of, rows_awaited, Yielding(), partial(rows_of)])
def test_a_function_that_yields_is_refused_where_what_it_returns_counts(fn: Any) -> None:
    """A generator is true, whatever it yields."""
    with pytest.raises(
        QueryDefinitionError, match=r"function of 'm' yields rows.* or use flat_map\(fn, output"
    ):
        CARDS.map(fn, COLUMNS, name="m")
    with pytest.raises(QueryDefinitionError, match=r"function of 'f' yields rows.* Return True or False"):
        CARDS.filter(fn, name="f")
    with OperatorDriver(CARDS.flat_map(fn, COLUMNS, name="many")) as driver:
        assert [tuple(row) for row in driver.feed([("x", 1)])] == [("x", 1)]


def test_a_side_output_is_one_that_the_operator_declares() -> None:
    late = {"late": "card string"}
    split = CARDS.map(lambda row, ctx: row, "card string, amount long", name="split", side_outputs=late)
    assert split.side_output("late").columns == ["card"]
    for given, known in ((split, "'late'"), (CARDS, "none"), (split.side_output("late"), "none")):
        with pytest.raises(QueryDefinitionError, match=f"no side output 'early'; there are {known}"):
            given.side_output("early")
    with pytest.raises(QueryDefinitionError, match="declared pure, and has side outputs"):
        CARDS.map(lambda row: row, "card string", name="pure", pure=True, side_outputs=late)
    with pytest.raises(QueryDefinitionError, match=r"no side output \['late'\]; there are 'late'"):
        split.side_output(["late"])  # type: ignore[arg-type]
    for name in ("", "a/b", 7, None):
        with pytest.raises(QueryDefinitionError, match=r"is not a side output's \(of 'odd'\) name"):
            CARDS.filter(lambda row, ctx: True, name="odd", side_outputs={name: "a int"})


@pytest.mark.parametrize("given", [["late"], [], "late", ("late", "card string"), {"late"}, True])
def test_side_outputs_are_declared_by_a_mapping(given: Any) -> None:
    keyed = CARDS.groupBy("card")
    connected = clonos.connect(CARDS, CARDS).groupBy("card")

    def nothing(*_: Any) -> None: ...

    for declare in (
        lambda: CARDS.map(nothing, COLUMNS, name="op", side_outputs=given),
        lambda: CARDS.flat_map(nothing, COLUMNS, name="op", side_outputs=given),
        lambda: CARDS.filter(nothing, name="op", side_outputs=given),
        lambda: keyed.process(nothing, COLUMNS, name="op", side_outputs=given),
        lambda: connected.process(nothing, nothing, COLUMNS, name="op", side_outputs=given),
    ):
        with pytest.raises(
            QueryDefinitionError, match=rf"'op' are a {type(given).__name__};.*side_outputs=\{{\"late\": \""
        ):
            declare()


def compiled(given: CausalStream) -> Compiled:
    sink = clonos.sinks.call(lambda rows, ids: None)
    return Compiled([SinkPlan(given.plan, given.schema, sink)], read_settings({}), "UTC")


def test_a_reader_takes_one_output_of_an_operator() -> None:
    sides = {"late": COLUMNS, "odd": COLUMNS}
    split = CARDS.map(lambda row, ctx: row, COLUMNS, name="split", side_outputs=sides)
    late, odd = split.side_output("late"), split.side_output("odd")

    def connected(left: CausalStream, right: CausalStream) -> CausalStream:
        grouped = clonos.connect(left, right).groupBy("card")
        return grouped.process(lambda *_: None, lambda *_: None, COLUMNS, name="both")

    for given, says in (
        (
            split.union(late),
            "^sink would read two outputs of split: its main output and its side output 'late'",
        ),
        (
            odd.union(late),
            "^sink would read two outputs of split: its side output 'odd' and its side output 'late'",
        ),
        (
            connected(split, late),
            "^both would read two outputs of split: its main output and its side output 'late'",
        ),
        (connected(CARDS.union(late), odd), "^both would read two outputs of split"),
        (split.union(split), "^sink would get rows of split twice"),
        (connected(split, split), "^both would get rows of split twice"),
        (
            late.union(split.side_output("late")),
            "^sink would get rows of the side output 'late' of split twice",
        ),
        (split.union(late).union(split), "^sink would get rows of split twice"),
    ):
        hint = "an operator of its own, such as " + (r"\.filter\(" if "outputs" in says else r"map\(\)")
        with pytest.raises(QueryDefinitionError, match=f"{says}.*{hint}"):
            compiled(given)
    through = late.filter(lambda row, ctx: True, name="through")  # as the hint says
    for given in (split.union(through), connected(split, through), connected(through, split)):
        reads = [dict(node.reads) for node in compiled(given).topology().nodes]
        assert reads[1] == {1: "late"} and not any(reads[2:])

"""Causal streams where they are defined; no Spark is needed."""

from __future__ import annotations

from typing import Any

import pytest

import clonos
from clonos.api.streams import CausalStream
from clonos.errors import QueryDefinitionError
from clonos.spark.compile import Compiled
from clonos.spark.plan import SinkPlan
from clonos.spark.settings import read_settings
from clonos.testing.driver import stream

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

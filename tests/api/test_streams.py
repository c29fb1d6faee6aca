"""Causal streams where they are defined; no Spark is needed."""

from __future__ import annotations

import pytest

from clonos.api.streams import CausalStream
from clonos.errors import QueryDefinitionError
from clonos.testing.driver import stream

CARDS = stream("card string, amount long")


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
    CARDS.printSchema()
    assert capsys.readouterr().out.startswith("root\n |-- card: string (nullable = true)\n |-- amount: long")
    stream("a struct<b: int>").printSchema(1)
    assert "b:" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["format", "foreachBatch", "toTable", "partitionBy"])
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
    for name in ("", "a/b"):
        with pytest.raises(QueryDefinitionError, match=r"is not a side output's \(of 'odd'\) name"):
            CARDS.filter(lambda row, ctx: True, name="odd", side_outputs={name: "a int"})

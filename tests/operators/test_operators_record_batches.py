"""`map_batches`, `mapInArrow` and `mapInPandas`: what their functions are given, and what is taken of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from surface_services import FakeServices, opened

from clonos.errors import InputError, PurityError, QueryDefinitionError, UserFunctionError
from clonos.operators.current import current
from clonos.operators.record_batches import ArrowIteratorOperator, BatchOperator, FrameIteratorOperator
from clonos.operators.rows import RowDecoder, RowEncoder
from clonos.operators.types import arrow_schema
from clonos.protocol.side_output import output_of
from clonos.testing.driver import OperatorDriver, SideOutput, stream

IN = arrow_schema("card string, amount long")
OUT = arrow_schema("card string, amount long, draw double")
ZONE = "Europe/Berlin"
KINDS = (
    "b boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f32 float, f64 double, s string, raw binary, "
    "day date, at timestamp, wall timestamp_ntz, span interval day to second, price decimal(20,4), "
    "many array<int>, map_ map<string,timestamp>, one struct<x:int,at:timestamp,of:array<struct<y:string>>>, none void"
)
REPEATED = dt.datetime(2026, 10, 25, 2, 30)
"""Comes twice in Berlin."""


def every_kind(at: dt.datetime, price: Decimal) -> tuple[Any, ...]:
    return (
        True, -128, -(2**15), -(2**31), -(2**63), 1.5, -0.0, "käse", b"\xff", dt.date(1, 1, 1), at, REPEATED,
        dt.timedelta(days=-1, microseconds=1), price, [1, None], {"a": at, "b": None},
        {"x": None, "at": at, "of": [{"y": "z"}]}, None,
    )  # fmt: skip


def a_bundle(schema: pa.Schema, values: list[Any], tz: str = "UTC") -> tuple[list[Any], list[Any]]:
    """Keys and rows as a replica has them."""
    return RowDecoder(schema, tz).decode(RowEncoder(schema, tz).batch(values))


def run(
    operator: Any, values: list[Any], services: FakeServices | None = None, given: pa.Schema = IN
) -> list[Any]:
    keys, rows = a_bundle(given, values)
    made: list[Any] = opened(operator, services or FakeServices()).bundle(keys, rows)
    return made


def of(fn: Any, output: str = "card string, amount long", **more: Any) -> BatchOperator:
    return BatchOperator(fn, arrow_schema(output), input=IN, name="op", **more)


def test_a_function_sees_a_bundle_as_columns_and_has_the_services() -> None:
    services = FakeServices()

    def drawn(batch: pa.RecordBatch, ctx: Any) -> pa.RecordBatch:
        assert batch.schema == IN and ctx.key is None and current() is ctx
        rate = ctx.call(lambda: 2)
        draws = [ctx.random.random() for _ in range(batch.num_rows)]
        return batch.set_column(1, "amount", pc.multiply(batch["amount"], rate)).append_column(
            "draw", pa.array(draws)
        )

    operator = BatchOperator(drawn, OUT, input=IN, name="op")
    made = run(operator, [("a", 1), ("b", None), (None, 3)], services)
    assert [row[:2] for row in made] == [("a", 2), ("b", None), (None, 6)]
    assert len({row[2] for row in made}) == 3 and not operator.record_at_a_time


@pytest.mark.parametrize("zone", ["UTC", ZONE, "+05:30"])
def test_every_type_comes_back_as_it_was(zone: str) -> None:
    schema = arrow_schema(KINDS)
    first = every_kind(REPEATED, Decimal("1234567890123456.7891"))
    later = every_kind(REPEATED.replace(fold=1), Decimal("-0.0001"))
    far = every_kind(dt.datetime(9999, 12, 30), Decimal(0))
    keys, rows = a_bundle(schema, [first, later, far, (None,) * len(schema)], zone)
    seen = []

    def same(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        seen.append(batch)
        yield batch.slice(0, 1)
        yield batch.slice(1)

    operator = opened(
        BatchOperator(same, schema, input=schema, name="op", pure=True, tz=zone), FakeServices()
    )
    made = operator.bundle(keys, rows)
    assert list(map(repr, map(tuple, made))) == list(map(repr, map(tuple, rows)))
    assert seen[0].schema.field("at").type == pa.timestamp("us", zone)
    assert seen[0].schema.field("one").type.field("at").type == pa.timestamp("us", zone)


GIVEN: dict[str, Any] = {
    "a batch": lambda batch: batch,
    "a table": lambda batch: pa.table(batch),
    "a table of chunks": lambda batch: pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)]),
    "a list": lambda batch: [batch.slice(0, 1), batch.slice(1, 0), pa.table(batch.slice(1))],
    "another order": lambda batch: batch.select(["amount", "card"]),
    "narrower": lambda batch: batch.set_column(1, "amount", batch["amount"].cast("int8")),
    "floats that are whole": lambda batch: batch.set_column(1, "amount", batch["amount"].cast("double")),
    "decimals": lambda batch: batch.set_column(1, "amount", pc.cast(batch["amount"], pa.decimal128(30, 2))),
    "a dictionary": lambda batch: batch.set_column(0, "card", batch["card"].dictionary_encode()),
    "large text": lambda batch: batch.set_column(0, "card", batch["card"].cast(pa.large_string())),
    "bytes": lambda batch: batch.set_column(0, "card", batch["card"].cast(pa.binary())),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_what_is_taken(given: Any) -> None:
    assert run(of(given, pure=True), [("a", 1), ("b", 2)]) == [("a", 1), ("b", 2)]


def test_nothing_is_taken_too() -> None:
    for fn in (lambda b: None, lambda b: [], lambda b: b.slice(0, 0), lambda b: pa.schema(IN).empty_table()):
        assert run(of(fn, pure=True), [("a", 1)]) == []
    nulls = of(lambda b: pa.table({"card": pa.nulls(2), "amount": pa.nulls(2)}), pure=True)
    assert run(nulls, [("a", 1)]) == [(None, None)] * 2
    exact = of(lambda b: b.select(["amount"]), "amount decimal(5,1)", pure=True)
    assert run(exact, [("a", 9999)]) == [(Decimal("9999.0"),)]


def columns(**arrays: pa.Array) -> Any:
    return lambda batch: pa.record_batch(arrays)


REFUSED: dict[str, tuple[str, Any, str]] = {
    "missing": ("a int, b int", columns(a=pa.array([1])), r"missing \['b'\].*unexpected \[\]"),
    "extra": ("a int", columns(a=pa.array([1]), c=pa.array([1])), r"unexpected \['c'\]"),
    "fraction": ("a int", columns(a=pa.array([1, 1.5])), r"column 'a' \(int\).*which is double.*1\.5"),
    "overflow": ("a int", columns(a=pa.array([2**40])), "column 'a'.*1099511627776"),
    "text": ("a int", columns(a=pa.array(["7"])), "which is string: no value of this type"),
    "number": ("a string", columns(a=pa.array([7])), "column 'a'.*no value of this type"),
    "boolean": ("a int", columns(a=pa.array([True])), "no value of this type"),
    "bytes": ("a string", columns(a=pa.array([b"\xff"])), "Invalid UTF8"),
    "digits": ("a decimal(3,1)", columns(a=pa.array([1.25])), "round it"),
    "large": ("a decimal(3,1)", columns(a=pa.array([12345])), "column 'a'.*(?i:precision|fit)"),
    "naive": ("a timestamp", columns(a=pa.array([0], pa.timestamp("us"))), "without a time zone.*assume"),
    "zoned": ("a timestamp_ntz", columns(a=pa.array([0], pa.timestamp("us", "UTC"))), "with a time zone"),
    "nanos": ("a timestamp", columns(a=pa.array([1], pa.timestamp("ns", "UTC"))), "would lose data"),
    "day": ("a date", columns(a=pa.array([0], pa.timestamp("us"))), "no value of this type"),
    "null": (
        "a int NOT NULL",
        columns(a=pa.array([1, None])),
        "declared NOT NULL, but row 1 has no value",
    ),
    "struct": (
        "a struct<x:int,y:int>",
        columns(a=pa.array([{"y": 1, "x": 2}], pa.struct([("y", pa.int32()), ("x", pa.int32())]))),
        r"struct of \(y, x\) where one of \(x, y\)",
    ),
    "element": ("a array<int>", columns(a=pa.array([["7"]])), "no value of this type"),
    "list": ("a map<string,int>", columns(a=pa.array([[1]])), "no value of this type"),
    "frame": ("a int", lambda batch: batch.to_pandas(), "gave a DataFrame"),
    "rows": ("a int", lambda batch: [(1,)], "gave a tuple"),
    "text instead": ("a int", lambda batch: "abc", "gave a str"),
    "dict": ("a int", lambda batch: {"a": [1]}, "gave a dict"),
    "number instead": ("a int", lambda batch: 7, "gave a int"),
}


@pytest.mark.parametrize(("output", "fn", "message"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_with_its_column(output: str, fn: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        run(of(fn, output, pure=True), [("a", 1)])
    assert caught.value.where is not None and caught.value.hint


def test_failures_of_the_function() -> None:
    def late(batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.RecordBatch]:
        yield batch
        raise ValueError("later")

    with pytest.raises(UserFunctionError, match="'op' raised ValueError: later"):
        run(of(late), [("a", 1)])
    with pytest.raises(PurityError, match="declared pure"):
        run(of(lambda batch: current(), pure=True), [("a", 1)])
    with pytest.raises(UserFunctionError, match="TypeError"):
        run(of(lambda batch: batch, pure=False), [("a", 1)])


def test_what_was_yielded_may_be_changed_and_side_rows_stand_where_they_were_given() -> None:
    def reusing(batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.RecordBatch]:
        numbers = np.zeros(1, np.int64)
        for n in range(3):
            numbers[0] = n
            yield pa.record_batch({"n": pa.array(numbers)})
            ctx.side_output("odd", (n,))

    sides = {"odd": arrow_schema("n long")}
    made = run(of(reusing, "n long", side_outputs=sides), [("a", 1)])
    assert made == [(0,), (0,), (1,), (1,), (2,), (2,)]
    assert [output_of(row) for row in made] == ["", "odd"] * 3


def test_pysparks_iterators() -> None:
    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert current().now_us() > 0
            yield batch.set_column(1, "amount", pc.multiply(batch["amount"], 2))

    def of_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            assert list(map(str, frame.dtypes)) == ["object", "int64"]
            yield frame[frame.amount > 1]

    output = arrow_schema("card string, amount long")
    arrow = ArrowIteratorOperator(doubled, output, input=IN, name="op")
    frames = FrameIteratorOperator(of_frames, output, input=IN, name="op")
    given = [("a", 1), ("b", 2)]
    assert run(arrow, given) == [("a", 2), ("b", 4)] and run(frames, given) == [("b", 2)]
    for lone in (lambda batches: next(batches), lambda batches: 5):
        with pytest.raises(InputError, match=r"gave a (RecordBatch|int)"):
            run(ArrowIteratorOperator(lone, output, input=IN, name="op"), given)
    with pytest.raises(InputError, match="gave a DataFrame"):
        run(FrameIteratorOperator(lambda frames: next(frames), output, input=IN, name="op"), given)


def test_a_killed_instance_gives_the_function_the_same_batches() -> None:
    asked: list[int] = []
    batches: list[list[Any]] = []

    def scored(batch: pa.RecordBatch, ctx: Any) -> Iterator[Any]:
        batches.append(batch.to_pylist())
        rate = ctx.call(lambda: asked.append(1) or len(asked))
        at = pa.array([ctx.now()] * batch.num_rows, pa.timestamp("us", "UTC"))
        draws = [ctx.random.random() for _ in range(batch.num_rows)]
        ctx.side_output("sizes", (batch.num_rows,))
        yield pa.record_batch({"at": at, "n": pc.multiply(batch["n"], rate), "draw": pa.array(draws)})

    given = stream("n long, t timestamp", timezone=ZONE).withWatermark("t", "1 minute")
    operator = given.union(given).map_batches(
        scored, "n long, draw double, at timestamp", name="scored", side_outputs={"sizes": "rows int"}
    )
    noon = dt.datetime(2026, 1, 1, 12)
    with OperatorDriver(operator) as driver:
        said = driver.feed([(1, noon), (2, None)]) + driver.feed([(3, noon)])
        assert said[0] == SideOutput("sizes", (2,)) and said[3] == SideOutput("sizes", (1,))
        assert [row[0] for row in said if not isinstance(row, SideOutput)] == [1, 2, 6]
        assert said[1].at == dt.datetime(2026, 1, 1, 1) and driver.watermark is not None
        before = list(batches)
        assert driver.kill() == [] and batches == before * 2 and asked == [1, 1]
        driver.end_epoch()
        driver.feed([(4, noon)])
        driver.kill()
        assert asked == [1, 1, 1]


def test_definitions() -> None:
    given = stream("n long")

    async def waits(batch: Any, ctx: Any) -> Any:
        return batch

    with pytest.raises(QueryDefinitionError, match="async"):
        given.map_batches(waits, "n long", name="op")
    with pytest.raises(QueryDefinitionError, match="barrier"):
        given.mapInArrow(lambda batches: batches, "n long", barrier=True)
    with pytest.raises(QueryDefinitionError, match="declared pure, and has side outputs"):
        given.map_batches(lambda b: b, "n long", name="op", pure=True, side_outputs={"x": "n long"})

    def passed_on(batches: Any) -> Any:
        return batches

    for made in (given.mapInArrow(passed_on, "n long"), given.mapInPandas(passed_on, "n long")):
        with OperatorDriver(made) as driver:
            assert driver.feed([(1,), (None,)]) == [(1,), (None,)]
            assert driver.kill() == []


BESIDE = "b boolean, d double, raw binary, day date, at timestamp, wall timestamp_ntz, nothing void".split(
    ", "
)
OTHERS = (
    "s string, price decimal(10,2), span interval day to second, many array<int>, one struct<x:int>, "
    "map_ map<string,int>"
).split(", ")


@pytest.mark.parametrize("columns", [BESIDE, *[[*BESIDE[:2], other] for other in OTHERS]], ids=str)
@pytest.mark.parametrize("has_nulls", [True, False])
def test_integers_are_as_exact_as_in_sparks_frames(columns: list[str], has_nulls: bool) -> None:
    """Beside whatever other columns there are."""
    from pyspark.sql.conversion import ArrowBatchTransformer

    kinds = ", ".join(["i8 tinyint", "i16 smallint", "i32 int", "i64 bigint", *columns])
    schema = arrow_schema(kinds)
    rest = (None,) * len(columns)
    rows: list[tuple[Any, ...]] = [(-(2**7), 2**15 - 1, -(2**31), 2**53 + 1, *rest)]
    if has_nulls:
        rows += [(None,) * len(schema), rows[0]]
    found: list[pd.DataFrame] = []

    def keep(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            found.append(frame)
            yield frame

    made = run(FrameIteratorOperator(keep, schema, input=schema, name="op"), rows, given=schema)
    whole = RowEncoder(schema, "UTC").batch(rows).to_struct_array()
    batch = pa.record_batch([whole], ["_0"])
    theirs = ArrowBatchTransformer.to_pandas(batch, timezone="UTC", df_for_struct=True)[0]
    (ours,) = found
    assert list(ours.dtypes) == list(theirs.dtypes)
    assert repr(ours.values.tolist()) == repr(theirs.values.tolist())
    if set(columns) & set(OTHERS):
        assert made == rows


def test_a_decimal_of_a_frame_that_is_no_number_is_null() -> None:
    """As in Spark. A float is refused: it is hardly ever the number that is meant."""
    output = arrow_schema("d decimal(10,2), many array<decimal(10,2)>")
    no_number = Decimal("NaN")

    def of(value: Any) -> Any:
        return lambda frames: iter([pd.DataFrame({"d": [value, Decimal("1.5")], "many": [[value], None]})])

    given = [("a", 1)]
    made = run(FrameIteratorOperator(of(no_number), output, input=IN, name="op"), given)
    assert made == [(None, [None]), (Decimal("1.50"), None)]
    with pytest.raises(InputError, match="int or Decimal object expected, got float"):
        run(FrameIteratorOperator(of(2.675), output, input=IN, name="op"), given)
    assert run(FrameIteratorOperator(of(Decimal(str(2.67))), output, input=IN, name="op"), given)

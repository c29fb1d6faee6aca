"""What operators tell of how many rows each call gives: as many as the record alone gives, in bundles of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from surface_services import FakeServices, opened

from clonos.errors import InputError
from clonos.operators.derived_outputs import DerivedOutput, DerivedOutputs
from clonos.operators.expressions.tree import COLUMN, LITERAL, Derivation, Expression, Select, Where
from clonos.operators.process import FilterOperator, FlatMapOperator, MapOperator, ProcessOperator
from clonos.operators.table_join import FixedTable, How, TableJoin
from clonos.operators.types import arrow_schema
from clonos.protocol.engine.given_rows import GivenRows
from clonos.protocol.frontier import numbers_of
from clonos.protocol.side_output import MAIN, OutputName

OUT = arrow_schema("n long")
NESTED = arrow_schema("n long, many array<long>")
SIDE = OutputName("odd")
SIZES = (1, 5, 255, 256, 5000)
"""Also more than numbers are kept at hand."""


def keyed(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    return flat(row, ctx)


def keyed_with_odd(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    if row[0] % 2:
        ctx.side_output(SIDE, (row[0],))
    return flat(row, ctx)


def flat(row: Any, ctx: Any = None) -> Iterator[tuple[Any, ...]]:
    return iter([(row[0],)] * (row[0] % 4))


def flat_or_nothing(row: Any) -> list[tuple[Any, ...]] | None:
    return None if row[0] % 3 else [(row[0],)]


def same(row: Any, ctx: Any = None) -> tuple[Any, ...]:
    return (row[0],)


def same_and_odd(row: Any, ctx: Any) -> tuple[Any, ...]:
    if row[0] % 2:
        ctx.side_output(SIDE, (row[0],))
    return (row[0],)


def odd(row: Any, ctx: Any = None) -> bool:
    return bool(row[0] % 2)


def odd_and_all(row: Any, ctx: Any) -> bool:
    ctx.side_output(SIDE, (row[0],))
    return odd(row)


def table_join() -> TableJoin:
    table = pa.table({"n": pa.array([0, 1, 1, 2]), "m": pa.array([1, 2, 3, 4])})
    joined = arrow_schema("n long, m long")
    return TableJoin(
        How.INNER,
        ((), (1,)),
        table.schema,
        ((0,), (0,)),
        joined,
        name="join",
        tz="UTC",
        tables=FixedTable(table),
    )


def with_side(kind: Any, fn: Any, **more: Any) -> Any:
    return kind(fn, OUT, name="o", side_outputs={SIDE: OUT}, **more)


OPERATORS: dict[str, Callable[[], Any]] = {
    "process": lambda: ProcessOperator(keyed, OUT, name="o"),
    "process, side output": lambda: with_side(ProcessOperator, keyed_with_odd),
    "map": lambda: MapOperator(same, OUT, name="o", pure=False),
    "pure map": lambda: MapOperator(same, OUT, name="o", pure=True),
    "map, side output": lambda: with_side(MapOperator, same_and_odd, pure=False),
    "flat_map": lambda: FlatMapOperator(flat, OUT, name="o", pure=False),
    "pure flat_map": lambda: FlatMapOperator(flat_or_nothing, OUT, name="o", pure=True),
    "filter": lambda: FilterOperator(odd, OUT, name="o", pure=False),
    "pure filter": lambda: FilterOperator(odd, OUT, name="o", pure=True),
    "filter of values that may change": lambda: FilterOperator(odd, NESTED, name="o", pure=False),
    "filter, side output": lambda: with_side(FilterOperator, odd_and_all, pure=False),
    "table join": table_join,
}


def records(name: str, size: int) -> list[tuple[Any, ...]]:
    return [(n, [n]) if "may change" in name else (n,) for n in range(size)]


def given_by(operator: Any, rows: list[tuple[Any, ...]], services: FakeServices) -> list[tuple[Any, ...]]:
    made: list[tuple[Any, ...]] = operator.bundle([("k",)] * len(rows), rows)
    return made


@pytest.mark.parametrize("name", OPERATORS)
def test_each_call_gave_what_its_record_alone_gives(name: str) -> None:
    services = FakeServices()
    operator = opened(OPERATORS[name](), services)
    rows = records(name, max(SIZES))
    alone = [len(given_by(operator, [row], services)) for row in rows]
    unasked = given_by(operator, rows, services)
    services.given_rows = told = GivenRows()
    for size in SIZES:
        told.forget()
        made = given_by(operator, rows[:size], services)
        assert made == unasked[: len(made)], "it gives the same, asked or not"
        assert told.by_call is not None
        assert numbers_of(told.by_call) == alone[:size]
        assert not told.gave_one_each or alone[:size] == [1] * size
        assert told.forms == b""


def column(index: int) -> Expression:
    return Expression(COLUMN, "bigint", (), (("index", index),), f"c{index}")


def below(limit: int) -> Where:
    literal = Expression(LITERAL, "bigint", (), (("value", limit),), str(limit))
    return Where(Expression("LessThan", "boolean", (column(0), literal), (), f"n < {limit}"))


def derived(*steps: Any) -> Derivation:
    return Derivation(steps, OUT, "UTC")


FEW, ALL, SOME_ODD = OutputName("/few"), OutputName("/all"), OutputName(f"{SIDE}/some")
DERIVED = {
    FEW: DerivedOutput(MAIN, derived(below(3))),
    ALL: DerivedOutput(MAIN, derived(Select((column(0),)))),
    SOME_ODD: DerivedOutput(SIDE, derived(below(40))),
}


def forms_of(row: tuple[Any, ...], is_odd: bool, wanted: frozenset[OutputName]) -> int:
    """How many rows readers are given of one that the function gives."""
    if is_odd:
        return (SIDE in wanted) + (SOME_ODD in wanted and row[0] < 40)
    return (MAIN in wanted) + (FEW in wanted and row[0] < 3) + (ALL in wanted)


@pytest.mark.parametrize("name", ["process, side output", "map, side output", "flat_map", "pure map"])
@pytest.mark.parametrize(
    "wanted", [(MAIN,), (FEW,), (ALL,), (MAIN, ALL), (FEW, ALL), (MAIN, FEW, ALL, SIDE), (SIDE, SOME_ODD), ()]
)
def test_forms_of_a_row_are_counted_where_expressions_are_behind(
    name: str, wanted: tuple[OutputName, ...]
) -> None:
    """What the operator gives without them says what there is to derive from."""
    plain_services, services = FakeServices(), FakeServices()
    plain = opened(OPERATORS[name](), plain_services)
    outputs = {MAIN: OUT, SIDE: OUT} if "side" in name else {MAIN: OUT}
    own = {output: each for output, each in DERIVED.items() if output in wanted and each.source in outputs}
    operator = opened(
        DerivedOutputs("o", outputs, own, frozenset(wanted)).around(OPERATORS[name])(), services
    )
    services.given_rows = told = GivenRows()
    for size in SIZES:
        rows = records(name, size)
        told.forget()
        made = given_by(operator, rows, services)
        by_call, forms = [], []
        for row in rows:
            of_row = [
                forms_of(one, hasattr(one, "output"), frozenset(wanted) & {*outputs, *own})
                for one in given_by(plain, [row], plain_services)
            ]
            by_call.append(sum(of_row))
            forms += [count for count in of_row if count]
        assert told.by_call is not None and numbers_of(told.by_call) == by_call
        assert sum(by_call) == len(made)
        assert list(told.forms or bytes((1,)) * len(made)) == forms


def wrong_at_last(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    yield (row[0],)
    if row[0] == 4:
        yield [1, 2]
    if row[0] % 2:
        yield (row[0],)


@pytest.mark.parametrize("is_asked", [False, True])
def test_which_output_is_no_row_is_said_the_same_asked_or_not(is_asked: bool) -> None:
    services = FakeServices()
    operator = opened(ProcessOperator(wrong_at_last, OUT, name="o"), services)
    services.given_rows = GivenRows() if is_asked else None
    rows = [(n,) for n in range(5)]
    with pytest.raises(InputError, match="output 7 of 'o' is not a row: 2 values"):
        operator.bundle([()] * 5, rows)

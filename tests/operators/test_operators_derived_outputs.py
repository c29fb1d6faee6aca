"""What an operator gives beside its own rows where it is read through expressions; no Spark is needed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from surface_services import FakeServices, advance, opened

from clonos.errors import InputError, QueryDefinitionError, UserFunctionError
from clonos.operators.derived_outputs import DerivedOutput, DerivedOutputs
from clonos.operators.expressions.conforming import Conforming
from clonos.operators.expressions.tree import COLUMN, LITERAL, Derivation, Expression, Select, Where
from clonos.operators.process import FlatMapOperator, ProcessOperator
from clonos.operators.types import arrow_schema
from clonos.protocol.side_output import MAIN, OutputName, output_of, output_said
from clonos.protocol.versions.programs import Programs
from clonos.protocol.versions.upgrade import Schedule

OWN = arrow_schema("id long, name string")
LATE = arrow_schema("at long")
SIDE, BIG, NAMES, AT = map(OutputName, ("late", "/big", "/names", "late/at"))


def column(index: int, kind: str = "bigint") -> Expression:
    return Expression(COLUMN, kind, (), (("index", index),), f"c{index}")


def number(value: int) -> Expression:
    return Expression(LITERAL, "bigint", (), (("value", value),), str(value))


def more(index: int, than: int) -> Where:
    return Where(
        Expression("GreaterThan", "boolean", (column(index), number(than)), (), f"c{index} > {than}")
    )


NAME = Select((column(1, "string"),))
SHARE = Expression("IntegralDivide", "bigint", (number(12), column(0)), (("mode", "ANSI"),), "12 div id")


def derivation(*steps: Any, schema: str, zone: str = "UTC") -> Derivation:
    return Derivation(steps, arrow_schema(schema), zone)


DERIVED = {
    BIG: DerivedOutput(MAIN, derivation(more(0, 2), schema="id long, name string")),
    NAMES: DerivedOutput(MAIN, derivation(NAME, schema="name string")),
    AT: DerivedOutput(SIDE, derivation(Select((column(0), column(0))), more(1, 1), schema="a long, b long")),
}


def given(derived: dict[OutputName, DerivedOutput] = DERIVED, *wanted: OutputName) -> DerivedOutputs:
    return DerivedOutputs("op", {MAIN: OWN, SIDE: LATE}, derived, frozenset([*derived, *wanted]))


def test_more_outputs_than_lineage_can_count_are_refused() -> None:
    many = [OutputName(f"out-{at}") for at in range(256)]
    derived = dict.fromkeys(many, DERIVED[BIG])
    given(dict.fromkeys(many[:255], DERIVED[BIG])).around(object)
    with pytest.raises(QueryDefinitionError, match="256 outputs of 'op' are read; at most 255"):
        given(derived).around(object)


def named(row: Any, ctx: Any) -> Iterator[Any]:
    ctx.side_output("late", (row[0],))
    yield row[0], f"n{row[0]}"
    if row[0] == 3:
        ctx.side_output("late", (30,))


def make() -> FlatMapOperator:
    return FlatMapOperator(named, OWN, name="op", pure=False, side_outputs={"late": LATE})


def shown(rows: list[Any]) -> list[tuple[str, Any]]:
    return [(output_of(row), tuple(row)) for row in rows]


def run(operator: Any, *ids: int) -> list[tuple[str, Any]]:
    return shown(operator.bundle([()] * len(ids), [(each,) for each in ids]))


def test_what_becomes_of_a_row_stands_together_and_pieces_give_the_same() -> None:
    for wanted in ((), (MAIN,), (SIDE,), (MAIN, SIDE)):
        operator = opened(given(DERIVED, *wanted).around(make)(), FakeServices())
        whole = run(operator, 1, 2, 3)
        with operator.pieces():
            assert [row for each in (1, 2, 3) for row in run(operator, each)] == whole
        due = [
            *([("late", (3,))] if SIDE in wanted else []),
            ("late/at", (3, 3)),
            *([("", (3, "n3"))] if MAIN in wanted else []),
            ("/big", (3, "n3")),
            ("/names", ("n3",)),
            *([("late", (30,))] if SIDE in wanted else []),
            ("late/at", (30, 30)),
        ]
        assert whole[-len(due) :] == due
        assert [row for row in whole if row[0] == "/names"] == [("/names", (f"n{n}",)) for n in (1, 2, 3)]
    assert run(opened(given(DERIVED).around(make)(), FakeServices())) == []


def test_one_output_alone_and_none_at_all() -> None:
    only = opened(given({BIG: DERIVED[BIG]}).around(make)(), FakeServices())
    assert run(only, 1, 5) == [("/big", (5, "n5"))]
    plain = DerivedOutputs("op", {MAIN: OWN}, {BIG: DERIVED[BIG]}, frozenset([BIG, MAIN]))
    both = FlatMapOperator(lambda row: [(row[0], "x")], OWN, name="op", pure=True)
    operator = opened(plain.around(lambda: both)(), FakeServices())
    assert run(operator, 1, 5) == [("", (1, "x")), ("", (5, "x")), ("/big", (5, "x"))]


def test_timers_state_and_migration_are_the_operators() -> None:
    def begin(key: Any, row: Any, ctx: Any) -> None:
        ctx.state["n"] = row[0]
        ctx.timer(timedelta(seconds=5))

    def due(key: Any, timer: Any, ctx: Any) -> Any:
        yield ctx.state["n"], "due"

    def make() -> ProcessOperator:
        return ProcessOperator(begin, OWN, name="op", on_timer=due, migrate=lambda state, old: {"n": 4})

    wrapped = given({BIG: DERIVED[BIG]}).around(make)()
    assert (wrapped.form, wrapped.record_at_a_time, wrapped.per_epoch) == ("process", True, False)
    assert wrapped.migrates == {""} and not hasattr(wrapped, "declared")
    services = FakeServices()
    operator = opened(wrapped, services)
    assert operator.bundle([("k",), ("j",)], [(7,), (1,)]) == []
    assert operator.user_state(("k",)) == {"n": 7} and operator.kept(("k",))
    assert shown(advance(operator, services, 6_000_000)) == [("/big", (7, "due"))]
    operator.migrate("1", {})
    assert operator.user_state(("j",)) == {"n": 4}
    assert operator.gathered() == []


def test_an_older_version_goes_through_the_same_expressions() -> None:
    def of(text: str) -> Any:
        return given({NAMES: DERIVED[NAMES]}).around(
            lambda: FlatMapOperator(lambda row: [(row[0], text)], OWN, name="op", pure=True)
        )

    schedule = Schedule.always("1")
    programs = Programs("op", schedule, "2", {"1": of("old"), "2": of("new")})
    programs.open(FakeServices())
    for said, text in (("", "old"), ("2", "new")):
        programs.enter(said)
        assert shown(programs.bundle([()], [(1,)])) == [("/names", (text,))]


def test_an_expression_without_a_value_is_an_error_with_its_place() -> None:
    failing = {
        BIG: DerivedOutput(MAIN, derivation(Select((column(1, "string"), SHARE)), schema="a string, b long"))
    }
    operator = opened(given(failing).around(make)(), FakeServices())
    assert run(operator, 4) == [("/big", ("n4", 3))]
    with pytest.raises(
        UserFunctionError, match="an expression behind 'op' has no value: 12 div id: division by zero"
    ):
        run(operator, 1, 0)


def test_messages_name_outputs_by_what_they_are_read_through() -> None:
    assert output_said("op", MAIN) == "op" and output_said("op", SIDE) == "op, side output late"
    assert output_said("op", BIG) == "an expression behind op"
    assert output_said("op", AT) == "an expression behind op, side output late"


def test_it_is_shipped_as_functions_are() -> None:
    outputs = given()
    assert pickle.loads(pickle.dumps(outputs)) == outputs
    digests = [each.derivation.digest for each in outputs.derived.values()]
    assert len(set(digests)) == 3
    assert digests[0] == derivation(more(0, 2), schema="id long, name string").digest
    assert digests[0] != derivation(more(0, 2), schema="id long, name string", zone="+01:00").digest


# Values


WIDE = arrow_schema(
    "i int, l long, d double, s string, b boolean, m decimal(5,2), t timestamp, n timestamp_ntz, a date, x binary, "
    "f float"
)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_values_are_those_that_a_reader_would_see(zone: str) -> None:
    away = timezone(timedelta(hours=3))
    rough = (
        np.int32(4),
        7.9,
        3,
        b"text",
        np.bool_(True),
        Decimal("1.5"),
        datetime(2024, 7, 1, 15, tzinfo=away),
        datetime(2024, 7, 1),
        datetime(2024, 7, 1),
        "raw",
        0.1,
    )
    nothing = (None,) * len(WIDE)
    (made, none) = Conforming(WIDE, zone, "op", range(len(WIDE)))([rough, nothing])
    local = 12 if zone == "UTC" else 14
    due = (4, 7, 3.0, "text", True, Decimal("1.50"), datetime(2024, 7, 1, local), datetime(2024, 7, 1))
    assert made[:8] == due and [type(each) for each in made[:8]] == [type(each) for each in due]
    assert str(made[5]) == "1.50" and made[9] == b"raw" and made[10] == float(np.float32(0.1))
    assert none == nothing
    exact = [(1, 2**40, 0.5, "s", False, None, None, datetime(2024, 1, 1), None, None, None)]
    assert Conforming(WIDE, zone, "op", [0, 1, 2, 3, 4, 7])(exact) is exact


@pytest.mark.parametrize(
    ("schema", "value", "says"),
    [
        ("i int", 2**31, "column 'i'"),
        ("i int", "text", "column 'i'"),
        ("i int", True, "column 'i'"),
        ("s string", "\ud800", "column 's'"),
        ("s string", 5, "column 's'"),
        ("i int not null", None, "NOT NULL"),
        ("n timestamp_ntz", datetime(2024, 1, 1, tzinfo=UTC), "column 'n'"),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_refused(schema: str, value: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Conforming(arrow_schema(schema), "UTC", "op", [0])([(value,)])


def test_columns_that_no_expression_asks_for_are_left_alone() -> None:
    rows = [("anything", b"name")]
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])
    assert Conforming(schema, "UTC", "op", [1])(rows) == [("anything", "name")]

"""Rows are found by what is shown of them: whatever their columns' types, a value as JSON has it finds the rows that
have it, and no others; what is no value of the column is refused, with an example that is one."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from clonos.archive.condition import Condition
from clonos.archive.shown_row import ShownRow
from clonos.archive.shown_value import as_json, as_text, with_instants
from clonos.errors import ConfigurationError
from clonos.operators.rows import RowDecoder, RowEncoder, zone_of
from clonos.operators.types import arrow_schema
from clonos.protocol.side_output import MAIN, OutputName
from clonos_standby.cluster.spec import NodeSpec

ZONE = "Europe/Berlin"
LATE = OutputName("late")
FIRST, SECOND = dt.datetime(2026, 10, 25, 2, 30), dt.datetime(2026, 10, 25, 2, 30, fold=1)
MOMENTS = [
    dt.datetime(1, 1, 2),
    dt.datetime(1582, 10, 10),
    dt.datetime(1890, 1, 1),
    dt.datetime(1969, 12, 31),
]
MOMENTS += [FIRST, SECOND, dt.datetime(2026, 7, 1, 12, 0, 0, 1), dt.datetime(9999, 12, 31)]
SPAN = dt.timedelta(days=1, hours=2, microseconds=3)
VALUES: dict[str, list[Any]] = {
    "string": ["", " ", "null", "None", "NaN", "[1]", '"', "a=b", "2026-10-25", "é", "true", None],
    "boolean": [True, False, None],
    "tinyint": [-128, 0, 1, None],
    "bigint": [-(1 << 63), 0, 1, (1 << 63) - 1, None],
    "float": [0.1, 1e38, float("nan"), float("inf"), float("-inf"), 1.0, None],
    "double": [0.1, -0.0, 5e-324, 1e308, float("nan"), float("inf"), float("-inf"), 1.0, None],
    "decimal(5,2)": [Decimal("0.00"), Decimal("-0.01"), Decimal("999.99"), Decimal("100.00"), None],
    "decimal(38,0)": [Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal("1" + "0" * 37), None],
    "decimal(38,38)": [Decimal("0." + "9" * 38), Decimal("1E-38"), Decimal(0), None],
    "date": [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None],
    "timestamp": [*MOMENTS, None],
    "timestamp_ntz": [*(moment for moment in MOMENTS if not moment.fold), None],
    "interval day to second": [SPAN, -SPAN, dt.timedelta(0), -dt.timedelta(microseconds=1), None],
    "binary": [b"", b"\xff\x00", b"null", None],
    "array<timestamp>": [[], [None], [FIRST], [SECOND], [FIRST, SECOND], None],
    "array<double>": [[float("nan")], [1.0], [None], None],
    "map<timestamp,string>": [{}, {FIRST: "a"}, {SECOND: "a"}, {SECOND: None}, None],
    "map<int,binary>": [{1: b"a"}, {-1: b"a"}, {1: None, 2: b""}, None],
    "map<decimal(3,1),date>": [{Decimal("1.5"): dt.date(1, 1, 1)}, None],
    "struct<`a.b`: timestamp, t: string>": [{"a.b": FIRST, "t": None}, {"a.b": SECOND, "t": None}, None],
    "struct<s: struct<n: int, at: timestamp_ntz>>": [{"s": {"n": 1, "at": FIRST}}, {"s": None}, None],
    "void": [None],
}
NAMES = ("c", "a.b", "a=b", "`", "a`=", " c ", "'", '"', "all", "é")


def node(main: pa.Schema, **side_outputs: pa.Schema) -> NodeSpec:
    sides = {OutputName(name): schema for name, schema in side_outputs.items()}
    return NodeSpec(number=2, name="see", input=main, zone=ZONE, output=main, side_outputs=sides)


def schema_of(said: str, name: str = "c") -> pa.Schema:
    return pa.schema([pa.field(name, arrow_schema(f"x {said}").field(0).type)])


def rows_of(schema: pa.Schema, values: list[Any], output: OutputName = MAIN) -> list[ShownRow]:
    """As the readers of an operator get what its function gives."""
    batch = RowEncoder(schema, ZONE).batch([(each,) for each in values])
    decoder = RowDecoder(schema, ZONE, instants=True)
    rows = decoder.rows(decoder.columns(batch))
    return [ShownRow(output, output, "", dict(zip(schema.names, row, strict=True))) for row in rows]


def found(said: str, spec: NodeSpec, rows: list[ShownRow]) -> list[int]:
    condition = Condition.parse(said)
    wanted = condition.wanted_of(spec)
    return [at for at, row in enumerate(rows) if condition.is_met_by(row, wanted)]


@pytest.mark.parametrize("said", VALUES)
def test_what_is_shown_of_a_row_finds_it_and_no_other(said: str) -> None:
    schema = schema_of(said)
    rows = rows_of(schema, VALUES[said])
    for at, row in enumerate(rows):
        shown = as_json(row.columns["c"])
        texts = [json.dumps(shown), json.dumps(shown, ensure_ascii=False, indent=1)]
        if said == "string" and shown is None:
            texts = ["[null]"]
        elif isinstance(shown, str) and (said != "string" or shown[:1] not in ('"', "[")):
            texts.append(shown)
        for text in texts:
            assert found(f"c={text}", node(schema), rows) == [at], text


@pytest.mark.parametrize("name", NAMES)
def test_a_column_whatever_its_name(name: str) -> None:
    schema = schema_of("string", name)
    rows = rows_of(schema, ["a=b", "`", " "])
    quoted = name.replace("`", "``")
    assert found(f"`{quoted}`=a=b", node(schema), rows) == [0]
    with pytest.raises(ConfigurationError, match="has no column") as refused:
        found("no=1", node(schema), rows)
    assert refused.value.hint is not None
    assert found(f"{refused.value.hint.removeprefix('It has ')}= ", node(schema), rows) == [2]


@pytest.mark.parametrize(
    ("said", "text", "at"),
    [
        ("timestamp", "2026-10-25T02:30:00", [4]),
        ("timestamp", "2026-10-25T02:30:00+01:00", [5]),
        ("timestamp", "2026-10-24T20:30:00-05:00", [5]),
        ("timestamp", "2026-10-25T01:30:00Z", [5]),
        ("timestamp", "null", [8]),
        ("double", "0", [1]),
        ("double", "nan", [4]),
        ("double", "+Infinity", [5]),
        ("double", "1", [7]),
        ("float", "0.1", [0]),
        ("decimal(5,2)", "-0", [0]),
        ("decimal(5,2)", "1e2", [3]),
        ("decimal(5,2)", "100.0000", [3]),
        ("interval day to second", "1 02:00:00.000003", [0]),
        ("boolean", "TRUE", [0]),
        ("binary", "FF00", [1]),
        ("string", "[null]", [11]),
        ("string", '"[1]"', [5]),
        ("string", "None", [3]),
    ],
)
def test_a_value_by_its_type(said: str, text: str, at: list[int]) -> None:
    schema = schema_of(said)
    assert found(f"c={text}", node(schema), rows_of(schema, VALUES[said])) == at


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("bigint", "true"),
        ("bigint", "None"),
        ("bigint", "1.0"),
        ("bigint", "[1, 2]"),
        ("boolean", "1"),
        ("decimal(5,2)", "true"),
        ("decimal(5,2)", "NaN"),
        ("decimal(5,2)", "0.001"),
        ("decimal(5,2)", "1000"),
        ("decimal(5,2)", "1e-999999999"),
        ("decimal(5,2)", "1e99999999999999999999"),
        ("decimal(38,38)", "1"),
        ("decimal(1,0)", "1.5"),
        ("float", "1e39"),
        ("double", "1e309"),
        ("double", "yes"),
        ("timestamp", "2026-03-29T02:30:00"),
        ("timestamp", "0001-01-01T00:00:00+14:00"),
        ("timestamp_ntz", "2026-03-29T02:30:00Z"),
        ("date", "2026-02-30"),
        ("interval day to second", "1 day"),
        ("interval day to second", "INTERVAL '999999999 99:00:00' DAY TO SECOND"),
        ("binary", "abc"),
        ("array<int>", "1"),
        ("array<int>", "[1.5]"),
        ("map<int,date>", '{"a": "2026-01-01"}'),
        ("map<int,date>", "[]"),
        ("struct<n: int, t: string>", '{"n": 1}'),
        ("struct<n: int, t: string>", '{"n": 1, "t": 2}'),
        ("array<struct<m: map<timestamp,interval day to second>>>", "{"),
        ("void", "1"),
        ("string", '["a", "b"]'),
    ],
)
def test_what_is_no_value_of_a_column_is_refused_with_an_example(said: str, text: str) -> None:
    for name in ("c", "a=b"):
        schema = schema_of(said, name)
        with pytest.raises(ConfigurationError, match="is no value of the column") as refused:
            found(f"`{name}`={text}", node(schema), [])
        assert refused.value.hint is not None
        (example,) = shlex.split(refused.value.hint.removeprefix("As in "))
        assert found(example, node(schema), []) == []


def test_outputs_with_a_column_of_the_same_name_have_their_own_types() -> None:
    main, late = schema_of("bigint"), schema_of("string")
    rows = [*rows_of(main, [1, None]), *rows_of(late, ["1", "true", None], LATE)]
    rows += rows_of(schema_of("bigint", "other"), [None], OutputName("others"))
    spec = node(main, late=late, others=schema_of("bigint", "other"))
    assert found("c=1", spec, rows) == [0, 2]
    assert found("c=true", spec, rows) == [3]
    assert found("c=[null]", spec, rows) == [1, 4], "what has no such column has no null in it"
    spec = node(main, late=schema_of("date"))
    with pytest.raises(ConfigurationError, match=r"of a long, .*; of a date, ") as refused:
        found("c=yesterday", spec, [])
    assert refused.value.hint is not None
    first, second = refused.value.hint.removeprefix("As in ").split(" or ")
    for example in (first, second):
        found(example, spec, [])


def test_types_are_said_as_users_know_them() -> None:
    said = "struct<a: array<decimal(5,2)>, b: map<boolean,interval day to second>, c: void, d: timestamp_ntz>"
    with pytest.raises(ConfigurationError) as refused:
        found("c=1", node(schema_of(said)), [])
    known = "struct<a:array<decimal(5,2)>,b:map<boolean,interval day to second>,c:void,d:timestamp_ntz>"
    assert f"of a {known}, " in refused.value.message


def test_what_is_no_condition_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'k' is no condition\. Say column=value"):
        Condition.parse("k")
    assert Condition.parse("column=value") == Condition("column", "value")


def test_an_instant_is_shown_alike_wherever_it_is_read_and_what_is_none_without_a_zone() -> None:
    kind = arrow_schema("x struct<at: timestamp, wall: timestamp_ntz, all: map<timestamp,array<timestamp>>>")
    decoder = RowDecoder(kind, ZONE)
    value = {"at": SECOND, "wall": FIRST, "all": {FIRST: [SECOND, None]}}
    ((given,),) = decoder.rows(decoder.columns(RowEncoder(kind, ZONE).batch([(value,)])))
    shown = with_instants(given, kind.field(0).type, zone_of(ZONE))
    assert as_json(shown) == {
        "at": "2026-10-25T01:30:00.000000Z",
        "wall": "2026-10-25T02:30:00.000000",
        "all": {"2026-10-25T00:30:00.000000Z": ["2026-10-25T01:30:00.000000Z", None]},
    }
    assert as_text(shown) == (
        "Row(at=2026-10-25T01:30:00.000000Z, wall=datetime.datetime(2026, 10, 25, 2, 30), "
        "all={2026-10-25T00:30:00.000000Z: [2026-10-25T01:30:00.000000Z, None]})"
    )


def test_values_without_a_type_stay_apart_in_json() -> None:
    zone = zone_of(ZONE)
    assert as_json([FIRST, SECOND], zone) == [
        "2026-10-25T02:30:00.000000",
        "2026-10-25T02:30:00.000000+01:00",
    ]
    assert as_json({FIRST: 1, dt.date(2026, 1, 2): 2, b"a": 3, 1: 4}) == {
        "2026-10-25T02:30:00.000000": 1,
        "2026-01-02": 2,
        "61": 3,
        "1": 4,
    }
    assert as_json([float("nan"), float("inf"), -float("inf")]) == ["NaN", "Infinity", "-Infinity"]
    assert as_json({dt.time(1, 2), SPAN}) and as_json(SPAN) == "INTERVAL '1 02:00:00.000003' DAY TO SECOND"

"""Rows, types and keys: what goes in comes out, and what does not fit is refused by name."""

from __future__ import annotations

import re
import string
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from clonos.errors import ConfigurationError, InputError, QueryDefinitionError, StateError
from clonos.operators.frames import FrameMaker, FrameReader
from clonos.operators.rows import Row, RowDecoder, RowEncoder, instant, local, make_row, row_type, zone_of
from clonos.operators.types import arrow_schema
from clonos.operators.values import Codec
from clonos.values.key_codec import pack, unpack

ZONES = ("UTC", "Europe/Berlin", "-03:30", "America/New_York")
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))
SCALARS: dict[pa.DataType, Any] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.dates(),
    pa.timestamp("us"): MOMENTS.map(lambda m: m.replace(fold=0)),
    pa.timestamp("us", tz="UTC"): MOMENTS.map(lambda m: local(instant(m, UTC), UTC)),
    pa.decimal128(12, 3): st.decimals(-(10**8), 10**8, places=3).map(lambda d: d.quantize(Decimal("0.001"))),
    pa.duration("us"): st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
}


def optional(kind: pa.DataType, values: Any) -> Any:
    return st.tuples(st.just(kind), st.just(st.none() | values))


def nested(children: Any) -> Any:
    def of_list(child: Any) -> Any:
        return optional(pa.list_(child[0]), st.lists(child[1], max_size=3))

    def of_map(child: Any) -> Any:
        return optional(
            pa.map_(pa.string(), child[0]), st.dictionaries(st.text("ab", max_size=2), child[1], max_size=3)
        )

    def of_struct(parts: Any) -> Any:
        names = tuple(string.ascii_lowercase[: len(parts)])
        kind = pa.struct(list(zip(names, [p[0] for p in parts])))
        return optional(kind, st.tuples(*[p[1] for p in parts]).map(lambda v: make_row(names, v)))

    return (
        children.flatmap(of_list)
        | children.flatmap(of_map)
        | st.lists(children, min_size=1, max_size=3).flatmap(of_struct)
    )


TYPED = st.recursive(
    st.sampled_from(list(SCALARS)).flatmap(lambda kind: optional(kind, SCALARS[kind])), nested, max_leaves=4
)


@st.composite
def tables(draw: Any) -> tuple[pa.Schema, list[Any]]:
    columns = draw(st.lists(TYPED, min_size=1, max_size=4))
    schema = pa.schema([(f"c{i}", kind) for i, (kind, _) in enumerate(columns)])
    return schema, draw(st.lists(st.tuples(*[values for _, values in columns]), max_size=4))


@settings(max_examples=150, deadline=None)
@given(tables())
def test_rows_survive_arrow(table: tuple[pa.Schema, list[Any]]) -> None:
    schema, rows = table
    batch = RowEncoder(schema).batch(rows)
    assert batch.schema == schema
    keys, back = RowDecoder(schema, key=["c0"]).decode(batch)
    assert back == rows
    assert [[str(v) for v in row] for row in back] == [[str(v) for v in row] for row in rows]
    assert keys == [(row[0],) for row in rows]
    codec = Codec(schema, UTC, "state")
    assert [codec.load(codec.store(row)) for row in rows] == rows


@settings(max_examples=150, deadline=None)
@given(st.integers(-(2**51), 2**51), st.sampled_from(ZONES))
def test_instants_survive_every_zone(moment: int, zone: str) -> None:
    at = local(moment, zone_of(zone))
    assert at.tzinfo is None
    assert instant(at, zone_of(zone)) == moment
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), ("l", pa.list_(pa.timestamp("us", "UTC")))])
    batch = RowEncoder(schema, zone).batch([(at, [at, None])])
    assert batch.column(0).cast(pa.int64()).to_pylist() == [moment]
    ((back, inner),) = RowDecoder(schema, zone).decode(batch)[1]
    assert (back, inner) == (at, [at, None])
    assert (back.fold, inner[0].fold) == (at.fold, at.fold)


def test_the_repeated_hour_keeps_its_two_instants() -> None:
    zone = zone_of("Europe/Berlin")
    first = int(datetime(2024, 10, 27, 0, 30, tzinfo=UTC).timestamp() * 1e6)
    for moment in (first, first + 3_600_000_000):
        assert instant(local(moment, zone), zone) == moment


@pytest.mark.parametrize("tz", ["Mars/Olympus", "+xx", "", "+19", "+01:60", "+053", "GMT+18:01"])
def test_unknown_zones(tz: str) -> None:
    with pytest.raises(ConfigurationError):
        zone_of(tz)


def test_zones_as_spark_writes_them() -> None:
    moment = datetime(2024, 1, 1, 12)
    for tz, hours in (("GMT+2", 2), ("UTC-03:00", -3), ("+01", 1), ("Z", 0), ("Etc/UTC", 0)):
        assert instant(moment, zone_of(tz)) == instant(moment, UTC) - hours * 3_600_000_000
    assert local(instant(moment, None), None) == moment


@pytest.mark.parametrize(
    ("tz", "seconds"),
    [
        ("+0530", 19_800), ("GMT+0530", 19_800), ("+0015", 900), ("-0015", -900), ("UT+1", 3600), ("+1:3", 3780),
        ("-01:30:15", -5415), ("+013015", 5415), ("+18:00", 64_800), ("utc+2", 7200),
    ],
)  # fmt: skip
def test_offsets_as_java_reads_them(tz: str, seconds: int) -> None:
    moment = datetime(2024, 1, 1, 12)
    assert instant(moment, zone_of(tz)) == instant(moment, UTC) - seconds * 1_000_000


def test_text_that_is_not_utf_8_is_refused_by_its_column() -> None:
    text = pa.array([b"well", b"\xff"]).view(pa.string())
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), text], names=["n", "name"])
    with pytest.raises(InputError, match=r"column 'name' holds text that is not UTF-8.*make_valid_utf8"):
        RowDecoder(batch.schema).decode(batch)


def test_a_row_is_a_tuple_with_names() -> None:
    row = make_row(("a", "b c", "count", "asDict", "_x"), (1, 2, 3, 4, 5))
    assert (row.a, row["b c"], row.count, row["asDict"], row._x, row[0], row[1:3]) == (
        1,
        2,
        3,
        4,
        5,
        1,
        (2, 3),
    )
    assert isinstance(row, tuple)
    assert row == (1, 2, 3, 4, 5)
    assert "a" in row
    assert 1 not in row
    assert list(row._asdict()) == ["a", "b c", "count", "asDict", "_x"]
    assert row._replace(a=9)[0] == 9
    assert repr(make_row(("a",), ("x",))) == "Row(a='x')"
    assert make_row(("a",), ([{"k": make_row(("b",), (1,))}],)).asDict(True) == {"a": [{"k": {"b": 1}}]}
    with pytest.raises(KeyError, match="it has a, b c"):
        row["zzz"]
    with pytest.raises(ValueError, match="zzz"):
        row._replace(zzz=1)
    with pytest.raises(InputError):
        make_row(("a",), ())
    assert row_type(("a",)) is row_type(("a",))
    match row_type(("x", "y"))((1, 2)):
        case Row():
            pass


SCHEMA = pa.schema(
    [
        pa.field("n", pa.int32()),
        pa.field("s", pa.string(), nullable=False),
        pa.field("t", pa.timestamp("us", "UTC")),
        pa.field("w", pa.timestamp("us")),
        pa.field("m", pa.map_(pa.string(), pa.int64())),
        pa.field("l", pa.list_(pa.timestamp("us", "UTC"))),
        pa.field("r", pa.struct([("a", pa.int64())])),
        pa.field("d", pa.decimal128(4, 2)),
    ]
)
GOOD = (1, "s", datetime(2024, 1, 1), datetime(2024, 1, 1), {"a": 1}, [None], (1,), Decimal("1.5"))


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("n", "x", r"column 'n' \(int\): row 1 has 'x' \(str\)"),
        ("n", 2**31, "row 1 has 2147483648"),
        ("n", True, "row 1 has True"),
        ("s", None, "NOT NULL, but row 1"),
        ("s", 5, "row 1 has 5"),
        ("t", "2024", "a datetime is due"),
        ("t", date(2024, 1, 1), "a datetime is due, not date"),
        ("w", datetime(2024, 1, 1, tzinfo=UTC), "naive"),
        ("w", 5, "a datetime is due"),
        ("m", [("a", 1, 2)], "a dict is due"),
        ("m", {"a": "x"}, r"column 'm'"),
        ("l", {"a": 1}, "a list is due"),
        ("l", ["x"], "a datetime is due"),
        ("r", {"b": 1}, "unknown field 'b'"),
        ("r", (1, 2), "2 values"),
        ("r", 5, "int is not a row"),
        ("d", Decimal("1.555"), "column 'd'"),
        ("d", 1.5, "column 'd'"),
    ],
)
def test_outputs_that_do_not_fit_are_named(column: str, value: Any, says: str) -> None:
    bad = list(GOOD)
    bad[SCHEMA.get_field_index(column)] = value
    with pytest.raises(InputError, match=says) as caught:
        RowEncoder(SCHEMA, operator="op").batch([GOOD, tuple(bad), GOOD])
    assert "op" in str(caught.value)
    assert column in str(caught.value)


def test_rows_of_another_width_and_batches_of_another_schema() -> None:
    with pytest.raises(InputError, match="row 1 has 2 values where the schema has 1"):
        RowEncoder(pa.schema([("a", pa.int32())])).batch([(1,), (1, 2)])
    with pytest.raises(InputError, match="2 columns where 1 are due"):
        RowDecoder(pa.schema([("a", pa.int32())])).decode(pa.record_batch({"a": [1], "b": [1]}))
    with pytest.raises(InputError, match="key column 'z'"):
        RowDecoder(SCHEMA, key=["z"])


def test_hidden_columns_are_skipped_and_empty_things_work() -> None:
    decoder = RowDecoder(pa.schema([("a", pa.int64())]))
    assert decoder.decode(pa.record_batch({"h": [b"", b""], "a": [1, 2]}), first=1) == (
        [(), ()],
        [(1,), (2,)],
    )
    assert RowEncoder(SCHEMA).batch([]).num_rows == 0
    empty = pa.schema([])
    assert RowEncoder(empty).batch([(), ()]).num_rows == 2
    assert RowDecoder(empty).rows([], 2) == [(), ()]


@given(
    st.lists(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.text(st.characters(exclude_categories=["Cs"]))
        | st.binary()
        | st.dates()
        | st.datetimes()
        | st.decimals(allow_nan=False, places=2)
        | st.timedeltas()
    ).map(tuple)
)
def test_keys_survive(key: tuple[Any, ...]) -> None:
    assert unpack(pack(key)) == key
    assert [type(v) for v in unpack(pack(key))] == [type(v) for v in key]


def test_keys_that_cannot_be() -> None:
    with pytest.raises(InputError, match="object"):
        pack((object(),))
    with pytest.raises(StateError, match="cannot be read"):
        unpack(b"\xc1")


FIELDS = StructType(
    [
        StructField("bool", BooleanType()),
        StructField("i8", ByteType(), False),
        StructField("i16", ShortType()),
        StructField("i32", IntegerType()),
        StructField("i64", LongType()),
        StructField("f32", FloatType()),
        StructField("f64", DoubleType()),
        StructField("s", StringType()),
        StructField("b", BinaryType()),
        StructField("d", DateType()),
        StructField("t", TimestampType()),
        StructField("ntz", TimestampNTZType()),
        StructField("dec", DecimalType(12, 3)),
        StructField("iv", DayTimeIntervalType()),
        StructField("nil", NullType()),
        StructField("l", ArrayType(StructType([StructField("x y", IntegerType())]))),
        StructField("m", MapType(StringType(), ArrayType(LongType()))),
    ]
)
DDL = (
    "bool BOOLEAN, i8: TINYINT NOT NULL, i16 SMALLINT COMMENT 'it\\'s short', i32 INT, i64 BIGINT, f32 FLOAT, "
    "f64 DOUBLE, s STRING, b BINARY, d DATE, t TIMESTAMP, ntz TIMESTAMP_NTZ, dec DECIMAL(12, 3), "
    "iv INTERVAL DAY TO SECOND, nil VOID, l ARRAY<STRUCT<`x y`: INT>>, m MAP<STRING, ARRAY<BIGINT>>"
)


def test_spark_schemas_become_the_arrow_schemas_that_spark_makes() -> None:
    assert arrow_schema(FIELDS) == to_arrow_schema(FIELDS, timezone="UTC")
    assert arrow_schema(DDL) == arrow_schema(FIELDS)
    assert arrow_schema(arrow_schema(DDL)) == arrow_schema(DDL)
    assert arrow_schema(pa.struct([("a", pa.int8())])).names == ["a"]
    assert arrow_schema(IntegerType()).names == ["value"]
    assert arrow_schema("INT").names == ["value"]
    nothing = arrow_schema(StructType([StructField("a", ArrayType(NullType(), containsNull=False))]))
    assert pa.types.is_null(nothing.field("a").type.value_type)
    assert arrow_schema("STRUCT<a: INT, b: STRUCT<>>").names == ["a", "b"]
    assert arrow_schema("d DEC(3), e numeric").types == [pa.decimal128(3, 0), pa.decimal128(10, 0)]


@pytest.mark.parametrize("kind", ["CHAR(3)", "varchar(5)"])
def test_text_of_a_length_is_refused(kind: str) -> None:
    """Nothing would pad it, or check how long it is."""
    of = CharType(3) if kind == "CHAR(3)" else VarcharType(5)
    for spec in (
        f"c {kind}",
        f"a array<{kind}>",
        f"s struct<c: {kind}>",
        f"m map<string, {kind}>",
        StructType([StructField("c", of)]),
        StructType([StructField("a", ArrayType(of))]),
    ):
        with pytest.raises(
            QueryDefinitionError, match=rf"(?i){re.escape(kind)}' is not supported.*Use string"
        ):
            arrow_schema(spec)
    assert arrow_schema("c string").types == [pa.string()]


@pytest.mark.parametrize(
    "spec",
    [
        "a",
        "a WHAT",
        "a INT,",
        "a INT b INT",
        "a ARRAY<INT",
        "a MAP<INT>",
        "a DECIMAL(40,2)",
        "a INTERVAL YEAR",
        "",
        5,
    ],
)
def test_schemas_that_cannot_be_read(spec: Any) -> None:
    with pytest.raises(QueryDefinitionError):
        arrow_schema(spec)


@settings(max_examples=60, deadline=None)
@given(tables())
def test_frames_give_the_rows_back(table: tuple[pa.Schema, list[Any]]) -> None:
    schema, rows = table
    flat = [f for f in schema if not pa.types.is_nested(f.type) and f.type not in (pa.int64(), pa.bool_())]
    if not flat or not rows:
        return
    chosen = [schema.get_field_index(f.name) for f in flat]
    schema, rows = pa.schema(flat), [tuple(row[i] for i in chosen) for row in rows]
    for zone in ("UTC", "-03:30"):
        frames = list(FrameMaker(schema, zone).split([rows, rows[:1]]))
        reader = FrameReader(schema, zone, "op")
        assert reader.rows(frames[0]) == rows
        assert reader.rows(frames[1]) == rows[:1]


def test_nested_columns_in_frames() -> None:
    schema = arrow_schema("l ARRAY<INT>, m MAP<STRING, INT>, r STRUCT<a: INT>")
    rows = [([1, 2], {"k": 1}, make_row(("a",), (1,))), (None, None, None)]
    (frame,) = FrameMaker(schema, "UTC").split([rows])
    assert frame.m[0] == {"k": 1}
    assert frame.r[0] == {"a": 1}
    assert list(frame.l[0]) == [1, 2]
    assert FrameReader(schema, "UTC", "op").rows(frame) == rows


def test_times_that_nanoseconds_cannot_hold() -> None:
    schema = arrow_schema("t TIMESTAMP, n TIMESTAMP_NTZ")
    rows = [(datetime(3000, 1, 1), datetime(3000, 1, 1)), (None, None)]
    (frame,) = FrameMaker(schema, "UTC").split([rows])
    assert FrameReader(schema, "UTC", "op").rows(frame) == rows
    odd = pd.DataFrame({"t": [datetime(2024, 1, 1), pd.NaT], "n": pd.Series([None, None], dtype="object")})
    assert FrameReader(schema, "-03:00", "op").rows(odd) == [(datetime(2024, 1, 1), None), (None, None)]
    beyond = pa.array([2**60], pa.timestamp("us", "UTC"))
    with pytest.raises(InputError, match="beyond the years"):
        RowDecoder(arrow_schema("t TIMESTAMP")).decode(pa.record_batch([beyond], ["t"]))
    for zone in ("Europe/Berlin", None):
        assert FrameReader(schema, zone, "op").rows(odd)[0][0] == datetime(2024, 1, 1)


@pytest.mark.parametrize(
    ("spec", "value"), [("d DATE", pd.NaT), ("d ARRAY<DATE>", [pd.NaT]), ("d STRUCT<x: DATE>", (pd.NaT,))]
)
def test_what_is_missing_for_pandas_is_no_date(spec: str, value: Any) -> None:
    """Arrow takes it for a day of the year 1."""
    encoder = RowEncoder(arrow_schema(spec))
    with pytest.raises(InputError, match="a date is due, not NaT"):
        encoder.arrays([(value,)])
    assert encoder.arrays([(None,)])[0].to_pylist() == [None]


@pytest.mark.parametrize(
    ("spec", "value", "says"),
    [
        ("a BOOLEAN", (1,), "a boolean is due"),
        ("a DOUBLE", (True,), "a number is due"),
        ("a STRING", (b"x",), "a string is due"),
        ("a BINARY", ("x",), "bytes is due"),
        ("a DATE", ("2024-01-01",), "a date is due"),
        ("a TIMESTAMP", (5,), "a datetime is due"),
        ("a TIMESTAMP_NTZ", (datetime(2024, 1, 1, tzinfo=UTC),), "a naive datetime is due"),
        ("a INTERVAL DAY", (5,), "a timedelta is due"),
        ("a VOID", (5,), "no value is due"),
        ("a ARRAY<INT>", ({1: 1},), "a list is due"),
        ("a MAP<STRING, INT>", ([],), "a dict is due"),
        ("a DECIMAL(4,2)", (Decimal(100),), "beyond decimal"),
        ("a DECIMAL(4,2)", (Decimal("NaN"),), "field 'a'"),
    ],
)
def test_values_that_do_not_fit_typed_state(spec: str, value: Any, says: str) -> None:
    with pytest.raises(StateError, match=says):
        Codec(arrow_schema(spec), UTC, "state").store(value)


def test_values_that_are_made_to_fit_typed_state() -> None:
    store = Codec(arrow_schema("f DOUBLE, d DECIMAL(4,2), t TIMESTAMP, i INTERVAL DAY"), UTC, "state").store
    moment = pd.Timestamp("2024-01-01T12:00", tz="+02:00")
    assert store((1, 2, moment, pd.Timedelta(hours=1))) == (
        1.0,
        Decimal("2.00"),
        datetime(2024, 1, 1, 10),
        timedelta(hours=1),
    )
    assert store({"f": 1.5}) == (1.5, None, None, None)
    assert Codec(arrow_schema("n INT"), UTC, "state").store(5) == (5,)


def test_a_struct_with_two_fields_of_one_name_is_refused() -> None:
    twice = StructType([StructField("a", LongType()), StructField("a", LongType())])
    with pytest.raises(QueryDefinitionError, match="a struct has two fields 'a'"):
        arrow_schema(StructType([StructField("v", twice)]))

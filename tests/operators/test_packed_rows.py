"""Few rows as bytes: the reader cannot tell them from rows that came as Arrow arrays."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from clonos.errors import InputError
from clonos.operators.packed_rows import FEW, RowPacker, RowUnpacker, joined
from clonos.operators.rows import RowDecoder, RowEncoder, row_type
from clonos.operators.types import arrow_schema
from clonos.protocol.ids import Epoch, InstanceId, LogOffset, NodeId, Origin, OutputNumber
from clonos.protocol.ports import Emit
from clonos.protocol.side_output import MAIN
from clonos.wire.block import Encoding, parse_block
from clonos.wire.messages import Bundle
from clonos_standby.replica.batches import BundleReader, OutputWriter

ZONE = "Europe/Berlin"
SCHEMA = arrow_schema(
    "s string, b boolean, i tinyint, j int, l bigint, d double, x binary, t timestamp, n timestamp_ntz, y date"
)
MOMENTS = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1))
VALUES: list[st.SearchStrategy[Any]] = [
    st.text(st.characters(codec="utf-8"), max_size=6),
    st.booleans(),
    st.integers(-128, 127),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.binary(max_size=6),
    MOMENTS | st.sampled_from([dt.datetime(2026, 10, 25, 2, 30, fold=fold) for fold in (0, 1)]),
    MOMENTS,
    st.dates(),
]
ROWS = st.lists(st.tuples(*[st.none() | strategy for strategy in VALUES]), max_size=5)
ROW = ("é", True, -3, 70_000, -(2**63), -0.0, b"\xff\x00", dt.datetime(2026, 10, 25, 2, 30, fold=1))
ROW = (*ROW, dt.datetime(2026, 1, 2, 3, 4, 5, 6), dt.date(1969, 12, 31))


def writer(schema: pa.Schema = SCHEMA) -> OutputWriter:
    return OutputWriter({MAIN: schema}, ZONE, "op", Origin.of(NodeId(2), InstanceId(0)))


def sent(rows: list[tuple[Any, ...]], schema: pa.Schema = SCHEMA, instances: int = 1) -> list[memoryview]:
    """The blocks of rows that go to the instances in turn."""
    writing = writer(schema)
    destinations = [[number % instances for number in range(len(rows))]]
    end = OutputNumber(len(rows))
    emit = Emit(
        OutputNumber(1), len(rows), writing.encode(rows), destinations, {}, LogOffset(0), b"", end, {}
    )
    return [memoryview(block) for _, block in writing.blocks(emit, Epoch(1))]


def by_arrow(rows: list[tuple[Any, ...]], *, instants: bool = False) -> list[tuple[Any, ...]]:
    decoder = RowDecoder(SCHEMA, ZONE, instants=instants)
    return decoder.rows(decoder.columns(RowEncoder(SCHEMA, ZONE).batch(rows)), len(rows))


@settings(max_examples=200, deadline=None)
@given(rows=ROWS, instants=st.booleans())
def test_rows_come_as_through_arrow(rows: list[tuple[Any, ...]], instants: bool) -> None:
    packer, row_class = RowPacker(SCHEMA, ZONE), row_type(tuple(SCHEMA.names))
    packed = packer.pack(rows)
    assert packed is not None
    assert packed == packer.pack_arrays(RowEncoder(SCHEMA, ZONE).arrays(rows)), "one form for one content"
    read = RowUnpacker(SCHEMA, ZONE, row_class, instants=instants).rows(memoryview(joined(packed)))
    through = by_arrow(rows, instants=instants)
    assert repr(read) == repr(through)  # NaN, -0.0, fold
    assert [[type(value) for value in row] for row in read] == [
        [type(value) for value in row] for row in through
    ]
    assert {type(row) for row in read} <= {row_class}


class Text(str):
    """Of a library."""


FORMS: list[tuple[str, list[Any]]] = [
    ("bigint", [1, np.int8(1), np.True_, 1.0, Decimal(1)]),
    ("int", [7, np.int64(7)]),
    ("double", [2.0, 2, np.float32(2)]),
    ("boolean", [True, np.True_]),
    ("string", ["a", Text("a"), np.str_("a")]),
    ("binary", [b"ab", bytearray(b"ab"), memoryview(b"ab")]),
    ("date", [dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 5)]),
    (
        "timestamp",
        [
            dt.datetime(2026, 7, 1, 12),
            dt.datetime(2026, 7, 1, 10, tzinfo=dt.UTC),
            dt.datetime(2026, 7, 1, 12, tzinfo=ZoneInfo(ZONE)),
        ],
    ),
]


@pytest.mark.parametrize(("kind", "values"), FORMS)
def test_the_forms_of_a_value_are_sent_alike(kind: str, values: list[Any]) -> None:
    schema = arrow_schema(f"v {kind}")
    assert len({bytes(sent([(value,)], schema)[0]) for value in values}) == 1
    assert len({writer(schema).encode([(value,)]).digest for value in values}) == 1


@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1, 3 * FEW])
@pytest.mark.parametrize("instances", [1, 3])
def test_blocks_are_packed_up_to_a_number_of_rows(count: int, instances: int) -> None:
    rows = [(*ROW[:4], number, *ROW[5:]) for number in range(count)]
    blocks = sent(rows, instances=instances)
    encodings = {parse_block(block).encoding for block in blocks}
    assert encodings == {Encoding.PACKED if count <= FEW else Encoding.ARROW}
    bundle = BundleReader(SCHEMA, ZONE).read(Bundle(1, count, tuple(blocks)), Epoch(1))
    assert sorted(bundle.rows, key=lambda row: row[4]) == rows
    assert sorted(zip(map(int, bundle.positions), bundle.rows, strict=True), key=lambda one: one[1][4]) == [
        (number + 1, row) for number, row in enumerate(rows)
    ]


def test_packed_rows_and_arrays_in_one_bundle() -> None:
    many = [(*ROW[:4], number, *ROW[5:]) for number in range(FEW + 5)]
    blocks = [*sent([ROW]), *sent(many), *sent([ROW, ROW])]
    bundle = BundleReader(SCHEMA, ZONE).read(Bundle(1, len(many) + 3, tuple(blocks)), Epoch(1))
    assert bundle.rows == [ROW, *many, ROW, ROW]


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("bigint", 2**63, "column 'v'"),
        ("tinyint", 128, "column 'v'"),
        ("string", "\ud800", "column 'v'"),
        ("timestamp_ntz", dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "a naive datetime is due"),
        ("string", 5, "column 'v'"),
    ],
)
def test_what_does_not_fit_is_refused_by_arrow(kind: str, value: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        writer(arrow_schema(f"v {kind}")).encode([(value,)])


def test_null_where_none_may_be() -> None:
    with pytest.raises(InputError, match="NOT NULL"):
        writer(pa.schema([pa.field("v", pa.int64(), nullable=False)])).encode([(None,)])


@pytest.mark.parametrize("kind", ["float", "decimal(9,2)", "array<int>", "struct<a:int>", "map<string,int>"])
def test_other_columns_go_as_arrays(kind: str) -> None:
    schema = arrow_schema(f"a int, v {kind}")
    assert parse_block(sent([(1, None)], schema)[0]).encoding is Encoding.ARROW
    with pytest.raises(InputError, match="does not fit the declared input schema"):
        RowUnpacker(schema, ZONE, row_type(("a", "v"))).rows(memoryview(b"\x90"))


def test_the_bytes() -> None:
    packed = RowPacker(SCHEMA, ZONE).pack([ROW])
    assert packed is not None
    assert joined(packed).hex() == (
        "919aa2c3a9c3fdce00011170d38000000000000000cb8000000000000000c402ff00cf00065ea026dc1600"
        "cf0006475ef64cf346ff"
    )


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_other_bytes_are_refused_or_are_rows(data: st.DataObject) -> None:
    packed = RowPacker(SCHEMA, ZONE).pack([ROW, ROW])
    assert packed is not None
    raw = bytearray(joined(packed))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    unpacker = RowUnpacker(SCHEMA, ZONE, row_type(tuple(SCHEMA.names)))
    try:
        rows = unpacker.rows(memoryview(bytes(raw)))
    except InputError:
        return
    assert all(len(row) == len(SCHEMA) for row in rows)

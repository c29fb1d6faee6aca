"""Destinations: a function of the key's value in its column's type, whatever its form and whatever came before."""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from clonos.errors import InputError
from clonos.operators.rows import RowDecoder, RowEncoder
from clonos.operators.types import key_kind
from clonos.protocol.destination import (
    NOWHERE,
    KeyColumn,
    KeyKind,
    Reader,
    Routing,
    conform,
    destination,
    key_text,
    route_by_key,
    route_to,
    route_to_one,
)
from clonos.protocol.side_output import OutputName, side_row_type

quick = settings(max_examples=60, deadline=None)
ZONE = ZoneInfo("America/New_York")
PARALLELISM = 1009
REPEATED = dt.datetime(2026, 11, 1, 1, 30)  # an hour that New York has twice
COLUMNS = {
    KeyKind.STRING: pa.string(),
    KeyKind.BOOLEAN: pa.bool_(),
    KeyKind.INTEGER: pa.int64(),
    KeyKind.DECIMAL: pa.decimal128(38, 0),
    KeyKind.DATE: pa.date32(),
    KeyKind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    KeyKind.BINARY: pa.binary(),
}


class Text(str):
    """A string with another text of its own."""

    def __str__(self) -> str:
        return "something else"


class Colour(str, enum.Enum):  # noqa: UP042 - a `StrEnum` has the text of its value
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Moment(dt.datetime):
    """What other libraries give instead of a datetime."""


FORMS: dict[KeyKind, list[Any]] = {
    KeyKind.STRING: [
        "a",
        Text("a"),
        Colour.RED,
        "red",
        np.str_("a"),
        b"a",
        bytearray(b"a"),
        "",
        "\x00N",
        "\x1f",
    ],
    KeyKind.BOOLEAN: [True, np.True_, False, np.False_],
    KeyKind.INTEGER: [1, np.int8(1), np.True_, Number.ONE, 1.0, Decimal("1.00"), 0, np.False_, -0.0, 2**62],
    KeyKind.DECIMAL: [Decimal(10), Decimal("10.0"), Decimal("1E+1"), 10, Decimal("-0"), Decimal("0.00"), 0],
    KeyKind.DATE: [dt.date(2026, 11, 1), dt.datetime(2026, 11, 1, 23), dt.datetime(2026, 11, 1, tzinfo=ZONE)],
    KeyKind.TIMESTAMP: [
        REPEATED,
        REPEATED.replace(fold=1),
        REPEATED.replace(tzinfo=ZONE),
        REPEATED.replace(tzinfo=ZONE, fold=1),
        dt.datetime(2026, 11, 1, 5, 30, tzinfo=dt.UTC),
        dt.datetime(2026, 11, 1, 6, 30, tzinfo=dt.timezone(dt.timedelta())),
        Moment(2026, 11, 1, 1, 30),
    ],
    KeyKind.BINARY: [b"a", bytearray(b"a"), memoryview(b"a"), "a", np.bytes_(b"a"), b""],
}
NOT_SENT: dict[KeyKind, list[Any]] = {KeyKind.INTEGER: [True, False]}
"""Forms that are refused when rows are encoded."""
ANY_FORM = st.sampled_from(list(FORMS)).flatmap(
    lambda kind: st.tuples(
        st.just(kind),
        st.lists(
            st.sampled_from([*FORMS[kind], *NOT_SENT.get(kind, ())]) | st.none(), min_size=1, max_size=8
        ),
    )
)


def as_received(kind: KeyKind, values: list[Any]) -> list[Any]:
    schema = pa.schema([pa.field("k", COLUMNS[kind])])
    decoder = RowDecoder(schema, ZONE.key)
    batch = RowEncoder(schema, ZONE.key).batch([(value,) for value in values])
    return [row[0] for row in decoder.rows(decoder.columns(batch))]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (("a",), "a"),
        (("",), ""),
        (("é\u20ac",), "é\u20ac"),
        ((None,), "\x00N"),
        ((None, "N"), "\x00N\x1fN"),
        ((True, False), "true\x1ffalse"),
        ((-7, 2**63 - 1), "-7\x1f9223372036854775807"),
        ((Decimal("1E+3"),), "1000"),
        ((Decimal("10.0"),), "10"),
        ((Decimal("-0.00"),), "0"),
        ((dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)), "0\x1f-1\x1f19782"),
        ((dt.datetime(1970, 1, 1, 0, 0, 1, 5),), "1000005"),
        ((dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),), "-1"),
        ((dt.datetime(1970, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),), "0"),
        ((b"\x00\xff",), "00ff"),
        ((bytearray(b"\x01"), memoryview(b"\x02")), "01\x1f02"),
        ((Text("a"), Colour.RED), "a\x1fred"),
        ((), ""),
    ],
)
def test_canonical_text_of_a_key(key: tuple[Any, ...], text: str) -> None:
    assert key_text(key) == text


def test_naive_timestamps_are_meant_in_the_zone_of_the_session() -> None:
    noon = dt.datetime(2024, 7, 1, 12)
    berlin = key_text((noon,), ZoneInfo("Europe/Berlin"))
    assert int(key_text((noon,))) - int(berlin) == 2 * 3600 * 1_000_000


@pytest.mark.parametrize("key", [(1.0,), (object(),), ([1],), (Decimal("1.50"),), (Decimal("NaN"),)])
def test_key_without_canonical_text_is_refused(key: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="canonical"):
        key_text(key)


def test_a_value_that_its_column_cannot_hold_is_refused_with_both_named() -> None:
    with pytest.raises(InputError, match=r"'x' \(str\) is no key for a column of type integer"):
        conform(KeyKind.INTEGER, "x")


def test_destinations_are_as_they_were() -> None:
    """State lies where these say: a change would orphan it."""
    assert [destination((key,), 7) for key in ("a", "b", 17, None, True)] == [4, 4, 2, 4, 5]
    assert destination(("a", 1), 1000) == 929


@quick
@given(
    st.lists(st.tuples(st.text(max_size=3), st.integers(0, 5) | st.none()), max_size=30), st.integers(1, 9)
)
def test_routers_agree_with_destination(rows: list[tuple[str, int | None]], parallelism: int) -> None:
    kinds = (KeyKind.STRING, KeyKind.INTEGER)
    for columns in ([0], [1], [1, 0]):
        wanted = [destination([row[c] for c in columns], parallelism) for row in rows]
        route = route_by_key([KeyColumn(c, kinds[c]) for c in columns], parallelism, remembered=2)
        assert route(rows) == wanted
    assert route_to_one(rows) == [0] * len(rows)
    readers = [Reader(route_to_one, 1), Reader(route_to(2), 3)]
    assert Routing(readers)(rows) == [[0] * len(rows), [3] * len(rows)]
    assert route_to(3)(rows) == [3] * len(rows)


@quick
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=30))
def test_a_row_goes_to_the_readers_of_its_output_alone(given: list[tuple[bool, int]]) -> None:
    side = OutputName("side")
    rows = [side_row_type(side)((n,)) if is_side else (n,) for is_side, n in given]
    by_key = route_by_key([KeyColumn(0, KeyKind.INTEGER)], 3)
    readers = [Reader(by_key, 3), Reader(by_key, 3, side), Reader(route_to_one, 1)]
    mine = by_key([(n,) for _, n in given])
    assert Routing(readers, has_side_outputs=True)(rows) == [
        [NOWHERE if is_side else to for (is_side, _), to in zip(given, mine, strict=True)],
        [3 + to if is_side else NOWHERE for (is_side, _), to in zip(given, mine, strict=True)],
        [NOWHERE if is_side else 6 for is_side, _ in given],
    ]


@pytest.mark.parametrize("kind", FORMS, ids=lambda kind: kind.value)
def test_a_form_goes_where_its_receiver_would_have_it(kind: KeyKind) -> None:
    """What the function gave, and what the column made of it, have one destination."""
    assert key_kind(COLUMNS[kind]) is kind
    values = [None, *FORMS[kind]]
    received = as_received(kind, values)
    assert [conform(kind, v, ZONE) for v in values] == [conform(kind, v, ZONE) for v in received]
    assert [destination((v,), PARALLELISM, ZONE) for v in received] == [
        route_by_key([KeyColumn(0, kind)], PARALLELISM, zone=ZONE)([(v,)])[0] for v in values
    ]


@settings(max_examples=200, deadline=None)
@given(ANY_FORM)
def test_a_destination_does_not_depend_on_what_came_before(given: tuple[KeyKind, list[Any]]) -> None:
    """A warm cache, an empty one, and one that has just been emptied give the same."""
    kind, values = given
    rows = [(value,) for value in values]
    column = KeyColumn(0, kind)
    alone = [route_by_key([column], PARALLELISM, zone=ZONE)([row])[0] for row in rows]
    for remembered in (1, 2, 65_536):
        assert route_by_key([column], PARALLELISM, zone=ZONE, remembered=remembered)(rows) == alone
    both = [KeyColumn(0, kind), KeyColumn(0, kind)]
    pairs = [route_by_key(both, PARALLELISM, zone=ZONE)([row])[0] for row in rows]
    assert route_by_key(both, PARALLELISM, zone=ZONE)(rows) == pairs


def test_equal_instants_of_a_repeated_hour_are_two_keys() -> None:
    early, late = REPEATED, REPEATED.replace(fold=1)
    assert early == late
    route = route_by_key([KeyColumn(0, KeyKind.TIMESTAMP)], PARALLELISM, zone=ZONE)
    to_early, to_late = route([(early,), (late,)])
    assert to_early != to_late
    assert route([(late,), (early,)]) == [to_late, to_early]

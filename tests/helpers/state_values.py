"""Values that state takes, of every type, and whether two are the same to the bit."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters()),
    st.binary(),
    st.decimals(),
    st.dates(),
    st.datetimes(timezones=st.none() | st.just(dt.UTC) | st.just(ZoneInfo("Europe/Berlin"))),
    st.times(),
    st.timedeltas(),
    st.uuids(),
)
HASHABLE = st.one_of(
    st.integers(), st.text(), st.binary(), st.booleans(), st.tuples(st.integers(), st.text()), st.dates()
)
VALUES = st.recursive(
    SCALARS | st.binary().map(bytearray),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.sets(HASHABLE, max_size=4),
        st.frozensets(HASHABLE, max_size=4),
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal in type, order and bits (NaN is NaN, 0.0 is not -0.0)."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, Decimal):
        return one.as_tuple() == other.as_tuple()
    if isinstance(one, dt.datetime | dt.time):
        return (
            one.replace(tzinfo=None) == other.replace(tzinfo=None)
            and one.tzinfo == other.tzinfo
            and one.fold == other.fold
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    return bool(one == other)

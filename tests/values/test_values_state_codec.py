"""State values: what comes back is what went in, in type and to the bit; anything else is refused."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import enum
import math
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, strategies as st
from state_values import VALUES, same

from clonos.errors import StateError
from clonos.values.state_codec import DEEPEST, decode, encode, packer


@given(VALUES)
def test_every_supported_value_comes_back_as_it_was(value: Any) -> None:
    data = encode(value)
    back = decode(data)
    assert same(value, back)
    assert encode(back) == data
    assert encode(value, packer()) == data


@pytest.mark.parametrize(
    "value",
    [
        np.float64(0.1),
        np.float32(0.1),
        np.int8(-3),
        np.uint64(2**64 - 1),
        np.bool_(True),
        np.datetime64("2024-02-29T12:00:00.000001"),
        np.timedelta64(5, "ms"),
        np.complex64(1 + 2j),
    ],
)
def test_a_numpy_scalar_keeps_its_type(value: Any) -> None:
    back = decode(encode([value]))[0]
    assert type(back) is type(value)
    assert back.dtype == value.dtype
    assert back == value


def test_nan_and_the_sign_of_zero_survive() -> None:
    back = decode(encode([math.nan, -0.0, math.inf]))
    assert math.isnan(back[0])
    assert math.copysign(1, back[1]) == -1
    assert back[2] == math.inf


def test_equal_sets_have_equal_bytes_whatever_their_history() -> None:
    grown = set(range(1000)) - set(range(3, 1000))
    assert encode(grown) == encode({2, 0, 1})


def test_a_bytearray_stays_one_wherever_it_is() -> None:
    value = {"a": [bytearray(b"x"), b"y"], "b": (bytearray(), "Ä")}
    back = decode(encode(value))
    assert same(value, back)
    assert value["a"][0] == bytearray(b"x")


class _Colour(enum.IntEnum):
    RED = 1


class _Zone(dt.tzinfo):
    def utcoffset(self, _: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=1)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "object"),
        (collections.namedtuple("Point", "x y")(1, 2), "Point"),
        (_Colour.RED, "_Colour"),
        (collections.OrderedDict(a=1), "OrderedDict"),
        (collections.deque([1]), "deque"),
        (np.zeros(3), "ndarray"),
        (np.longdouble(1), "longdouble"),
        (np.str_("a"), "str"),
        (memoryview(b"abc"), "memoryview"),
        ({memoryview(b"abc"): 1}, "memoryview"),
        ((i for i in ()), "generator"),
        (dt.datetime(2024, 1, 1, tzinfo=_Zone()), "_Zone"),
        (dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1), "home")), "home"),
        ([{"deep": {"deeper": print}}], "builtin_function_or_method"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused_by_name(value: Any, named: str) -> None:
    with pytest.raises(StateError, match=named):
        encode(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(StateError, match="contains itself"):
        encode(loop)
    nested: Any = ()
    for _ in range(5000):
        nested = (nested,)
    with pytest.raises(StateError, match="nested too deeply"):
        encode(nested)


@pytest.mark.parametrize(
    "wrap", [lambda x: (x,), lambda x: frozenset([x]), lambda x: [(x,)], lambda x: {"a": (x,)}]
)
def test_tuples_and_sets_are_nested_no_deeper_than_a_process_survives(wrap: Any) -> None:
    value: Any = 0
    for _ in range(DEEPEST):
        value = wrap(value)
    with ThreadPoolExecutor(1) as pool:  # threads have the smallest stacks
        assert pool.submit(lambda: decode(encode(value))).result() == value
    for _ in range(2):  # and the next value is counted anew
        with pytest.raises(StateError, match="more than 64 tuples and sets in each other"):
            encode(wrap(value))
        assert decode(encode(value)) == value


def test_a_packer_is_usable_after_a_refused_value() -> None:
    pack = packer()
    with pytest.raises(StateError):
        encode([1, 2, object()], pack)
    assert decode(encode([1, 2], pack)) == [1, 2]


@given(st.binary(max_size=64))
def test_garbage_is_refused_or_is_a_value(data: bytes) -> None:
    with contextlib.suppress(StateError):
        decode(data)


def test_an_unknown_extension_and_an_unknown_zone_are_named() -> None:
    with pytest.raises(StateError, match="unknown extension type 99"):
        decode(b"\xd4\x63\x00")
    data = encode(dt.time(1, tzinfo=ZoneInfo("Europe/Berlin"))).replace(b"Europe/Berlin", b"Europe/Atlant")
    with pytest.raises(StateError, match="Europe/Atlant"):
        decode(data)


GOLDEN = [
    (None, "c0"),
    ({"n": 1, b"k": [True, 1.5]}, "82a16e01c4016b92c3cb3ff8000000000000"),
    ((1, "a"), "d6019201a161"),
    ({2, 1}, "c70302920102"),
    (frozenset({"x"}), "c7030391a178"),
    (2**64, "c70904000000000000000001"),
    (-(2**64), "c709040000000000000000ff"),
    (Decimal("1.50"), "d605312e3530"),
    (dt.date(2024, 2, 29), "c7060693cd07e8021d"),
    (dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC), "c70c0799cd07e8021d010203040000"),
    (dt.datetime(2024, 2, 29, fold=1), "c70c0799cd07e8021d0000000001c0"),
    (dt.time(1, 2, 3, 4), "c70708960102030400c0"),
    (dt.timedelta(days=1, microseconds=2), "d60993010002"),
    (uuid.UUID(int=1), "d80a00000000000000000000000000000001"),
    (np.float32(1.5), "c70b0b92a33c6634c4040000c03f"),
    (bytearray(b"ab"), "d50c6162"),
    (complex(1, 2), "d80d000000000000f03f0000000000000040"),
]


@pytest.mark.parametrize(("value", "expected"), GOLDEN)
def test_the_format_of_values_is_what_was_written_before(value: Any, expected: str) -> None:
    assert encode(value).hex() == expected
    assert same(decode(bytes.fromhex(expected)), value)

"""The digest of what is sent: equal where the receiver reads the same, another one where it does not."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import zlib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from clonos.operators.rows import RowDecoder
from clonos.operators.types import arrow_schema
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal.recorder import Sent
from clonos.protocol.side_output import MAIN
from clonos_standby.replica.batches import OutputWriter

DDL = (
    "s string, i int, l bigint, f float, d double, b boolean, x binary, m decimal(9,2), t timestamp, n timestamp_ntz, "
    "y date, a array<double>, r struct<p:int,q:string>, o map<string,array<timestamp>>"
)
SCHEMA = arrow_schema(DDL)
ZONE = "Europe/Berlin"
MOMENTS = st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2040, 1, 1))
FLOATS = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "s": st.text(st.characters(codec="utf-8"), max_size=4),
    "i": st.integers(-3, 3),
    "l": st.integers(-(2**63), 2**63 - 1),
    "f": FLOATS,
    "d": FLOATS,
    "b": st.booleans(),
    "x": st.binary(max_size=4),
    "m": st.sampled_from([Decimal("1.10"), Decimal("0.00"), Decimal("-7.25")]),
    "t": MOMENTS,
    "n": MOMENTS,
    "y": st.dates(),
    "a": st.lists(FLOATS | st.none(), max_size=3),
    "r": st.fixed_dictionaries({"p": st.none() | st.integers(0, 2), "q": st.none() | st.just("q")}),
    "o": st.dictionaries(st.text("ab", max_size=1), st.lists(MOMENTS | st.none(), max_size=2), max_size=2),
}
ROWS = st.lists(st.tuples(*[st.none() | strategy for strategy in VALUES.values()]), max_size=4)


def digest(rows: list[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> int:
    return OutputWriter({MAIN: schema}, ZONE, "op", Origin(2, 0)).encode(rows).digest


def one(kind: str, *values: Any) -> int:
    return digest([(value,) for value in values], arrow_schema(f"v {kind}"))


def received(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    arrays = OutputWriter({MAIN: SCHEMA}, ZONE, "op", Origin(2, 0)).encode(rows).arrays
    decoder = RowDecoder(SCHEMA, ZONE)
    return decoder.rows([decoder.column(array, index) for index, array in enumerate(arrays)])


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, others=ROWS, times=st.sampled_from([1, 40]))
def test_digests_are_equal_where_the_same_is_sent_and_differ_elsewhere(
    rows: list[tuple[Any, ...]], others: list[tuple[Any, ...]], times: int
) -> None:
    """40 times as many rows go through another way of making arrays."""
    rows, others = rows * times, others * times
    read = received(rows) if rows else []
    assert digest(read) == digest(rows)
    # Of lists, rows and scalars, with -0.0 and NaN
    same = repr(read) == repr(received(others) if others else [])
    assert (digest(others) == digest(rows)) is same


@dataclass(repr=False)
class Plain:
    v: int


def test_forms_of_one_value_have_one_digest() -> None:
    assert one("int", 1) == one("int", np.int8(1)) == one("int", np.True_) == one("int", 1.0)
    assert one("binary", b"ab") == one("binary", memoryview(b"ab")) == one("binary", bytearray(b"ab"))
    assert one("array<double>", [1.0, 2.0]) == one("array<double>", np.array([1.0, 2.0]))
    assert one("decimal(5,2)", Decimal("1.5")) == one("decimal(5,2)", Decimal("1.500"))
    assert one("struct<v:int>", Plain(3)) == one("struct<v:int>", {"v": 3}) == one("struct<v:int>", (3,))


def test_what_a_text_elides_counts() -> None:
    large, other = np.zeros(5000), np.zeros(5000)
    other[2500] = 1.0
    assert repr(large) == repr(other)
    assert one("array<double>", large) != one("array<double>", other)
    assert one("array<double>", *[large] * 70) != one("array<double>", *[large] * 69, other)


def test_zeros_and_missing_values_are_told_apart() -> None:
    digests = {
        one("double", 0.0),
        one("double", -0.0),
        one("double", None),
        one("double", float("nan")),
        one("double", 0.0, 0.0),
        one("double", None, 0.0),
        one("double", 0.0, None),
    }
    assert len(digests) == 7


@dataclass
class Encoded:
    digest: int
    older_digest: int


def digest_of_sent(rows: int, destinations: list[list[int]]) -> int:
    return Sent(Encoded(rows, 0), destinations).digest


def test_a_digest_of_an_older_version_counts_too() -> None:
    sent = Sent(Encoded(7, 8), [[0, 1]])
    assert sent.has_digest(digest_of_sent(7, [[0, 1]])) and sent.has_digest(digest_of_sent(8, [[0, 1]]))
    assert not sent.has_digest(digest_of_sent(9, [[0, 1]])) and not sent.has_digest(
        digest_of_sent(8, [[1, 0]])
    )


def test_where_rows_go_is_part_of_the_digest() -> None:
    assert digest_of_sent(7, [[0, 1]]) != digest_of_sent(7, [[1, 0]])
    assert digest_of_sent(7, [[0, 300]]) != digest_of_sent(7, [[0, 301]])
    assert digest_of_sent(7, [[0, 1]]) != digest_of_sent(8, [[0, 1]])
    assert digest_of_sent(7, [[0, 1], [2, 3]]) != digest_of_sent(7, [[0, 1], [3, 2]])
    assert digest_of_sent(7, [[0, 1]]) == zlib.crc32(b"\0\1", 7), "as it was for one reader"


PROGRAM = """
import datetime as dt
from decimal import Decimal
from test_values_digest import SCHEMA, digest
day = dt.datetime(2026, 7, 1, 12, 0, 0, 5)
full = ("é", 1, 2, 1.5, -0.0, True, b"xy", Decimal("1.10"), day, day, day.date(), [1.0, None], {"p": 1, "q": None},
        {"a": [day, None]})
bare = (None,) * len(SCHEMA)
for count in (1, 3, 70, 200):
    rows = [bare if i % 3 == 1 else full for i in range(count)]
    for _ in range(3):
        print(digest(rows))
"""


@pytest.mark.parametrize("program", [PROGRAM])
def test_digests_do_not_depend_on_what_memory_held(root: Path, program: str) -> None:
    """glibc fills memory that is given out with a pattern here, and another one there."""

    def run(pattern: str) -> str:
        path = os.pathsep.join([str(root), str(root / "tests" / "values")])
        surroundings = {**os.environ, "PYTHONPATH": path, "ARROW_DEFAULT_MEMORY_POOL": "system"}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**surroundings, "MALLOC_PERTURB_": pattern},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return done.stdout

    first = run("85")
    assert run("170") == first
    lines = first.split()
    assert len(lines) == 12 and all(len(set(lines[at : at + 3])) == 1 for at in range(0, 12, 3))

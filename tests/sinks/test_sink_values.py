"""What rows look like in JSON, what is refused when a query is built, and how long a sink waits."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from clonos import sinks
from clonos.errors import ConfigurationError, QueryDefinitionError, SinkError, SinkUnavailable
from clonos.sinks.bundle import channel_of, check_bundle, position_of
from clonos.sinks.patience import Patience

UTC = dt.UTC
BOX = pa.struct([("a", pa.int8()), ("b", pa.list_(pa.float32()))])
PLUS_TWO = dt.timezone(dt.timedelta(hours=2))


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        (pa.int64(), 2**63 - 1, 2**63 - 1),
        (pa.float64(), 0.1, 0.1),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float64(), float("-inf"), "-Infinity"),
        (pa.bool_(), True, True),
        (pa.string(), 'a"\n\u2028ü\0', 'a"\n\u2028ü\0'),
        (pa.binary(), b"\xff", "/w=="),
        (pa.decimal128(38, 9), Decimal("1E+3"), "1000"),
        (pa.decimal128(38, 9), Decimal("-0.000000001"), "-0.000000001"),
        (pa.date32(), dt.date(1, 2, 3), "0001-02-03"),
        (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 1, 1, tzinfo=PLUS_TWO), "2023-12-31T23:00:00.000000Z"),
        (pa.timestamp("us"), dt.datetime(2024, 1, 1), "2024-01-01T00:00:00.000000"),
        (pa.duration("us"), dt.timedelta(seconds=-1), "INTERVAL '-0 00:00:01.000000' DAY TO SECOND"),
        (pa.duration("us"), dt.timedelta(1, 7384, 5), "INTERVAL '1 02:03:04.000005' DAY TO SECOND"),
        (pa.list_(pa.date32()), [dt.date(2024, 1, 1), None], ["2024-01-01", None]),
        (pa.map_(pa.int32(), pa.binary()), [(1, b"a"), (2, None)], {"1": "YQ==", "2": None}),
        (BOX, {"a": 1, "b": [float("inf")]}, {"a": 1, "b": ["Infinity"]}),
        (pa.null(), None, None),
    ],
)  # fmt: skip
def test_values_in_json_lines(kind: pa.DataType, value: object, written: object, tmp_path: Path) -> None:
    sink = sinks.jsonl(tmp_path, id_column="id", durable=False)
    sink.validate(pa.schema([("v", kind)]))
    with closing(sink.writer()) as writer:
        writer.open(query="q", node=2, instance=3, fence=1)
        writer.write([(value,), (None,)], ["1-0-1", "1-0-2"], {1: 2}, [])
    lines = (tmp_path / "part-q-2-3.jsonl").read_bytes().split(b"\n")
    assert [json.loads(line) for line in lines[:-1]] == [
        {"id": "1-0-1", "v": written},
        {"id": "1-0-2", "v": None},
    ]


def test_a_value_that_json_cannot_hold_is_named(tmp_path: Path) -> None:
    sink = sinks.jsonl(tmp_path, durable=False)
    sink.validate(pa.schema([("a", pa.string()), ("b", pa.date32())]))
    with closing(sink.writer()) as writer:
        writer.open(query="q", node=2, instance=0, fence=1)
        with pytest.raises(SinkError, match="row 1-0-2: column 'b' holds a str"):
            writer.write([("x", None), ("y", "z")], ["1-0-1", "1-0-2"], {1: 2}, [])
        with pytest.raises(SinkError, match="1-0-2 cannot be written as JSON"):
            writer.write([("x", None), ({1}, None)], ["1-0-1", "1-0-2"], {1: 2}, [])
        with pytest.raises(SinkError, match="1-0-1"):
            writer.write([("\ud800", None)], ["1-0-1"], {1: 1}, [])
    assert (tmp_path / "part-q-2-0.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    "schema",
    [pa.schema([]), pa.schema([("a", pa.int8()), ("a", pa.int8())]), pa.schema([("t", pa.time64("us"))])],
)
def test_json_lines_refuse_what_they_cannot_hold(schema: pa.Schema, tmp_path: Path) -> None:
    with pytest.raises(QueryDefinitionError):
        sinks.jsonl(tmp_path).validate(schema)


def test_row_ids() -> None:
    assert (channel_of("3-2-17"), position_of("3-2-17")) == (2 << 6 | 3, 17)
    for wrong in ("", "3-2", "a-b-c", "64-0-1", "0-0-1", "3-0-1-2"):
        with pytest.raises(SinkError):
            channel_of(wrong)


@given(
    st.lists(st.tuples(st.sampled_from(["1-0", "2-1"]), st.integers(0, 6)), max_size=8), st.integers(-1, 5)
)
def test_a_bundle_is_taken_exactly_when_every_channel_goes_up(
    rows: list[tuple[str, int]], stands: int
) -> None:
    cursor = {1: stands} if stands >= 0 else {}
    targets = {
        1: max([stands, *(p for o, p in rows if o == "1-0")]),
        65 + 1: max([0, *(p for o, p in rows if o == "2-1")]),
    }
    fits = True
    for origin, start in (("1-0", stands), ("2-1", -1)):
        taken = [start, *(position for each, position in rows if each == origin)]
        fits &= all(a < b for a, b in pairwise(taken))
    ids = [f"{origin}-{position}" for origin, position in rows]
    try:
        check_bundle([()] * len(ids), ids, targets, cursor)
    except SinkError:
        assert not fits
    else:
        assert fits


def test_patience_ends_and_pauses_grow() -> None:
    now, pauses = [0.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    def never(_: int) -> None:
        raise SinkUnavailable("away", hint="Wait")

    with pytest.raises(SinkUnavailable, match=r"away; tried 11 times in 5 s\. Wait"):
        Patience(5, clock=lambda: now[0], sleep=sleep).run(never)
    assert sum(pauses) == pytest.approx(5)
    assert pauses[:3] == [0.02, 0.04, 0.08]
    assert max(pauses) == 1.0
    with pytest.raises(ConfigurationError):
        Patience(float("nan"))


def test_patience_does_not_wait_for_what_will_not_mend() -> None:
    def refuse(_: int) -> None:
        raise SinkError("no")

    with pytest.raises(SinkError):
        Patience(5, sleep=lambda _: pytest.fail("it waited")).run(refuse)


def test_constructors_import_only_what_they_use() -> None:
    code = (
        "import sys, clonos.sinks as s; s.jsonl('x'); assert 'sqlalchemy' not in sys.modules; s.SqlSink;"
        "assert 'sqlalchemy' in sys.modules; assert 'psycopg' not in sys.modules; assert callable(s.sql);"
        "assert callable(s.call) and s.CallableSink"
    )
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, env={**os.environ, "PYTHONPATH": root})
    with pytest.raises(AttributeError):
        sinks.nothing  # noqa: B018

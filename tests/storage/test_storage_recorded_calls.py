"""The file of a recorded call."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from clonos.errors import LogCorrupt
from clonos.protocol.ids import Epoch
from clonos.storage import recorded_calls
from clonos.storage.one_row import row_stream
from clonos.storage.recorded_calls import RecordedAnswer, RecordedCall
from clonos.values import state_codec as values

GOLDEN = Path(__file__).parent.parent / "golden" / "recorded_call_v1.bin"
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
ROW = row_stream(pa.RecordBatch.from_pydict({"k": ["a"], "n": [7]}, schema=SCHEMA))

CALL = RecordedCall(
    query="a" * 32,
    row="3-1-172",
    epoch=Epoch(4),
    operator="decide",
    operator_version="2",
    form="process",
    function="rules:decide",
    zone="Europe/Berlin",
    intercept=True,
    record=ROW,
    output=SCHEMA.serialize().to_pybytes(),
    side_outputs={"late": SCHEMA.serialize().to_pybytes()},
    key=("a", 3),
    before={b"\x01": {"turn": 1}},
    after={b"\x01": {"turn": 2, "at": (1, 2.5)}},
    watermark=1_700_000_000_000_000,
    random=random.Random(1).getstate(),
    random_after=random.Random(2).getstate(),
    clock=None,
    instants=[1, 2],
    answers=[
        RecordedAnswer(
            kind="call",
            what="ask(7)",
            identity=("function", "ask", ("7",), ()),
            ok=True,
            payload=values.encode("x"),
        )
    ],
    timers=[(True, 5, "late", False)],
    outputs=[("", ROW), ("late", ROW)],
)


def test_it_comes_back() -> None:
    assert recorded_calls.decode(recorded_calls.encode(CALL)) == CALL
    plain = replace(CALL, answers=[], outputs=[], clock=3, watermark=None, function="")
    assert recorded_calls.decode(recorded_calls.encode(plain)) == plain


def test_what_earlier_versions_have_written_is_read() -> None:
    """A difference here means a new version, not a new golden file. (Arrow may write the same rows otherwise.)"""
    found = recorded_calls.decode(GOLDEN.read_bytes())
    of_arrow = {
        "record": ROW,
        "output": CALL.output,
        "side_outputs": CALL.side_outputs,
        "outputs": CALL.outputs,
    }
    assert replace(found, **of_arrow) == CALL
    assert found.table() == CALL.table() and found.output_schema() == CALL.output_schema()
    assert found.side_schemas() == CALL.side_schemas()
    assert [pa.ipc.open_stream(row).read_all() for _, row in found.outputs] == [CALL.table()] * 2


@given(data=st.data())
def test_damage_is_said(data: Any) -> None:
    raw = bytearray(recorded_calls.encode(CALL))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] ^= data.draw(st.integers(1, 255))
    else:
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    with pytest.raises(LogCorrupt):
        recorded_calls.decode(bytes(raw))


def test_a_later_version_is_not_guessed() -> None:
    from clonos.values.sealed_value import seal

    raw = recorded_calls.MAGIC + seal(values.encode({"version": 2}), recorded_calls.MAGIC)
    with pytest.raises(LogCorrupt, match="has version 2; this library reads 1"):
        recorded_calls.decode(raw, "it")

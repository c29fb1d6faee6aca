"""Dead letters as bytes, and where they are put."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from clonos.errors import LogCorrupt
from clonos.storage import dead_letters
from clonos.storage.dead_letters import DeadLetter, LetterBox
from clonos.storage.one_row import row_stream

GOLDEN = Path(__file__).parent.parent / "golden" / "store_letter_v1.bin"
INPUT = pa.schema([("card", pa.string()), ("amount", pa.int64())])


def a_letter(position: int = 9) -> DeadLetter:
    row = pa.RecordBatch.from_pydict({"card": ["c1"], "amount": [7]}, schema=INPUT)
    return DeadLetter(
        operator="review",
        operator_version="2",
        form="process",
        node=2,
        instance=1,
        epoch=5,
        channel=65,
        position=position,
        zone="UTC",
        row=row_stream(row),
        output=pa.schema([("card", pa.string())]).serialize().to_pybytes(),
        key=("c1",),
        state={b"\x91\xa2c1": {"spent": 1.5}},
        watermark=None,
        random=random.Random(1).getstate(),
        recorded=b"",
        deaths=[{"kind": "signal", "signal": "SIGSEGV", "code": None, "stderr": "in f"}],
    )


def test_reads_back() -> None:
    letter = a_letter()
    again = dead_letters.decode(dead_letters.encode(letter))
    assert again == letter
    assert again.table().to_pylist() == [{"card": "c1", "amount": 7}]
    assert again.table().schema == INPUT
    assert again.output_schema().names == ["card"]
    drawn = random.Random()
    drawn.setstate(again.random)
    assert drawn.random() == random.Random(1).random()


def test_an_old_letter_is_read() -> None:
    """A difference here means a new version, not a new golden file. (Arrow's own bytes may change.)"""
    old = dead_letters.decode(GOLDEN.read_bytes())
    new = a_letter()
    assert old.table().equals(new.table())
    assert old.output_schema().equals(new.output_schema())
    for name in ("operator", "operator_version", "key", "state", "watermark", "random", "deaths", "channel"):
        assert getattr(old, name) == getattr(new, name)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_letter_is_refused(data: st.DataObject) -> None:
    raw = bytearray(GOLDEN.read_bytes())
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(LogCorrupt):
        dead_letters.decode(bytes(raw))


def test_a_letter_has_one_name_however_often_it_is_written(tmp_path: Path) -> None:
    for fence in (1, 2):
        place = LetterBox(str(tmp_path), 2, 1, fence=fence).write(a_letter())
    LetterBox(str(tmp_path), 2, 1, fence=3).write(a_letter(10))
    assert place == str(tmp_path / "clonos/dead_letters/2/1/65-9.letter")
    found = sorted(path.name for path in (tmp_path / "clonos/dead_letters").rglob("*") if path.is_file())
    assert found == ["65-10.letter", "65-9.letter"]
    assert dead_letters.decode(Path(place).read_bytes()) == a_letter()

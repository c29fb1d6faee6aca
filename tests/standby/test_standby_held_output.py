"""What a sink's instance holds, as bytes in its checkpoint: what is written is read, damage is told."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from clonos.errors import SnapshotCorrupt
from clonos.operators.rows import Row, make_row
from clonos.protocol.engine.output_commit import Write
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch
from clonos.protocol.ingestion import Ingested
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.rollback.held_output import HeldWrite, SinkCheckpoint
from clonos.protocol.recovery.rollback.rounds import StoredRound
from clonos.storage.snapshots import SnapshotStore
from clonos_standby.replica import snapshot_metadata as metadata
from clonos_standby.replica.held_output_codec import decode_held, decode_meta, encode_held, encode_meta
from clonos_standby.replica.holding_sink_host import _HeldFile

AB = ("a", "b")
ROW = make_row(("a", "b"), [1, 2]).__class__
VALUES = [
    None,
    True,
    -(1 << 63),
    float("inf"),
    "\ud83d\ude00",
    b"\x00",
    decimal.Decimal("12345678901234567890.123456789"),
    dt.date(1, 1, 1),
    dt.datetime(2026, 10, 25, 2, 30, fold=1),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=dt.UTC),
    dt.timedelta(microseconds=-1),
    [1, [2, None]],
    {"k": {"n": 1}},
    make_row(("x", "y"), [1, make_row(("z",), [dt.date(2026, 1, 1)])]),
]


def held(rows: list[Any], before: StoredRound | None = None) -> HeldWrite:
    ids = [f"2-0-{at}" for at in range(len(rows))]
    return HeldWrite(Write(rows, ids, {2: len(rows)}, [], [Ingested(2, len(rows), 5)]), Epoch(3), before)


def checkpoint(*writes: HeldWrite) -> SinkCheckpoint:
    return SinkCheckpoint(Epoch(3), {2: 7}, {2: 9, 1 << 40: 1}, writes)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_every_value_is_read_as_it_was_written(value: Any) -> None:
    row = tuple.__new__(ROW, (value, 1))
    (found,) = decode_held(encode_held(checkpoint(held([row])), AB), ROW, AB)
    assert found == held([row])
    assert type(found.write.rows[0]) is ROW
    assert not isinstance(value, Row) or isinstance(found.write.rows[0][0], Row)


@given(
    st.lists(
        st.builds(
            held,
            st.lists(st.tuples(st.text(), st.integers(-(1 << 63), (1 << 63) - 1)), min_size=1, max_size=3),
            st.none() | st.builds(StoredRound, st.integers(0, 9).map(Epoch), st.integers(1, 9).map(Round)),
        ),
        max_size=4,
    )
)
def test_what_is_written_is_read(writes: list[HeldWrite]) -> None:
    given = checkpoint(*writes)
    assert decode_held(encode_held(given, AB), tuple, AB) == writes
    said = decode_meta(encode_meta(given))
    assert (said.epoch, said.shown, said.covered) == (given.epoch, given.shown, given.covered)


def test_a_column_that_a_later_program_has_is_null_in_rows_from_before() -> None:
    raw = encode_held(checkpoint(held([("x", 1)])), AB)
    (more,) = decode_held(raw, tuple, ("a", "new", "b"))
    (fewer,) = decode_held(raw, tuple, ("b",))
    assert (more.write.rows, fewer.write.rows) == ([("x", None, 1)], [(1,)])


def test_a_recovery_line_can_ask_it() -> None:
    point = metadata.point("name", encode_meta(checkpoint()))
    assert (point.sent, point.reached, point.log_offset) == ({}, {2: 9, 1 << 40: 1}, 0)


@pytest.mark.parametrize("raw", [b"", b"\xff", encode_held(checkpoint(), [])])
def test_other_bytes_are_no_checkpoint(raw: bytes) -> None:
    with pytest.raises(SnapshotCorrupt, match="a sink's checkpoint cannot be read"):
        decode_meta(raw)
    with pytest.raises(SnapshotCorrupt, match="a sink's checkpoint cannot be read"):
        decode_held(encode_meta(checkpoint()), tuple, AB)


@pytest.mark.parametrize("rows", [1, 40_000])
def test_it_is_a_file_of_a_snapshot(tmp_path: Path, rows: int) -> None:
    """In the manifest, or, where it is large, beside it."""
    given = checkpoint(held([("row " * 10, at) for at in range(rows)]))
    store = SnapshotStore(str(tmp_path / "root"), fence=Fence.of(1), pending=str(tmp_path / "pending"))
    content = encode_held(given, AB)
    pending = store.begin(_HeldFile(content), encode_meta(given), epoch=Epoch(3), sequence=0, final=False)
    manifest = store.finish(pending)
    store.restore(manifest, str(tmp_path / "restored"))
    assert (tmp_path / "restored" / "held").read_bytes() == content
    (path, *_) = sorted((tmp_path / "root").rglob("*.manifest" if rows == 1 else "files/*"))
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    again = SnapshotStore(str(tmp_path / "root"), fence=Fence.of(2), pending=str(tmp_path / "pending"))
    with pytest.raises(SnapshotCorrupt):
        found = again.named(str(manifest.name))
        assert found is not None
        again.restore(found, str(tmp_path / "again"))

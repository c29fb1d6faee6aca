"""Others' logs, in the database of an instance's state."""

from __future__ import annotations

from pathlib import Path

from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.recovery.causal.delta import decode_delta, encode_delta, encode_entry
from clonos.protocol.recovery.causal.delta_journal import Receipts
from clonos.storage.kept_deltas import KeptDeltaRows
from clonos.storage.keyed_state import KeyedState

FIRST, SECOND = Origin.of(2, 0), Origin.of(3, 1)


def delta(*entries: tuple[Origin, int, bytes]) -> bytes:
    return encode_delta(
        encode_entry(origin, LogOffset(at), len(data), 1, data) for origin, at, data in entries
    )


def test_they_are_restored_with_the_state_and_go_on_behind(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "state"))
    state.put(b"key", "value")
    rows = KeptDeltaRows(state)
    known = [delta((FIRST, 10 * at, b"0123456789")) for at in range(300)]
    for raw in known:
        rows.keep(raw)
    state.checkpoint(str(tmp_path / "copy"))
    rows.keep(delta((FIRST, 3000, b"behind the checkpoint")))
    state.close()
    restored = KeyedState(str(tmp_path / "copy"))
    again = KeptDeltaRows(restored)
    assert again.read() == known
    assert restored.get(b"key") == "value"
    assert restored.entries == 1, "they are no entries of the state"
    last = delta((SECOND, 0, b"more"))
    again.keep(last)
    assert again.read() == [*known, last]
    restored.close()


def test_those_that_say_nothing_beyond_the_truncation_points_are_forgotten(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "state"))
    rows = KeptDeltaRows(state)
    before = delta((FIRST, 0, b"0123456789"))
    through = delta((FIRST, 5, b"0123456789"))
    both = delta((FIRST, 0, b"0123"), (SECOND, 0, b"0123"))
    for raw in (before, through, both):
        rows.keep(raw)
    rows.forget({FIRST: LogOffset(10)})
    assert rows.read() == [through, both]
    rows.forget({FIRST: LogOffset(15), SECOND: LogOffset(4)})
    assert rows.read() == []
    rows.keep(before)
    assert rows.read() == [before]
    state.close()


def test_many_small_ones_become_one_that_says_the_same(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "state"))
    rows, known = KeptDeltaRows(state, 10), [delta((FIRST, 10 * at, b"0123456789")) for at in range(95)]
    for at, raw in enumerate(known):
        rows.keep(raw)
        if at == 50:  # another process goes on
            rows = KeptDeltaRows(state, 10)
    assert len(rows.read()) < 20
    receipts = Receipts()
    for raw in rows.read():
        receipts.take(raw)
    assert receipts.covers(FIRST, LogOffset(0), LogOffset(950))
    rows.forget({FIRST: LogOffset(949)})
    assert [entry.end for raw in rows.read() for entry in decode_delta(raw)][-1:] == [950]
    rows.forget({FIRST: LogOffset(950)})
    assert rows.read() == []
    state.close()

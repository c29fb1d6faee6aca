"""What an instance has sent, in the database of its state."""

from __future__ import annotations

import shutil
from pathlib import Path

from hypothesis import given, strategies as st

from clonos.protocol.ids import OutputNumber
from clonos.storage.keyed_state import KeyedState
from clonos.storage.sent_log import SentRows

NUMBERS = st.lists(st.integers(1, 2**62), unique=True, max_size=12).map(sorted)


def numbers(rows: SentRows, since: int = 0) -> list[int]:
    return [last for last, _ in rows.since(OutputNumber(since))]


def test_it_is_restored_with_the_state(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "state"))
    state.put(b"key", "value")
    rows = SentRows(state)
    rows.keep(OutputNumber(3), b"three")
    rows.keep(OutputNumber(300), b"more")
    state.checkpoint(str(tmp_path / "copy"))
    rows.keep(OutputNumber(301), b"behind the checkpoint")
    state.close()
    restored = KeyedState(str(tmp_path / "copy"))
    again = SentRows(restored)
    assert list(again.since(OutputNumber(0))) == [(3, b"three"), (300, b"more")]
    assert restored.get(b"key") == "value"
    assert restored.entries == 1, "what was sent is no entry of the state"
    again.clear()
    assert numbers(again) == []
    restored.close()


@given(kept=NUMBERS, before=st.integers(0, 2**62), since=st.integers(0, 2**62))
def test_what_is_forgotten_is_gone_and_nothing_else(
    kept: list[int], before: int, since: int, tmp_path_factory: object
) -> None:
    path = Path(tmp_path_factory.mktemp("sent"))  # type: ignore[attr-defined]
    state = KeyedState(str(path / "state"))
    rows = SentRows(state)
    for number in kept:
        rows.keep(OutputNumber(number), str(number).encode())
    rows.forget(OutputNumber(before))
    assert numbers(rows, since) == [number for number in kept if number >= max(before, since)]
    rows.forget(OutputNumber(0))
    assert numbers(rows) == [number for number in kept if number >= before]
    state.close()
    shutil.rmtree(path)

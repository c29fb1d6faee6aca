"""Two states are compared entry by entry: by their bytes, and where these differ by their values."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos.archive.compared_states import Difference, first_difference
from clonos.archive.given_key import KeyColumn, KeyForm
from clonos.storage.keyed_state import STATE_PREFIX, KeyedState
from clonos.storage.timers import EVENT_TIME, TimerQueue
from clonos.values.key_codec import pack
from clonos.values.sealed_value import seal
from clonos.values.state_codec import encode

A, B, C = (pack((each,)) for each in "abc")
NAMED = pack("total") + pack(("b",))
FORM = KeyForm("it", (KeyColumn("k", pa.string()),), "UTC")
Change = Callable[[KeyedState], None]


def nothing(state: KeyedState) -> None:
    """It is as it was."""


def put(key: bytes, value: Any) -> Change:
    return lambda state: state.put(key, value)


def stored(key: bytes, payload: bytes) -> Change:
    """In these bytes, as another version might have."""

    def write(state: KeyedState) -> None:
        state.flush()
        state.database.put(STATE_PREFIX + key, seal(payload, key))

    return write


def timer(key: bytes, due: int, family: bytes = EVENT_TIME) -> Change:
    return lambda state: TimerQueue(state, family).set(due, key, "t")


def sent(state: KeyedState) -> None:
    """What is no state: of what was sent, of others' logs, of the format."""
    for name in (b"m1", b"d1", b"\x00format"):
        state.database.put(name, b"other")


@contextmanager
def state(folder: Path, change: Change) -> Iterator[KeyedState]:
    with closing(KeyedState(str(folder))) as made:
        made.put(A, {"n": 1, "all": {1, 2}, "more": {"x": 1, "y": 2}, "not": math.nan})
        made.put(C, {"n": 3})
        TimerQueue(made, EVENT_TIME).set(7, A, "t")
        change(made)
        yield made


def in_other_bytes() -> bytes:
    """The set, the dict, and NaN of what is equal to the first state."""
    packed = encode({"not": math.nan, "more": {"y": 2, "x": 1}, "all": {1, 2}, "n": 1})
    nan = b"\xcb" + struct.pack(">Q", 0x7FF8000000000001)
    changed = packed.replace(encode(math.nan), nan).replace(b"\x92\x01\x02", b"\x92\x02\x01")
    assert len(changed) == len(packed) and changed.count(nan) == 1 and changed.count(b"\x92\x02\x01") == 1
    return changed


@pytest.mark.parametrize("change", [nothing, put(B, None), stored(A, in_other_bytes()), timer(A, 7), sent])
def test_the_same_is_told_as_the_same(tmp_path: Path, change: Change) -> None:
    with state(tmp_path / "now", nothing) as now, state(tmp_path / "then", change) as then:
        assert first_difference(now, then) is None and first_difference(then, now) is None


@pytest.mark.parametrize(
    ("change", "found", "said"),
    [
        (put(C, {"n": 4}), Difference(C, False, True, True), 'key "c" has another one'),
        (put(C, {"n": 3.0}), Difference(C, False, True, True), 'key "c" has another one'),
        (put(C, {"n": True}), Difference(C, False, True, True), 'key "c" has another one'),
        (put(C, None), Difference(C, False, False, True), 'key "c" has none, and had one'),
        (put(B, {"n": 1}), Difference(B, False, True, False), 'key "b" had none'),
        (
            put(NAMED, 5),
            Difference(NAMED, False, True, False),
            'key ["b", "total"] had none',
        ),
        (timer(B, 9), Difference(B, True, True, False), 'a timer of key "b" was not there'),
        (timer(A, 8), Difference(A, True, True, False), 'a timer of key "a" was not there'),
        (timer(A, 7, b"p"), Difference(A, True, True, False), 'a timer of key "a" was not there'),
        (
            lambda state: TimerQueue(state, EVENT_TIME).cancel(7, A, "t"),
            Difference(A, True, False, True),
            'a timer of key "a" is missing',
        ),
    ],
)
def test_the_first_entry_that_differs_is_told_without_its_value(
    tmp_path: Path, change: Change, found: Difference, said: str
) -> None:
    with state(tmp_path / "now", change) as now, state(tmp_path / "then", nothing) as then:
        assert first_difference(now, then) == found and found.said(FORM) == said
        other = first_difference(then, now)
        assert other is not None and (other.is_there, other.was_there) == (found.was_there, found.is_there)

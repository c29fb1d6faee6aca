"""Timers of one instance and one family, ordered by (due, key, name).

They live in the same RocksDB as the keyed state, so a snapshot holds both as of one moment. A timer is a key without
a value; setting one twice is setting it once:

    "t" family(1) due(8, big-endian, offset by 2^63) escaped key 00 01 name(UTF-8)

In `escaped key` each 00 is followed by FF, which keeps the order of keys and lets a name follow. RocksDB's order is
therefore the order in which timers fire, the same in every run.

Fired and cancelled timers leave tombstones at the front. `_floor` is a due time before which there is no timer, so a
search never walks over them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from clonos.errors import SnapshotCorrupt, StateError
from clonos.storage.database import Batch, prefix_end
from clonos.storage.keyed_state import TIMER_PREFIX, KeyedState

PROCESSING_TIME: Final = b"p"
EVENT_TIME: Final = b"e"

_DUE: Final = struct.Struct(">Q")
_OFFSET: Final = 1 << 63
_MIN_DUE: Final = -_OFFSET
_MAX_DUE: Final = _OFFSET - 1
_END: Final = b"\x00\x01"
_HEADER: Final = 2


class TimerQueue:
    """See the module. `due` is in microseconds."""

    def __init__(self, state: KeyedState, family: bytes = PROCESSING_TIME) -> None:
        if family not in (PROCESSING_TIME, EVENT_TIME):
            raise StateError(f"unknown timer family {family!r}")
        self._database = state.database
        self._prefix = TIMER_PREFIX + family
        self._upper = prefix_end(self._prefix)
        self._floor = _MIN_DUE
        self._next: int | None = None
        self._known = False

    def set(self, due: int, key: bytes, name: str = "") -> None:
        """Fire `name` for `key` at `due`."""
        encoded = self._encode(due, key, name)
        self._database.put(encoded, b"")
        self._floor = min(self._floor, due)
        if self._known and (self._next is None or due < self._next):
            self._next = due

    def cancel(self, due: int, key: bytes, name: str = "") -> None:
        """Take back one timer; nothing happens if there is none."""
        encoded = self._encode(due, key, name)
        self._database.delete(encoded)
        if self._next == due:
            self._known = False

    def next_due(self) -> int | None:
        """When the first timer is due; None without timers."""
        if not self._known:
            self._next = self._find_first()
            self._known = True
            # Without timers the next one set lowers the floor again.
            self._floor = _MAX_DUE if self._next is None else self._next
        return self._next

    def pop_due(self, upto: int) -> list[tuple[int, bytes, str]]:
        """Take out every timer due at or before `upto`, in order."""
        first = self.next_due()
        if first is None or first > upto:
            return []
        found: list[tuple[int, bytes, str]] = []
        batch = Batch()
        upper = self._upper if upto >= _MAX_DUE else self._prefix + self._due(upto + 1)
        for encoded, _ in self._database.cursor(self._prefix + self._due(self._floor), upper):
            found.append(_decode(encoded))
            batch.put(encoded, None)
        self._database.write(batch)
        self._floor = min(upto + 1, _MAX_DUE)
        self._known = False
        return found

    def pending(self) -> Iterator[tuple[int, bytes, str]]:
        """Every timer, in the order in which they fire."""
        return (_decode(encoded) for encoded, _ in self._database.cursor(self._prefix, self._upper))

    def _find_first(self) -> int | None:
        cursor = self._database.cursor(self._prefix + self._due(self._floor), self._upper)
        try:
            for encoded, _ in cursor:
                return _decode(encoded)[0]
        finally:
            cursor.close()
        return None

    def _due(self, due: int) -> bytes:
        return _DUE.pack(due + _OFFSET)

    def _encode(self, due: int, key: bytes, name: str) -> bytes:
        if not _MIN_DUE <= due <= _MAX_DUE:
            raise StateError(f"a timer for key {key!r} is due at {due} us, which is out of range")
        try:
            return b"".join(
                (self._prefix, self._due(due), key.replace(b"\x00", b"\x00\xff"), _END, name.encode())
            )
        except (UnicodeEncodeError, AttributeError, TypeError) as error:
            raise StateError(
                f"a timer needs a key of bytes and a name of text, not {key!r}, {name!r}"
            ) from error


def timer_key(encoded: bytes) -> bytes:
    """The key that a timer is of, as it is stored."""
    return _decode(encoded)[1]


def _decode(encoded: bytes) -> tuple[int, bytes, str]:
    start = _HEADER + _DUE.size
    # An escaped 00 is followed by FF, so the first 00 01 is the end of the key.
    end = encoded.find(_END, start)
    if end < 0:
        raise SnapshotCorrupt(f"a kept timer cannot be read: {encoded!r}")
    try:
        name = encoded[end + len(_END) :].decode()
    except UnicodeDecodeError as error:
        raise SnapshotCorrupt(f"a kept timer cannot be read: {encoded!r}") from error
    due = _DUE.unpack_from(encoded, _HEADER)[0] - _OFFSET
    return due, encoded[start:end].replace(b"\x00\xff", b"\x00"), name

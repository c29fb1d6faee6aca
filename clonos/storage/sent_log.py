"""What an instance has sent, kept in the database of its state: a snapshot holds both as of one moment, and shares with
the one before the tables that have not changed.

    "m" last row(8, big-endian)    what the runtime makes of the rows up to this one
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from clonos.protocol.ids import OutputNumber
from clonos.storage.database import Batch
from clonos.storage.keyed_state import KeyedState

_PREFIX: Final = b"m"
_LAST: Final = struct.Struct(">Q")
_UPPER: Final = b"n"


class SentRows:
    """See the module. Of one owner, as its state is."""

    def __init__(self, state: KeyedState) -> None:
        self._state = state
        self._database = state.database
        self._first = OutputNumber(0)  # nothing is there before
        state.entries_beside += sum(1 for _ in self.since(self._first))

    def keep(self, last: OutputNumber, content: bytes) -> None:
        """Rows up to `last`, behind those that were kept before."""
        self._database.put(_key(last), content)
        self._state.entries_beside += 1

    def since(self, number: OutputNumber) -> Iterator[tuple[OutputNumber, bytes]]:
        """Those with a row of this number or a later one, in order."""
        for key, content in self._database.cursor(_key(max(number, self._first)), _UPPER):
            yield OutputNumber(_LAST.unpack_from(key, len(_PREFIX))[0]), content

    def forget(self, before: OutputNumber) -> None:
        """Those with no row of this number or a later one."""
        if before <= self._first:
            return
        batch = Batch()
        for key, _ in self._database.cursor(_key(self._first), _key(before)):
            batch.put(key, None)
        if batch.entries:
            self._database.write(batch)
            self._state.entries_beside -= len(batch.entries)
        self._first = before

    def clear(self) -> None:
        """All of them."""
        batch = Batch()
        for key, _ in self._database.cursor(_PREFIX, _UPPER):
            batch.put(key, None)
        if batch.entries:
            self._database.write(batch)
            self._state.entries_beside -= len(batch.entries)


def _key(last: OutputNumber) -> bytes:
    return _PREFIX + _LAST.pack(last)

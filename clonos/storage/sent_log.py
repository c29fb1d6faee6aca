"""What an instance has sent, kept in the database of its state: a snapshot holds both as of one moment, and shares with
the one before the tables that have not changed.

    "m" last row(8, big-endian)    what the runtime makes of the rows up to this one
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from clonos.protocol.ids import OutputNumber
from clonos.storage.database import Batch, prefix_end
from clonos.storage.keyed_state import SENT_PREFIX, KeyedState

_LAST: Final = struct.Struct(">Q")
_UPPER: Final = prefix_end(SENT_PREFIX)


class SentRows:
    """See the module. Of one owner, as its state is."""

    def __init__(self, state: KeyedState) -> None:
        self._database = state.database
        self._first = OutputNumber(0)  # nothing is there before

    def keep(self, last: OutputNumber, content: bytes) -> None:
        """Rows up to `last`, behind those that were kept before."""
        self._database.put(_key(last), content)

    def since(self, number: OutputNumber) -> Iterator[tuple[OutputNumber, bytes]]:
        """Those with a row of this number or a later one, in order."""
        for key, content in self._database.cursor(_key(max(number, self._first)), _UPPER):
            yield OutputNumber(_LAST.unpack_from(key, len(SENT_PREFIX))[0]), content

    def forget(self, before: OutputNumber) -> None:
        """Those with no row of this number or a later one."""
        if before > self._first:
            self._delete(_key(self._first), _key(before))
            self._first = before

    def clear(self) -> None:
        """All of them."""
        self._delete(SENT_PREFIX, _UPPER)

    def _delete(self, lower: bytes, upper: bytes | None) -> None:
        """One by one: an increment of the state says which keys are gone."""
        batch = Batch()
        for key, _ in self._database.cursor(lower, upper):
            batch.put(key, None)
        if batch.entries:
            self._database.write(batch)


def _key(last: OutputNumber) -> bytes:
    return SENT_PREFIX + _LAST.pack(last)

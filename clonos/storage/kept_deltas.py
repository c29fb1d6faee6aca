"""Others' logs in the database of an instance's state, as what it has sent is (`clonos.storage.sent_log`).

    "d" number(8, big-endian)    a delta, in the order in which they came

Many small ones become one, as in the log store: an epoch may bring millions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final

from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.recovery.causal.delta import still_needed
from clonos.protocol.recovery.causal.delta_journal import fold_deltas
from clonos.protocol.recovery.causal.kept_deltas import KeptDeltas
from clonos.storage.database import Batch, prefix_end
from clonos.storage.keyed_state import DELTA_PREFIX, KeyedState

FOLD_FROM: Final = 4096
_NUMBER: Final = struct.Struct(">Q")
_UPPER: Final = prefix_end(DELTA_PREFIX)


class KeptDeltaRows(KeptDeltas):
    """See the module. Of one owner, as its state is."""

    def __init__(self, state: KeyedState) -> None:
        self._database = state.database
        numbers = [number for number, _ in self._rows()]
        self._single = min(numbers, default=0)  # from here on they are as they came
        self._next = 1 + max(numbers, default=-1)

    def keep(self, raw: bytes) -> None:
        self._database.put(_key(self._next), raw)
        self._next += 1
        if self._next - self._single > FOLD_FROM:
            self._fold()

    def _fold(self) -> None:
        single = list(self._rows(self._single))
        batch = Batch()
        for number, _ in single[1:]:
            batch.put(_key(number), None)
        if single:
            batch.put(_key(single[0][0]), fold_deltas(raw for _, raw in single))
            self._database.write(batch)
        self._single = self._next

    def read(self) -> list[bytes]:
        return [raw for _, raw in self._rows()]

    def forget(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """One by one: an increment of the state says which keys are gone."""
        batch = Batch()
        for number, raw in self._rows():
            if not still_needed(raw, truncation_points):
                batch.put(_key(number), None)
        if batch.entries:
            self._database.write(batch)

    def _rows(self, since: int = 0) -> Iterator[tuple[int, bytes]]:
        for key, raw in self._database.cursor(_key(since), _UPPER):
            yield _NUMBER.unpack_from(key, len(DELTA_PREFIX))[0], raw


def _key(number: int) -> bytes:
    return DELTA_PREFIX + _NUMBER.pack(number)

"""Others' logs in the database of an instance's state, as what it has sent is (`clonos.storage.sent_log`).

"d" number(8, big-endian)    a delta, in the order in which they came
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final

from clonos.protocol.recovery.causal.delta_journal import FOLD_FROM
from clonos.protocol.recovery.causal.kept_deltas import KeptDeltas
from clonos.storage.database import Batch, prefix_end
from clonos.storage.keyed_state import DELTA_PREFIX, KeyedState

_NUMBER: Final = struct.Struct(">Q")
_UPPER: Final = prefix_end(DELTA_PREFIX)


class KeptDeltaRows(KeptDeltas):
    """See the module. Of one owner, as its state is."""

    def __init__(self, state: KeyedState, fold_from: int = FOLD_FROM) -> None:
        self._database = state.database
        super().__init__(fold_from)

    def rows(self, since: int = 0) -> Iterator[tuple[int, bytes]]:
        for key, raw in self._database.cursor(_key(since), _UPPER):
            yield _NUMBER.unpack_from(key, len(DELTA_PREFIX))[0], raw

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        """One by one: an increment of the state says which keys are gone."""
        batch = Batch()
        for number, raw in changes.items():
            batch.put(_key(number), raw)
        self._database.write(batch)


def _key(number: int) -> bytes:
    return DELTA_PREFIX + _NUMBER.pack(number)

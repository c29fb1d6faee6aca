"""What the log store has not been given yet.

Received deltas and the own log are written in one batch, before any row leaves that depends on them.
"""

from __future__ import annotations

from clonos.protocol.ids import LOG_BEGIN, LogOffset
from clonos.protocol.ports import Persist


class SaveQueue:
    """Received deltas and pieces of the own log, in order."""

    def __init__(self) -> None:
        self._deltas: list[bytes] = []
        self._own: list[bytes] = []
        self._own_start = LOG_BEGIN

    def __bool__(self) -> bool:
        return bool(self._deltas or self._own)

    def begin(self, log_offset: LogOffset) -> None:
        """The log store holds the own log up to this offset."""
        self._own_start = log_offset

    def add_delta(self, raw: bytes) -> None:
        self._deltas.append(raw)

    def add_own(self, data: bytes) -> None:
        """The own log goes on with this."""
        self._own.append(data)

    def take(self) -> Persist:
        """All of it. The caller has it written."""
        persist = Persist(tuple(self._deltas), self._own_start, tuple(self._own))
        self._deltas = []
        self._own = []
        self._own_start = LogOffset(self._own_start + sum(map(len, persist.own)))
        return persist

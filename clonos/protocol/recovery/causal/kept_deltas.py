"""Others' logs in the state of an instance that repeats nothing.

It sends what a durable checkpoint has, and begins with its newest one, whatever was lost meanwhile: so what that
checkpoint depends on has to be as durable as the checkpoint. Every delta that has come is part of the state, until no
part of it is asked for any more. An instance that does repeat, and has lost its log with everything else on its host,
is given it from here.

Many small ones become one, as in the journal: an epoch may bring millions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.recovery.causal.delta import still_needed
from clonos.protocol.recovery.causal.delta_journal import FOLD_FROM, fold_deltas


class KeptDeltas(ABC):
    """Of one instance, numbered in the order in which they came. The runtime has the state that they are part of."""

    def __init__(self, fold_from: int = FOLD_FROM) -> None:
        self._fold_from = fold_from
        numbers = [number for number, _ in self.rows()]
        self._single = min(numbers, default=0)  # from here on they are as they came
        self._next = 1 + max(numbers, default=-1)

    @abstractmethod
    def rows(self, since: int = 0) -> Iterator[tuple[int, bytes]]:
        """Those of this number or a later one, in order."""

    @abstractmethod
    def write(self, changes: Mapping[int, bytes | None]) -> None:
        """In one step; None: it is gone."""

    def keep(self, raw: bytes) -> None:
        """It has come."""
        self.write({self._next: raw})
        self._next += 1
        if self._next - self._single > self._fold_from:
            self._fold()

    def _fold(self) -> None:
        single = dict(self.rows(self._single))
        if single:
            self.write({**dict.fromkeys(single), min(single): fold_deltas(single.values())})
        self._single = self._next

    def read(self) -> list[bytes]:
        """All that are there."""
        return [raw for _, raw in self.rows()]

    def forget(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """Those that say nothing of logs beyond these offsets."""
        gone = [number for number, raw in self.rows() if not still_needed(raw, truncation_points)]
        if gone:
            self.write(dict.fromkeys(gone))

"""What an instance has done in an epoch so far, in numbers.

They belong to the epoch's history as the state does: a step that is repeated counts again in a process that has begun
before it, and a snapshot inside the epoch says what had been counted by then. So they come out the same whatever was
lost meanwhile, and a row that is repeated is counted once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clonos.protocol.destination import NOWHERE, Destinations


@dataclass(frozen=True, slots=True)
class Counted:
    """The numbers at one moment."""

    consumed: int = 0
    """Records."""
    sent: tuple[int, ...] = ()
    """Rows, by reader; those that an earlier life has handed on are among them."""
    dropped: int = 0
    """Records that were late, of which nothing comes."""
    updated: int = 0
    """Entries of the keyed state that were written, timers among them; one counts as often as it was written."""
    removed: int = 0
    """Entries of the keyed state that were deleted."""


@dataclass(slots=True)
class StateChanges:
    """Of the keyed state, which counts them itself."""

    updated: int = 0
    removed: int = 0


class EpochCounts:
    """Of one instance, in the epoch that it is in."""

    def __init__(self) -> None:
        self.state = StateChanges()
        self.begin_epoch()

    def begin_epoch(self) -> None:
        self.restore(Counted())

    def restore(self, counted: Counted) -> None:
        """As they were when a snapshot was taken."""
        self._consumed, self._dropped = counted.consumed, counted.dropped
        self._sent = list(counted.sent)
        self.state.updated, self.state.removed = counted.updated, counted.removed

    def consume(self, records: int) -> None:
        self._consumed += records

    def drop(self, records: int) -> None:
        """Of those that are consumed, so many are late."""
        self._dropped += records

    def send(self, destinations: Destinations) -> None:
        """Rows of a step, by reader: where each goes."""
        rows = [len(column) - column.count(NOWHERE) for column in destinations]
        self._sent = _sum(self._sent, rows)

    @property
    def counted(self) -> Counted:
        state = self.state
        return Counted(self._consumed, tuple(self._sent), self._dropped, state.updated, state.removed)


def _sum(some: Sequence[int], more: Sequence[int]) -> list[int]:
    """The first is empty before the first rows, the second where there are no readers."""
    return (
        [one + other for one, other in zip(some, more, strict=True)] if some and more else [*(some or more)]
    )

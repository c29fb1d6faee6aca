"""Rounds: when the driver begins a checkpoint of the whole query, and when one is complete.

One round is open at a time (COR of "CheckMate", ICDE 2024: a round starts only when the one before is confirmed). What
the driver says to the instances is a state and no event: the round that has begun, the one that is complete, the epoch
that has committed. So it may be said twice, late, or not at all, as long as it is said again; and so may what instances
say: the last round of which each has stored its checkpoint, and in which epoch.

A round is complete when the checkpoint of every instance is stored, all of them in one epoch, and the epoch before that
has committed: until then Spark may run that epoch again, which lies before the round. A round in which an epoch has
ended for some instances comes to nothing, and the next one begins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from clonos.protocol.ids import NO_EPOCH, Epoch, Origin, epoch_before
from clonos.protocol.recovery.marker import NO_ROUND, Round


class StoredRound(NamedTuple):
    """A checkpoint of a round, and inside which epoch it was taken; ordered as they come. A process that has taken the
    place of one that was lost between two epochs may take its checkpoint of a round again, inside the next epoch."""

    epoch: Epoch
    round: Round


NOTHING_STORED: Final = StoredRound(NO_EPOCH, NO_ROUND)


@dataclass(frozen=True, slots=True)
class Rounds:
    """How far the rounds of a start of the query are."""

    begun: Round = NO_ROUND
    complete: StoredRound = NOTHING_STORED
    committed: Epoch = NO_EPOCH
    """The last epoch that has committed, and is recorded to have."""

    @property
    def open(self) -> Round:
        """The round that has begun and is not complete, as far as is known; `NO_ROUND` where there is none."""
        return self.begun if self.begun > self.complete.round else NO_ROUND

    def newest(self, other: Rounds) -> Rounds:
        """Of two that were said in one start, what is known by both."""
        return Rounds(
            max(self.begun, other.begun),
            max(self.complete, other.complete),
            max(self.committed, other.committed),
        )


class RoundCoordinator:
    """Of one start of the query, in its driver. `interval` is in seconds, from the beginning of a round to that of the
    next."""

    def __init__(self, instances: Collection[Origin], *, interval: float) -> None:
        self._instances = frozenset(instances)
        self._interval = interval
        self._due = 0.0
        self._stored: dict[Origin, Epoch] = {}  # of the open round, in which epoch
        self._closed = NO_ROUND  # the last that is complete, or came to nothing
        self.said = Rounds()

    @property
    def _is_open(self) -> bool:
        return self.said.begun > self._closed

    def told(self, stored: Mapping[Origin, StoredRound]) -> None:
        """What instances have stored last."""
        for origin, last in stored.items():
            if last.round == self.said.begun and origin in self._instances:
                self._stored[origin] = last.epoch

    def look(self, now: float, committed: Epoch) -> Rounds:
        """What is to be said now. `committed` is the last epoch that is recorded to have committed."""
        self.said = replace(self.said, committed=max(committed, self.said.committed))
        if self._is_open:
            self._close_if_due()
        if not self._is_open and now >= self._due:
            self.said = replace(self.said, begun=Round(self.said.begun + 1))
            self._stored = {}
            self._due = now + self._interval
        return self.said

    def _close_if_due(self) -> None:
        if not self._stored:
            return
        inside = max(self._stored.values())
        if min(self._stored.values()) < inside or inside <= self.said.committed:
            self._closed = self.said.begun
        elif self._stored.keys() == self._instances and epoch_before(inside) <= self.said.committed:
            self._closed = self.said.begun
            self.said = replace(self.said, complete=StoredRound(inside, self._closed))

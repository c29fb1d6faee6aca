"""When the driver begins a round, and when one is complete.

One round is open at a time (COR of "CheckMate", ICDE 2024: a round starts only when the one before is confirmed). A
round is complete when the checkpoint of every instance is stored, all of them in one epoch, and the epoch before that
has committed: until then Spark may run that epoch again, which lies before the round. A round in which an epoch has
ended for some instances comes to nothing, and the next one begins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from clonos.protocol.ids import Epoch, Origin, epoch_before
from clonos.protocol.recovery.marker import NO_ROUND, Round
from clonos.protocol.recovery.rollback.progress import Progress
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound


class RoundCoordinator(Progress):
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
        for origin, last in stored.items():
            if last.round == self.said.begun and origin in self._instances:
                self._stored[origin] = last.epoch

    def look(self, now: float, committed: Epoch) -> Rounds:
        self.close(committed)
        self.begin(now)
        return self.said

    def close(self, committed: Epoch) -> bool:
        """Whether a round is complete by now that was not before."""
        before = self.said.complete
        self.said = replace(self.said, committed=max(committed, self.said.committed))
        if self._is_open:
            self._close_if_due()
        return self.said.complete > before

    def begin(self, now: float) -> None:
        """The next round, if it is due."""
        if not self._is_open and now >= self._due:
            self.said = replace(self.said, begun=Round(self.said.begun + 1))
            self._stored = {}
            self._due = now + self._interval

    def _close_if_due(self) -> None:
        if not self._stored:
            return
        inside = max(self._stored.values())
        if min(self._stored.values()) < inside or inside <= self.said.committed:
            self._closed = self.said.begun
        elif self._stored.keys() == self._instances and epoch_before(inside) <= self.said.committed:
            self._closed = self.said.begun
            self.said = replace(self.said, complete=StoredRound(inside, self._closed))

"""Rounds of some instances, beside others that keep what they have sent: what of that may go.

A start of the query begins at the last complete round, or behind it. So what a reader has in its checkpoint of that
round is not asked for again. The line is drawn when a round is complete, and before the next one begins: then every
checkpoint of those that take part is durable, and none of them is newer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from clonos.protocol.ids import Epoch, NodeId, Origin
from clonos.protocol.recovery.coordinated.round_coordinator import RoundCoordinator
from clonos.protocol.recovery.rollback.progress import Progress
from clonos.protocol.recovery.rollback.rounds import (
    NOTHING_STORED,
    Rounds,
    SafePoint,
    StoredRound,
    later_of,
)
from clonos.protocol.recovery.uncoordinated.safe_line import DrawSafe


class RoundsBesideLogs(Progress):
    """Of one start of the query, in its driver. `keeping`: the nodes whose instances keep what they have sent."""

    def __init__(self, rounds: RoundCoordinator, draw: DrawSafe, keeping: Collection[NodeId]) -> None:
        self._rounds = rounds
        self._draw = draw
        self._keeping = frozenset(keeping)
        self._stored: dict[Origin, StoredRound] = {}
        self._safe: Mapping[Origin, SafePoint] = {}
        self._is_due = False
        self.said = Rounds()

    def told(self, stored: Mapping[Origin, StoredRound]) -> None:
        self._rounds.told(stored)
        for origin, last in stored.items():
            self._stored[origin] = max(last, self._stored.get(origin, NOTHING_STORED))

    def look(self, now: float, committed: Epoch) -> Rounds:
        """That a round is complete is said before anything is drawn. Raises what drawing a line raises; it is tried
        again at the next look."""
        if self._is_due:
            drawn = self._draw(self._stored)
            kept = {origin: point for origin, point in drawn.items() if origin.node in self._keeping}
            self._safe = later_of(self._safe, kept)
            self._is_due = False
        if self._rounds.close(committed):
            self._is_due = True
        else:
            self._rounds.begin(now)
        self.said = replace(self._rounds.said, safe=self._safe)
        return self.said

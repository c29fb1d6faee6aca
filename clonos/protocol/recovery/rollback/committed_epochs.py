"""What the driver says where nothing is stored inside an epoch, and hears: which epoch has committed, and how far sinks
have shown what they hold."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import replace

from clonos.protocol.ids import NO_EPOCH, Epoch, Origin
from clonos.protocol.recovery.rollback.progress import Progress
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound


class CommittedEpochs(Progress):
    """Of one start of the query, in its driver. `shown` is, by sink's instance, up to which epoch all is visible."""

    def __init__(self, shown: MutableMapping[Origin, Epoch]) -> None:
        self._shown = shown
        self.said = Rounds()

    def told(self, stored: Mapping[Origin, StoredRound]) -> None:
        for origin, last in stored.items():
            self._shown[origin] = max(last.epoch, self._shown.get(origin, NO_EPOCH))

    def look(self, now: float, committed: Epoch) -> Rounds:
        self.said = replace(self.said, committed=max(committed, self.said.committed))
        return self.said

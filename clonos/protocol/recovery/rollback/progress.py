"""What the driver of a start decides about its checkpoints, from what instances have stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound


class Progress(ABC):
    """Of one start of the query, in its driver."""

    said: Rounds

    @abstractmethod
    def told(self, stored: Mapping[Origin, StoredRound]) -> None:
        """What instances have stored last."""

    @abstractmethod
    def look(self, now: float, committed: Epoch) -> Rounds:
        """What is to be said now, in seconds of any steady clock. `committed` is the last epoch that is recorded to
        have committed."""

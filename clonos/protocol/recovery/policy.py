"""What the recovery of a query decides for one instance.

The engine, the sessions and the runtimes know no recovery by its name: they ask the policy, and carry out its decisions
in order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.recovery_kind import RecoveryKind


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The instance is to take its checkpoint of a round now, and then to send the marker on."""

    round: Round


Decision: TypeAlias = Bundle | Checkpoint
"""Records that the instance takes now, or what it does before it takes more."""


class InstancePolicy(ABC):
    """Of one instance in one process. What all instances of a recovery have in common, its `kind` says. `goes_back`:
    a line may lie before the newest checkpoints that it has taken alone, so the driver says which of them are kept."""

    kind: RecoveryKind
    goes_back: bool = False

    @abstractmethod
    def begin_epoch(self) -> None:
        """Input begins to come."""

    @abstractmethod
    def arrive(self, bundle: Bundle) -> Iterator[Decision]:
        """A bundle has come."""

    @abstractmethod
    def begin_round(self, begun: Round) -> Iterator[Decision]:
        """The driver has begun a round, or had begun it before the epoch began here; `NO_ROUND`: none is open."""

    @abstractmethod
    def end_input(self) -> Iterator[Decision]:
        """No more comes in this epoch."""

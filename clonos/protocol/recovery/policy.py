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


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The instance is to take its checkpoint of a round now, and then to send the marker on."""

    round: Round


Decision: TypeAlias = Bundle | Checkpoint
"""Records that the instance takes now, or what it does before it takes more."""


class InstancePolicy(ABC):
    """Of one instance in one process."""

    @property
    @abstractmethod
    def repeats(self) -> bool:
        """Whether steps are recorded, so that another process can repeat them in the place of a lost one."""

    @property
    @abstractmethod
    def replaces(self) -> bool:
        """Whether another process may take the place of a lost one inside an epoch."""

    @property
    @abstractmethod
    def sends_late(self) -> bool:
        """Whether nothing leaves the instance before a checkpoint that has it is durable."""

    @property
    @abstractmethod
    def checkpoints_alone(self) -> bool:
        """Whether the instance takes checkpoints inside an epoch whenever its own work is reason enough."""

    @property
    @abstractmethod
    def logs_messages(self) -> bool:
        """Whether the instance keeps what it sends, as part of its state."""

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

"""What the recovery of a query decides for one instance.

The engine, the sessions and the runtimes know no recovery by its name: they ask the policy, and carry out its decisions
in order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from clonos.protocol.fence import Generation
from clonos.protocol.ports import Bundle, Emit
from clonos.protocol.recovery.coordinated.last_marker import LastMarker
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.recovery_kind import RecoveryKind


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The instance is to take a checkpoint now: of a round, whose marker it then sends on; None: of its own."""

    round: Round | None


ALONE: Final = Checkpoint(None)


@dataclass(frozen=True, slots=True)
class BeginCheckpoint:
    """The instance is to fix its state for a checkpoint of a round now, and then to send the marker on. An earlier one
    that is not complete never will be."""

    round: Round


@dataclass(frozen=True, slots=True)
class KeepInCheckpoint:
    """These records belong to what was begun, too: an instance that begins with it takes them first. They are kept as
    they are now, before this instance takes them: its function may change what it is given."""

    records: Bundle


@dataclass(frozen=True, slots=True)
class CompleteCheckpoint:
    """What was begun is complete. `reached`: by channel, the last position of the records that were kept for it."""

    reached: Mapping[int, int]


CheckpointStep: TypeAlias = Checkpoint | BeginCheckpoint | KeepInCheckpoint | CompleteCheckpoint
Decision: TypeAlias = Bundle | CheckpointStep
"""Records that the instance takes now, or what it does before it takes more."""


class InstancePolicy(ABC):
    """Of one instance in one process. What all instances of a recovery have in common, its `kind` says. `goes_back`:
    a line may lie before the newest checkpoints that it has taken alone, so the driver says which of them are kept.
    `in_rounds`: it takes checkpoints of rounds."""

    kind: RecoveryKind
    goes_back: bool = False
    in_rounds: bool = False

    @abstractmethod
    def begin_epoch(self) -> None:
        """Input begins to come."""

    @property
    def is_aligning(self) -> bool:
        """Whether it holds records that have come, or would hold those that come: they are in no checkpoint yet."""
        return False

    def resume(self, kept: bytes, generation: Generation) -> None:
        """Behind `begin_epoch`: it begins inside the epoch, in this start of the query, with a checkpoint that has
        this."""
        raise NotImplementedError(f"{self.kind.value} keeps nothing of its own in a checkpoint")

    def take_checkpoint(self, *, counts: bool = True) -> bytes:
        """The instance takes one inside the epoch, for whatever reason; what is to be kept in it. `counts`: it is kept
        until no failure can lead to it any more."""
        return b""

    def send_marker(self, marker: LastMarker) -> None:
        """It is to be sent when the checkpoint is stored that is taken next."""
        raise NotImplementedError(f"with {self.kind.value} a marker waits for nothing")

    @property
    def last_marker(self) -> LastMarker | None:
        """Of this start of the query, where a process takes the place of a lost one that has sent it, or would have."""
        return None

    def send(self, emit: Emit) -> Emit:
        """Rows are about to be sent, for the first time; with what is to ride along."""
        return emit

    @abstractmethod
    def arrive(self, bundle: Bundle) -> Iterator[Decision]:
        """A bundle has come."""

    @abstractmethod
    def begin_round(self, begun: Round) -> Iterator[Decision]:
        """The driver has begun a round, or had begun it before the epoch began here; `NO_ROUND`: none is open."""

    @abstractmethod
    def end_input(self) -> Iterator[Decision]:
        """No more comes in this epoch."""

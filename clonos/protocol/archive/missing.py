"""Which epochs an instance lacks in an archive while other instances have something of them, and what is known of why.

The archive is on for all operators or for none, and an instance leaves the end of each epoch before that commits. So
what one instance has of an epoch that has committed, all have had. Retention drops an instance's oldest epochs, at
times of its own: up to the end of an epoch at which a state stays, and the states before that one first.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby

from clonos.protocol.epoch_run import run_said, runs_of
from clonos.protocol.ids import Epoch, epoch_after


class Absence(enum.Enum):
    """What is known of why epochs are not there."""

    DROPPED = "dropped, as archive.keep and archive.size do it for each instance alone, or lost"
    LOST = "lost"
    NOT_ENDED = "lost, or not ended when the query was stopped: then start it, so that they end"
    NOT_KEPT = "lost, or ended by a start of the query without an archive"
    NOTHING = "nothing of the instance is in the archive any more: lost, or dropped"

    @property
    def is_certain(self) -> bool:
        """Whether something is missing that should be there."""
        return self in (Absence.LOST, Absence.NOTHING)


@dataclass(frozen=True, slots=True)
class MissingEpochs:
    """From one to another, one behind the other, that an instance lacks."""

    first: Epoch
    last: Epoch
    absence: Absence

    def __str__(self) -> str:
        return run_said(self.first, self.last)

    @property
    def why(self) -> str:
        return self.absence.value

    def __contains__(self, epoch: Epoch) -> bool:
        return self.first <= epoch <= self.last


@dataclass(frozen=True, slots=True)
class InstanceKeeps:
    """What is known of an instance: the epochs that it has in the archive, and the oldest at whose end it has a state;
    of which epochs `any` instance has something; and the last one that has `committed`."""

    has: AbstractSet[Epoch]
    oldest_state: Epoch | None
    any: AbstractSet[Epoch]
    committed: Epoch

    def absence(self, epoch: Epoch) -> Absence:
        """Of an epoch that it lacks, or the end of it, and another instance has."""
        if epoch > self.committed:
            return Absence.NOT_ENDED
        if not self.has:
            return Absence.NOTHING
        if epoch < min(self.has):
            is_dropped = self.oldest_state is not None and epoch <= self.oldest_state
            return Absence.DROPPED if is_dropped else Absence.LOST
        if epoch < self.committed and epoch_after(epoch) not in self.any:
            return Absence.NOT_KEPT
        return Absence.LOST

    def missing(self, lacks: Iterable[Epoch]) -> tuple[MissingEpochs, ...]:
        """These epochs, in order, as far as they are next to each other and the same is known of them."""
        return tuple(
            MissingEpochs(first, last, absence)
            for absence, epochs in groupby(sorted(lacks), key=self.absence)
            for first, last in runs_of(epochs)
        )

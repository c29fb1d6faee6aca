"""What the driver and the instances of a start tell each other where instances go back together.

What the driver says to the instances is a state and no event: the round that has begun, what is complete, the epoch
that has committed. So it may be said twice, late, or not at all, as long as it is said again; and so may what instances
say: the last checkpoint that each has stored, and in which epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from clonos.protocol.fence import NO_GENERATION, Generation
from clonos.protocol.ids import NO_EPOCH, Epoch, Origin, OutputNumber
from clonos.protocol.recovery.marker import NO_ROUND, Round


class StoredRound(NamedTuple):
    """A checkpoint, and inside which epoch it was taken; ordered as they come. It is of a round, or, where instances
    take checkpoints alone, of this number of the instance's own. A process that has taken the place of one that was
    lost between two epochs may take its checkpoint of a round again, inside the next epoch."""

    epoch: Epoch
    round: Round


NOTHING_STORED: Final = StoredRound(NO_EPOCH, NO_ROUND)


@dataclass(frozen=True, slots=True)
class SafePoint:
    """Where an instance begins at the earliest, whatever fails. Of what it has sent, rows from `unread` on may have to
    be sent again."""

    stored: StoredRound
    unread: OutputNumber

    def later(self, other: SafePoint) -> SafePoint:
        return SafePoint(max(self.stored, other.stored), max(self.unread, other.unread))


@dataclass(frozen=True, slots=True)
class Rounds:
    """How far a start of the query is. `complete` is the last round of all instances, `safe` is by instance where
    checkpoints are taken alone. Rounds, and the checkpoints of instances, are numbered anew in each start: what was
    said in an earlier one means nothing in this one."""

    begun: Round = NO_ROUND
    complete: StoredRound = NOTHING_STORED
    committed: Epoch = NO_EPOCH
    """The last epoch that has committed, and is recorded to have."""
    safe: Mapping[Origin, SafePoint] = field(default_factory=dict)
    generation: Generation = NO_GENERATION
    """The start that it was said in, as the replica server has heard."""

    def in_start(self, generation: Generation) -> Rounds:
        """As far as it was said in that one."""
        return self if self.generation == generation else Rounds(generation=generation)

    @property
    def open(self) -> Round:
        """The round that has begun and is not complete, as far as is known; `NO_ROUND` where there is none."""
        return self.begun if self.begun > self.complete.round else NO_ROUND

    def safe_for(self, origin: Origin) -> StoredRound:
        """The last checkpoint of an instance that no failure leads behind."""
        safe = self.safe.get(origin)
        return self.complete if safe is None else max(self.complete, safe.stored)

    def shows_more_than(self, other: Rounds) -> bool:
        """Whether more may be seen than when the other was said, beside what has committed."""
        return self.complete > other.complete or self.safe != other.safe

    def newest(self, other: Rounds) -> Rounds:
        """Of two that were said in one start, what is known by both; else, what was said in the later one."""
        if self.generation != other.generation:
            return self if self.generation > other.generation else other
        return Rounds(
            max(self.begun, other.begun),
            max(self.complete, other.complete),
            max(self.committed, other.committed),
            self.safe if self.safe == other.safe else later_of(self.safe, other.safe),
            self.generation,
        )


def later_of(some: Mapping[Origin, SafePoint], others: Mapping[Origin, SafePoint]) -> dict[Origin, SafePoint]:
    """By instance the later of two points."""
    found = dict(some)
    for origin, point in others.items():
        before = found.get(origin)
        found[origin] = point if before is None else before.later(point)
    return found

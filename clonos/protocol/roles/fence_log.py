"""Fences, takings and commit records that are kept as a log whose order all see alike.

A store that can compare and set in one step (a database, a locked file) looks at the fence that stands and writes in
its place. A log that others append to cannot: between looking and appending, another entry may come. So an entry is an
*offer*. What it does is decided by what stands where it came to lie in the log, by the rules of `sink_fence` and
`kept_commit`, and each reader that reads the log from its beginning decides alike. A process that appended one reads
as far as it, and knows. An entry that arrives late, or twice, is refused there as it would have been in a database.

A sink instance that takes its fence for the first time is given a partition of the log of determinants: the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Origin
from clonos.protocol.line.kept_commit import KeptCommit, supersedes
from clonos.protocol.roles.sink_fence import Holder, check_driver, check_taking

FIRST_PARTITION = 1
"""Of a sink instance; the fence log itself is in partition 0."""


@dataclass(frozen=True, slots=True)
class Taking:
    """A writer wants to be the holder of a sink instance."""

    origin: Origin
    holder: Holder


@dataclass(frozen=True, slots=True)
class Raising:
    """A start of the query raises the fences of all instances, and the floor for those yet unseen."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class Recording:
    """A driver's commit record."""

    kept: KeptCommit


@dataclass(frozen=True, slots=True)
class Trimming:
    """A driver needs nothing any more of what an instance's log has before an offset."""

    fence: Fence
    origin: Origin
    before: int


Offer = Taking | Raising | Recording | Trimming


@dataclass(slots=True)
class FenceLog:
    """What stands after all entries that have been applied."""

    floor: Fence = LOWEST_FENCE
    holders: dict[Origin, Holder] = field(default_factory=dict)
    partitions: dict[Origin, int] = field(default_factory=dict)
    commit: KeptCommit | None = None
    trimmed: dict[Origin, int] = field(default_factory=dict)

    def holder(self, origin: Origin) -> Holder:
        return self.holders.get(origin, Holder())

    def apply(self, offer: Offer) -> None:
        """Raises Fenced where the offer is refused; nothing has changed then."""
        match offer:
            case Taking(origin, holder):
                check_taking(holder, self.holder(origin), floor=self.floor, origin=origin)
                self.holders[origin] = holder
                self.partitions.setdefault(origin, FIRST_PARTITION + len(self.partitions))
            case Raising(fence):
                self.floor = max(self.floor, fence)
                self.holders = {origin: held.raised_to(fence) for origin, held in self.holders.items()}
            case Recording(kept):
                if supersedes(kept, self.commit, floor=self.floor):
                    self.commit = kept
            case Trimming(fence, origin, before):
                check_driver(fence, floor=self.floor)
                if origin in self.partitions and before > self.trimmed.get(origin, 0):
                    self.trimmed[origin] = before

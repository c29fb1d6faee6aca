"""Places that cannot reach each other for a while, perhaps in one direction only, while both are alive.

A cut holds what is sent: it arrives, in order, when the cut is over; or it breaks the connections that are used during
it, and what was sent on them is lost. Places are hosts, by their number, and what is on none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from clonos.sim.kernel import Kernel


class Place(IntEnum):
    """The hosts, and beside them the checkpoint storage and the outside that sinks write to."""

    DRIVER_HOST = 0
    SECOND_HOST = 1
    STORAGE = 2
    SINKS = 3


Way: TypeAlias = tuple[int, int]
"""From where, and where to."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Nothing gets through until then."""

    until: int
    holds: bool


OPEN: Final = Cut(0, holds=True)


class Partitions:
    """The cuts of one run."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._cuts: dict[Way, Cut] = {}

    def cut(self, way: Way, duration: int, *, holds: bool) -> None:
        until = self._kernel.now + duration
        if until > self._at(way).until:
            self._cuts[way] = Cut(until, holds)

    def opens(self, source: int, target: int) -> int:
        """The time from which on something sent now gets through."""
        return self._at((source, target)).until

    def passes(self, source: int, target: int) -> bool:
        return self._kernel.now >= self.opens(source, target)

    def answers(self, source: int, target: int) -> bool:
        """Whether a question gets there, and the answer back."""
        return self.passes(source, target) and self.passes(target, source)

    def breaks(self, source: int, target: int) -> bool:
        """Whether a connection that is used now is lost."""
        cut = self._at((source, target))
        return not cut.holds and self._kernel.now < cut.until

    def _at(self, way: Way) -> Cut:
        return self._cuts.get(way, OPEN)

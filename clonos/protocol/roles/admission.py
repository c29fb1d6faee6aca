"""Which conduits a replica server serves, and whether with the process that is there already.

Spark may run two attempts of one task at a time, and a conduit that is presumed dead may only be slow. Each connection
therefore shows a fence that rises with every incarnation, and the server remembers the highest one of each instance,
across its own death. Nothing is served under a fence that is not newer, nor one of a start of the query that is over. A
standby acts under no fence of its own: it may show the one that its primary, on another host, shows.

A process goes on with a later epoch only from the end of an earlier one: in the middle of one, what it holds in memory
may be ahead of what its conduit was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from clonos.protocol.fence import NO_FENCE, NO_GENERATION, Fence, Generation, generation_of
from clonos.protocol.ids import Epoch, Origin

GENERATION: Final = Origin.of(0, 0)
"""Where the generation is kept among the fences: no node has number 0."""


class Said(Protocol):
    """Of what a conduit says when it connects."""

    @property
    def epoch(self) -> Epoch: ...

    @property
    def fence(self) -> Fence: ...

    @property
    def fresh(self) -> bool: ...

    @property
    def is_retry(self) -> bool: ...

    @property
    def standby(self) -> bool: ...


class Fences:
    """The highest fence that each instance was shown, and the lowest generation that is still allowed.

    `keep` writes one down before it counts. What it has written must outlive the process and the power of its host: a
    host that comes back must not serve an old task, on another host, under a fence that has been overtaken here. (It
    could serve it as a standby, which claims nothing, and rewrite a log that effects depend on.)
    """

    def __init__(
        self, keep: Callable[[Origin, Fence], None], kept: Mapping[Origin, Fence] | None = None
    ) -> None:
        self._keep = keep
        self._fences = dict(kept or {})

    @property
    def generation(self) -> Generation:
        return Generation(self._fences.get(GENERATION, NO_GENERATION))

    def fence(self, origin: Origin) -> Fence | None:
        return self._fences.get(origin)

    def raise_to(self, origin: Origin, fence: Fence) -> bool:
        """Takes the fence if it is above every earlier one."""
        return self._take(origin, fence, standby=False)

    def admit_standby(self, origin: Origin, fence: Fence) -> bool:
        """Takes the fence if it is not below an earlier one."""
        return self._take(origin, fence, standby=True)

    def raise_generation(self, generation: Generation) -> None:
        if generation > self.generation:
            self._raise(GENERATION, Fence(generation))

    def _take(self, origin: Origin, fence: Fence, *, standby: bool) -> bool:
        highest = self._fences.get(origin, NO_FENCE)
        if not admits(fence, standby=standby, highest=highest, generation=self.generation):
            return False
        if fence > highest:
            self._raise(origin, fence)
        return True

    def _raise(self, origin: Origin, fence: Fence) -> None:
        self._keep(origin, fence)
        self._fences[origin] = fence


def admits(fence: Fence, *, standby: bool, highest: Fence, generation: Generation) -> bool:
    """Whether a connection may be served: `highest` is the highest fence that the instance was shown (-1: none),
    `generation` the start of the query that runs."""
    if generation_of(fence) < generation:
        return False
    return fence >= highest if standby else fence > highest


def goes_on(said: Said, *, last: Said | None, at_end: Epoch | None) -> bool:
    """Whether the process that serves the instance may go on with this connection, after what it was told `last`.
    `at_end` is the epoch at whose end it stands, if it does."""
    if not said.fresh or last is None or generation_of(last.fence) != generation_of(said.fence):
        return False
    if not said.standby and (said.is_retry or said.fence.replacement):
        return False  # the attempt before, or the replica before, may have run elsewhere
    if at_end is not None:
        return at_end < said.epoch  # Spark runs no task of a stage that it knows to have no input
    # A standby may still be at the end of the epoch before when its conduit is gone.
    return said.standby and last.standby and last.epoch < said.epoch

"""The driver's watch over commits: when something may be forgotten. Mirrors `clonos.spark.coordinator`.

Only when `commits/<N>` stands, and has been recorded, may anything go, and only what lies before the snapshots at the
end of epoch N.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.core.delta import segments_for, still_needed
from clonos.core.fence import Fence
from clonos.core.identity import Origin
from clonos.core.recovery import HolderReply
from clonos.errors import ClonosError

if TYPE_CHECKING:
    from clonos.sim.commits import Commits
    from clonos.sim.driver import Driver
    from clonos.sim.world import World

POLL = 8_000


class Coordinator:
    """A thread of the driver."""

    def __init__(self, world: World, driver: Driver, commits: Commits) -> None:
        self._commits = commits
        self._world = world
        self._driver = driver
        self._truncated = -1

    def launch(self) -> None:
        self._world.kernel.after(POLL, self._driver.call, self._watch)

    def _watch(self) -> None:
        committed = self._world.checkpoint.committed
        if committed > self._truncated and self._driver.generation and self._driver.is_reachable:
            try:
                self._driver.leaders.check()
                self._truncate(committed)
                self._truncated = committed
            except ClonosError as error:
                self._world.trace(self._driver.name, f"logs were not truncated: {error}")
        self.launch()

    def _truncate(self, epoch: int) -> None:
        self._commits.record(epoch, self._driver.generation)
        stable = self.stable_offsets(epoch)
        self._world.trace(self._driver.name, f"truncates before the end of epoch {epoch}")
        for delay in self._world.faults.deliveries(f"commit of epoch {epoch}"):
            self._world.kernel.after(delay, self._world.tell_commit, epoch, stable)
        fence = Fence.of(self._driver.generation)
        for place in self._world.sinks.values():
            with self._world.checks.truncates_sink(place):
                place.truncate(fence, lambda raw: still_needed(raw, stable))
        self._world.copies_checkpoint()

    def stable_offsets(self, epoch: int) -> dict[Origin, int]:
        """Log offset of every instance's snapshot at the end of the epoch, or of the last one that it ran."""
        return {origin: end.log_offset for origin, end in self._commits.ends(epoch).items()}


def look_up_sinks(world: World, origin: Origin) -> HolderReply:
    """What the sinks keep of an instance's log."""
    world.faults.at_sink_log()
    segments: list[tuple[int, bytes]] = []
    required = 0
    corrupt: list[str] = []
    for place in world.sinks.values():
        for kept in place.log:
            if kept.damaged:
                corrupt.append(f"the log of sink {place.origin}")
                continue
            found, reach = segments_for(kept.raw, *origin)
            segments += found
            required = max(required, reach)
    return HolderReply("the sinks' logs", segments, required, tuple(corrupt))

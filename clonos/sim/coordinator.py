"""The driver's watch over commits: when something may be forgotten. Mirrors `clonos.spark.coordinator`.

Only when `commits/<N>` stands, and has been recorded, may anything go, and only what lies before the snapshots at the
end of epoch N.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from clonos.errors import ClonosError, Fenced
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.line.sink_trim import Page
from clonos.protocol.recovery.causal.delta import still_needed
from clonos.protocol.recovery.causal.holding import HolderReply, Index, told

if TYPE_CHECKING:
    from clonos.sim.commits import Commits
    from clonos.sim.driver import Driver
    from clonos.sim.sinks import SinkPlace
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
        self._world.faults.at_unrecorded_commit()
        self._commits.record(epoch, self._driver.generation)
        stable = self.stable_offsets(epoch)
        self._world.trace(self._driver.name, f"truncates before the end of epoch {epoch}")
        for delay in self._world.faults.deliveries(f"commit of epoch {epoch}"):
            self._world.kernel.after(delay, self._world.tell_commit, epoch, stable)
        fence = Fence.of(self._driver.generation)
        for place in self._world.sinks.values():
            page = place.page(lambda raw: still_needed(raw, stable))
            if not self._world.plan.late_trims:
                self._remove(place, fence, page)
                continue
            for delay in self._world.faults.deliveries(f"page of sink {place.origin}"):
                self._world.kernel.after(delay, self._remove_late, place, fence, page)
        self._world.copies_checkpoint()

    def _remove(self, place: SinkPlace, fence: Fence, page: Page) -> None:
        with self._world.checks.truncates_sink(place):
            place.remove(fence, page)

    def _remove_late(self, place: SinkPlace, fence: Fence, page: Page) -> None:
        """It was on its way, and may come after its driver's end."""
        try:
            self._remove(place, fence, page)
        except Fenced as error:
            self._world.trace(f"sink {place.origin}", f"drops nothing: {error}")

    def stable_offsets(self, epoch: int) -> dict[Origin, int]:
        """Log offset of every instance's snapshot at the end of the epoch, or of the last one that it ran."""
        return {origin: end.log_offset for origin, end in self._commits.ends(epoch).items()}


def look_up_sinks(world: World, origin: Origin) -> HolderReply:
    """What the sinks keep of an instance's log."""
    world.faults.at_sink_log()

    def read(place: SinkPlace) -> Index:
        index = Index()
        index.take_deltas(kept.raw for kept in place.log if not kept.damaged)
        if any(kept.damaged for kept in place.log):
            index.damage(f"the log of sink {place.origin}")
        return index

    return told("the sinks' logs", origin, 0, [partial(read, place) for place in world.sinks.values()])

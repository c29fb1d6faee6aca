"""A query may stop with `GapError` only where determinants are missing: a log that can be read has no gap. And records
that a conduit has forgotten are missed only where a snapshot may have been lost.

Two cases are not checked. Where instances have standbys, what an instance wrote may have been overtaken, and is not
believed although it can be read. And where an old copy of a disk holds what an instance did before it did otherwise,
other holders know, with a finite sharing depth, the digest of what the instance did last, and not its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.errors import ClonosError, GapError, InputForgotten
from clonos.protocol.ids import LOG_BEGIN, Origin
from clonos.sim.checks.losses import Losses, readable, readable_sink
from clonos.sim.checks.truncation import Truncation
from clonos.sim.checks.truth import Truth
from clonos.sim.checks.violation import Violation
from clonos.sim.plan import Fault

if TYPE_CHECKING:
    from clonos.sim.replica import Replica
    from clonos.sim.world import World

SNAPSHOTS_LOST = frozenset(
    {Fault.SNAPSHOT_PAGE, Fault.SNAPSHOTS_GONE, Fault.HOST_LOST, Fault.CHECKPOINT_OLDER}
)


class Gaps:
    """See the module."""

    def __init__(self, world: World, truth: Truth, truncation: Truncation, losses: Losses) -> None:
        self._world = world
        self._truth = truth
        self._truncation = truncation
        self._losses = losses

    def _is_an_older_checkpoint(self) -> bool:
        return any(one.kind is Fault.CHECKPOINT_OLDER for one in self._world.faults.struck)

    def _another_history_came_back(self, origin: Origin) -> bool:
        happened = self._truth.logs[origin]
        mine = [batch for store in self._world.stores() if store.owner == origin for batch in store.batches]
        return self._world.plan.may(Fault.OLD_DISK) and any(
            happened[start : start + len(data)] != data for batch in mine for start, data in batch.own
        )

    def failed(self, replica: Replica, error: ClonosError) -> None:
        """An instance has stopped, perhaps because of a gap in its log or in its input. A passive standby that takes
        over while it still restores an older snapshot has one, and is replaced."""
        origin = replica.origin
        lost = any(one.kind in SNAPSHOTS_LOST for one in self._world.faults.struck)
        if isinstance(error, InputForgotten) and not lost and not self._world.plan.passive:
            raise Violation("gaps", f"{replica.name} stops with {error}, and no snapshot was lost")
        if not isinstance(error, GapError) or self._world.plan.standbys or self._losses.may_hide(origin):
            return
        if self._world.plan.per_epoch and self._is_an_older_checkpoint():
            return  # what is gone stands in no log: records that were gathered
        if self._another_history_came_back(origin):
            return
        holders = [readable(store) for store in self._world.stores()]
        holders += [readable_sink(place) for place in self._world.sinks.values()]
        known = self._losses.held_anywhere(damaged=False)[origin]
        snapshot_is_gone = self._truncation.have_gone(origin)
        start = LOG_BEGIN if snapshot_is_gone else self._truncation.points().get(origin, LOG_BEGIN)
        needed = max([known.end, *(held.reach.get(origin, LOG_BEGIN) for held in holders)])
        # Else its snapshot is gone, and what that stood for
        if start <= needed and known.covers(start, needed):
            raise Violation(
                "gaps",
                f"{replica.name} stops with {error}, but everything from {start} to {needed} can be read",
            )

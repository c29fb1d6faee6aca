"""Event time that an instance has shown with its rows is known to all of its readers when an epoch ends, also to those
that none of the rows went to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.topology import NodeKind
from clonos.sim.checks.violation import Violation
from clonos.sim.event_time import watermark_of_output
from clonos.sim.records import Rows

if TYPE_CHECKING:
    from clonos.sim.checkpoint import Snapshot
    from clonos.sim.world import World


class EventTime:
    """For recoveries that repeat nothing, and readers that go by the rows alone."""

    def __init__(self, world: World) -> None:
        self._world = world
        plan = world.plan
        goes_by_rows = plan.seed % 4 == 1  # `sim.operator_host` says what readers go by
        self._is_checked = plan.event_time and goes_by_rows and not world.recoveries.some_repeat
        self._shown: dict[Origin, int] = {}

    def emits(self, origin: Origin, rows: Rows) -> None:
        moment = watermark_of_output(rows)
        if moment is not None:
            self._shown[origin] = max(moment, self._shown.get(origin, moment))

    def takes_snapshot(self, origin: Origin, snapshot: Snapshot) -> None:
        snapshot.shown = self._shown.get(origin)

    def goes_back(self, origin: Origin, found: Snapshot | None) -> None:
        if found is not None and found.shown is not None:
            self._shown[origin] = found.shown
        else:
            self._shown.pop(origin, None)

    def committed(self, epoch: Epoch) -> None:
        """Of the snapshots with which instances ended it."""
        if not self._is_checked:
            return
        topology, checkpoint = self._world.plan.dataflow.topology, self._world.checkpoint
        for sender in topology.instances(NodeKind.OPERATOR):
            ended = checkpoint.ended(sender, epoch)
            if ended is None or ended.name.epoch != epoch or ended.shown is None:
                continue
            for receiver in topology.receivers(sender.node):
                found = checkpoint.ended(receiver, epoch)
                if (
                    topology.node(receiver.node).kind is NodeKind.SINK
                    or found is None
                    or found.name.epoch != epoch
                ):
                    continue
                known, _ = found.instance.claims.get(sender.channel, (None, False))
                if known is None or known < ended.shown:
                    raise Violation(
                        "event time",
                        f"{receiver} ended epoch {epoch} and knows of {known} from {sender}, which has shown "
                        f"{ended.shown}",
                    )

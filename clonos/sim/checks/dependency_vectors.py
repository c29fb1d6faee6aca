"""What rides along says of every checkpoint that the rows depend on, at least: a checkpoint that is forced too late may
be on no line. In a dataflow without cycles no line would show it, so the vectors are compared with the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.protocol.destination import NOWHERE
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.line.snapshot_name import is_marked
from clonos.protocol.ports import Emit
from clonos.protocol.recovery.communication_induced.dependency_vector import DependencyVector
from clonos.protocol.recovery.communication_induced.instance_numbering import numbered_instances
from clonos.sim.checks.violation import Violation
from clonos.sim.records import Tag

if TYPE_CHECKING:
    from clonos.sim.checkpoint import Snapshot
    from clonos.sim.operator_host import OperatorHost
    from clonos.sim.world import World


class DependencyVectors:
    """For communication-induced checkpoints. Of instances that may go back checkpoints are counted in each epoch; where
    it begins is one."""

    def __init__(self, world: World) -> None:
        self._topology = world.plan.dataflow.topology
        counting = numbered_instances(self._topology, world.recoveries)
        self._numbers = {origin: at for at, origin in enumerate(counting)}  # by which vectors know them
        self._is_checked = world.recoveries.some_force

    def begins(self, host: OperatorHost, found: Snapshot | None, epoch: Epoch) -> None:
        is_inside = found is not None and found.name.epoch == epoch
        host.checkpoints = dict(found.checkpoints) if found is not None and is_inside else {host.origin: 1}

    def consumed(self, host: OperatorHost, tag: Tag) -> None:
        for origin, number in tag.checkpoints.items():
            host.checkpoints[origin] = max(number, host.checkpoints.get(origin, 0))

    def takes_snapshot(self, host: OperatorHost, snapshot: Snapshot) -> None:
        if is_marked(snapshot.name.sequence) and not snapshot.name.final:
            host.checkpoints = {**host.checkpoints, host.origin: host.checkpoints[host.origin] + 1}
        snapshot.checkpoints = dict(host.checkpoints)

    def emits(self, host: OperatorHost, emit: Emit) -> dict[Origin, int]:
        """What the rows depend on."""
        if not self._is_checked or host.origin not in self._numbers:
            return {}
        numbers, receivers = self._numbers, self._topology.receivers(host.origin.node)
        for target in {to for column in emit.destinations for to in column if to != NOWHERE}:
            if receivers[target] not in numbers:
                continue
            if target not in emit.deltas:
                raise Violation(
                    "dependencies", f"{host.origin} sends to {receivers[target]} without a vector"
                )
            said = DependencyVector.from_bytes(emit.deltas[target]).checkpoints
            for origin, number in host.checkpoints.items():
                if said[numbers[origin]] < number:
                    raise Violation(
                        "dependencies",
                        f"{host.origin} depends on checkpoint {number} of {origin}, and says "
                        f"{said[numbers[origin]]}",
                    )
        return dict(host.checkpoints)

"""The numbers by which dependency vectors know the instances of a query.

Only instances of operators that may go back have one, of those that take checkpoints inside an epoch. A source is read
again from where its readers stand, and so is an instance that stores before it sends and never goes back; a sink sends
nothing. What begins where the epoch does has no checkpoint behind it that could be useless, nor has what it sends to.
So no chain of rows leads through any of these.
"""

from __future__ import annotations

from dataclasses import dataclass

from clonos.protocol.ids import NodeId, Origin
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.topology import NodeKind, Topology


@dataclass(frozen=True, slots=True)
class InstanceNumbering:
    """For the instances of one operator."""

    first: int
    """The number of its first instance; the others follow."""
    count: int
    """Of all instances that have one."""
    by_destination: tuple[int | None, ...]
    """The instance that it is; None: one without a number."""

    @classmethod
    def of(cls, topology: Topology, recoveries: Recoveries, node: NodeId) -> InstanceNumbering:
        numbers = {origin: at for at, origin in enumerate(numbered_instances(topology, recoveries))}
        receivers = topology.receivers(node)
        return cls(
            numbers[Origin.of(node, 0)], len(numbers), tuple(numbers.get(origin) for origin in receivers)
        )


def numbered_instances(topology: Topology, recoveries: Recoveries) -> list[Origin]:
    """In the order of their numbers."""
    return [
        origin
        for origin in topology.instances(NodeKind.OPERATOR)
        if origin.node in recoveries.goes_back and not recoveries.by_node[origin.node].begins_epochs_again
    ]

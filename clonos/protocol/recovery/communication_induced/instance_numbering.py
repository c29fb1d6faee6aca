"""The numbers by which dependency vectors know the instances of a query.

Only operators' instances have one. A source is read again from where its readers stand, and a sink sends nothing, so
no chain of rows leads through either.
"""

from __future__ import annotations

from dataclasses import dataclass

from clonos.protocol.ids import NodeId, Origin
from clonos.protocol.topology import NodeKind, Topology


@dataclass(frozen=True, slots=True)
class InstanceNumbering:
    """For the instances of one operator."""

    first: int
    """The number of its first instance; the others follow."""
    count: int
    """Of the instances of all operators."""
    by_destination: tuple[int | None, ...]
    """The instance that it is; None: a sink's."""

    @classmethod
    def of(cls, topology: Topology, node: NodeId) -> InstanceNumbering:
        numbers = {origin: at for at, origin in enumerate(topology.instances(NodeKind.OPERATOR))}
        receivers = topology.receivers(node)
        return cls(
            numbers[Origin.of(node, 0)], len(numbers), tuple(numbers.get(origin) for origin in receivers)
        )

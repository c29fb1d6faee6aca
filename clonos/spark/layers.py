"""The layered plan: which stage of Spark runs which instances, and how blocks find them.

A stage is a layer of the dataflow: all operators and sinks that are equally far from the sources, counted along the
longest way. Its partitions are their instances, one after another. So one exchange lies between two layers, whatever
the dataflow, and a stream that feeds several nodes is computed once. A block for a later layer passes through those in
between, in a partition that does nothing but hand it on: one for each instance that is fed so, which keeps the blocks
of a channel in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from clonos.protocol.ids import InstanceId, NodeId, Origin
from clonos.protocol.topology import Node, NodeKind, Topology


@dataclass(frozen=True, slots=True)
class Forwarder:
    """A partition that hands blocks for an instance on to a partition of the next layer."""

    receiver: Origin
    to: int


@dataclass(frozen=True, slots=True)
class Layer:
    """A stage. Partition i is `partitions[i]`, the instances in front."""

    nodes: tuple[Node, ...]
    partitions: tuple[Origin | Forwarder, ...]


class Layers:
    """Of a topology. Layer 0 are the sources, which Spark partitions as it will."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._level: dict[NodeId, int] = {}
        for node in topology.nodes:
            above = (self._level[NodeId(number)] for number in node.upstream)
            self._level[node.number] = 0 if node.kind is NodeKind.SOURCE else 1 + max(above)
        self._receivers = [self._receivers_of(at) for at in range(1, max(self._level.values()) + 1)]
        self.stages = tuple(self._stage(at) for at in range(1, len(self._receivers) + 1))

    def first_partition(self, sender: NodeId, reader: NodeId) -> int:
        """The partition behind the sender's layer where blocks for instance 0 of a reader go; those for the others go
        to the ones behind it."""
        return self._partition(self._level[sender] + 1, Origin.of(reader, InstanceId(0)))

    def partitions_of(self, sender: NodeId) -> list[int]:
        """By destination of a node, the partition behind its layer."""
        return [
            self.first_partition(sender, reader.number) + instance
            for reader in self.topology.downstream(sender)
            for instance in range(reader.parallelism)
        ]

    def _receivers_of(self, layer: int) -> list[Origin]:
        """Whose blocks come to a layer: its own instances, and those that are fed through it."""
        own = [node for node in self.topology.nodes if self._level[node.number] == layer]
        fed = [node for node in self.topology.nodes if self._is_fed_through(node, layer)]
        return [
            Origin.of(node.number, InstanceId(at)) for node in own + fed for at in range(node.parallelism)
        ]

    def _is_fed_through(self, node: Node, layer: int) -> bool:
        senders = [self._level[NodeId(number)] for number in node.upstream]
        return self._level[node.number] > layer and any(level < layer for level in senders)

    def _partition(self, layer: int, receiver: Origin) -> int:
        return self._receivers[layer - 1].index(receiver)

    def _stage(self, layer: int) -> Layer:
        own = tuple(node for node in self.topology.nodes if self._level[node.number] == layer)
        return Layer(
            own,
            tuple(
                receiver
                if self._level[receiver.node] == layer
                else Forwarder(receiver, self._partition(layer + 1, receiver))
                for receiver in self._receivers[layer - 1]
            ),
        )

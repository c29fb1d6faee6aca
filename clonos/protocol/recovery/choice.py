"""Which policy an instance has, by the recovery of its query."""

from __future__ import annotations

from collections.abc import Collection

from clonos.protocol.ids import NodeId, Origin
from clonos.protocol.recovery.as_it_comes import AsItComes
from clonos.protocol.recovery.coordinated.alignment import Alignment
from clonos.protocol.recovery.policy import InstancePolicy
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import NodeKind, Topology


def instance_policy(kind: RecoveryKind, senders: Collection[int], *, goes_back: bool) -> InstancePolicy:
    """Of an instance in a new process. `senders` are the channels from other instances."""
    if kind is RecoveryKind.COORDINATED:
        return Alignment(senders)
    return AsItComes(kind, goes_back=goes_back)


def senders_of(topology: Topology, node: NodeId) -> frozenset[int]:
    """The channels on which an instance of `node` is sent rows by instances of operators."""
    upstream = [topology.node(number) for number in topology.node(node).upstream]
    return frozenset(
        Origin.of(sender.number, instance).channel
        for sender in upstream
        if sender.kind is NodeKind.OPERATOR
        for instance in range(sender.parallelism)
    )

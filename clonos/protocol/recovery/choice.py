"""Which policy an instance has, by the recovery of its node."""

from __future__ import annotations

from dataclasses import dataclass

from clonos.protocol.ids import NodeId, Origin
from clonos.protocol.recovery.as_it_comes import AsItComes
from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.recovery.communication_induced.forced_checkpoints import ForcedCheckpoints
from clonos.protocol.recovery.communication_induced.instance_numbering import InstanceNumbering
from clonos.protocol.recovery.coordinated.alignment import Alignment
from clonos.protocol.recovery.coordinated.channel_states import ChannelStates
from clonos.protocol.recovery.policy import InstancePolicy
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import NodeKind, Topology


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """For the instances of one operator or sink, each in a process of its own."""

    kind: RecoveryKind = RecoveryKind.CAUSAL
    goes_back: bool = False
    """A failure may lead the instances behind their newest checkpoints."""
    senders: frozenset[int] = frozenset()
    """The channels from other instances, on which markers come."""
    in_rounds: bool = False
    """It takes checkpoints together with others."""
    aligns: bool = False
    """Where there are markers, a channel that has been marked is held."""
    numbering: InstanceNumbering | None = None
    """Where checkpoints are forced. No row forces one of a sink, which sends nothing, or of an instance that never goes
    back."""
    marks_checkpoints: bool = False
    """It repeats nothing, and others have logs (`causal.checkpoint_marks`)."""
    others_keep_logs: bool = False
    """It has a log, and checkpoints of others that repeat nothing have it, too (`causal.kept_deltas`)."""

    shares_all: bool = False
    """Some instance behind it keeps others' logs in its checkpoints, so no determinant is held back, however far it has
    come."""

    @classmethod
    def of(cls, topology: Topology, recoveries: Recoveries, node: NodeId) -> PolicyChoice:
        kind = recoveries.by_node[node]
        is_operator = topology.node(node).kind is NodeKind.OPERATOR
        is_forced = recoveries.some_force and node in recoveries.goes_back and not kind.begins_epochs_again
        return cls(
            kind,
            node in recoveries.goes_back,
            _senders(topology, recoveries, node),
            in_rounds=node in recoveries.in_rounds,
            aligns=kind is not RecoveryKind.UNALIGNED or not is_operator,
            numbering=InstanceNumbering.of(topology, recoveries, node) if is_forced and is_operator else None,
            marks_checkpoints=is_operator and not kind.repeats and recoveries.some_repeat,
            others_keep_logs=kind.repeats and not recoveries.all_repeat,
            shares_all=recoveries.some_repeat and _is_before_one_that_keeps_logs(topology, recoveries, node),
        )

    def sharing_depth(self, wanted: int) -> int:
        """To which depth its instances hand on determinants, where `wanted` is that of the query."""
        return FULL if self.shares_all else wanted

    def policy(self, instance: int) -> InstancePolicy:
        """In a new process."""
        if self.in_rounds:
            return Alignment(self.senders, self.kind) if self.aligns else ChannelStates(self.senders)
        if self.numbering is not None:
            return ForcedCheckpoints(instance, self.numbering, self.kind)
        return AsItComes(self.kind, goes_back=self.goes_back)


def _is_before_one_that_keeps_logs(topology: Topology, recoveries: Recoveries, node: NodeId) -> bool:
    return any(
        reader.kind is NodeKind.OPERATOR
        and (
            not recoveries.repeats(NodeId(reader.number))
            or _is_before_one_that_keeps_logs(topology, recoveries, NodeId(reader.number))
        )
        for reader in topology.downstream(node)
    )


def _senders(topology: Topology, recoveries: Recoveries, node: NodeId) -> frozenset[int]:
    """The channels on which an instance of `node` is sent markers: those from instances that take part in rounds."""
    upstream = [topology.node(number) for number in topology.node(node).upstream]
    return frozenset(
        Origin.of(sender.number, instance).channel
        for sender in upstream
        if sender.kind is NodeKind.OPERATOR and NodeId(sender.number) in recoveries.in_rounds
        for instance in range(sender.parallelism)
    )

"""Which recovery each operator and each sink of a query has, and what follows from them together.

Operators of different recoveries go together where one line can be drawn through all of them: those that keep what
they have sent (`RecoveryKind.logs_messages`), and those that begin where the epoch does. When a process of eager
checkpoints is lost, nothing goes back. When one of uncoordinated checkpoints is, what is behind it may have to go back
with it, whatever recovery that has: so it keeps more than its newest checkpoints, and a sink there holds its rows
(`protocol.recovery.rollback.held_output`). What is behind an operator that does its epochs again as a whole has to do
the same, so it takes no checkpoints inside an epoch either; what is before sends again what it has kept, and is the
firewall of Isard and Abadi, "Falkirk Wheel: Rollback Recovery for Dataflow Systems", 2015, section 2.3.

What is behind an operator that takes checkpoints in rounds takes part in them. An eager one in front of all of those is
a firewall, too: it sends again from where each reader begins, as a source is read again, so a round has no markers on
its channels. It is the same where rows force checkpoints: no chain of rows that makes a checkpoint useless leads
through an instance that never goes back.

Operators of causal logging go together with eager ones: neither ever undoes what another instance has. An eager one in
front of causal ones sends the same rows again from what it has kept; one behind them has the determinants of what its
checkpoint depends on, so that these repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from clonos.protocol.ids import NodeId
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import Node, NodeKind, Topology


@dataclass(frozen=True, slots=True)
class Recoveries:
    """Of the operators and sinks of one query. `default` is that of the query. `goes_back`: nodes whose instances a
    failure may lead to older checkpoints than their newest ones, of those that they take alone. `in_rounds`: nodes
    whose instances take checkpoints together."""

    default: RecoveryKind
    by_node: Mapping[NodeId, RecoveryKind]
    goes_back: frozenset[NodeId]
    in_rounds: frozenset[NodeId] = frozenset()

    @classmethod
    def of(
        cls, topology: Topology, default: RecoveryKind, own: Mapping[NodeId, RecoveryKind] | None = None
    ) -> Recoveries:
        """`own` are those of operators that say which one they have. A sink shows rows at once if none of
        the operators before it goes back."""
        own = {number: kind for number, kind in (own or {}).items() if kind is not default}

        def and_behind(has: Callable[[RecoveryKind], bool]) -> Callable[[NodeId], bool]:
            """Whether a node is an operator of such a recovery, or behind one."""

            @cache
            def is_one(number: NodeId) -> bool:
                node = topology.node(number)
                if node.kind is NodeKind.OPERATOR and has(own.get(number, default)):
                    return True
                return any(is_one(NodeId(before)) for before in node.upstream)

            return is_one

        begins_epochs_again = and_behind(lambda kind: kind.begins_epochs_again)
        goes_back = and_behind(lambda kind: kind.begins_at_older_ones)
        in_rounds = and_behind(lambda kind: kind.has_rounds)
        of_operators = {
            own.get(NodeId(node.number), default) for node in topology.nodes if node.kind is NodeKind.OPERATOR
        }

        some_repeat = any(each.repeats for each in of_operators)

        def kind(node: Node) -> RecoveryKind:
            if begins_epochs_again(NodeId(node.number)):
                return RecoveryKind.BATCH
            if node.kind is NodeKind.OPERATOR or not own:
                return own.get(NodeId(node.number), default)
            if some_repeat:  # what is visible depends on determinants, which a sink keeps beside it
                return RecoveryKind.CAUSAL
            if in_rounds(NodeId(node.number)):
                return next(each for each in of_operators if each.has_rounds)
            if goes_back(NodeId(node.number)):
                return next(each for each in of_operators if each.begins_at_older_ones)
            return RecoveryKind.EAGER

        nodes = [node for node in topology.nodes if node.kind is not NodeKind.SOURCE]
        return cls(
            default,
            {NodeId(node.number): kind(node) for node in nodes},
            frozenset(
                NodeId(node.number)
                for node in nodes
                if kind(node).begins_at_older_ones
                or goes_back(NodeId(node.number))
                or (in_rounds(NodeId(node.number)) and kind(node).sends_late)
            ),
            frozenset(NodeId(node.number) for node in nodes if in_rounds(NodeId(node.number))),
        )

    def sent_back_by(self, topology: Topology, number: NodeId) -> list[Node]:
        """The operators in front of a node with whose instances it may have to go back."""
        before, found = set(topology.node(number).upstream), set()
        while before:
            node = topology.node(before.pop())
            before |= set(node.upstream)
            kind = self.by_node.get(NodeId(node.number))
            if kind is not None and (kind.begins_at_older_ones or kind.has_rounds):
                found.add(node.number)
        return [topology.node(each) for each in sorted(found)]

    @property
    def line_kind(self) -> RecoveryKind:
        """That by which a line is drawn: where some instances keep what they have sent, it is looked for."""
        return next((kind for kind in self.by_node.values() if kind.logs_messages), self.default)

    @property
    def keeping(self) -> frozenset[NodeId]:
        """The nodes whose instances keep what they send."""
        return frozenset(node for node, kind in self.by_node.items() if kind.logs_messages)

    def repeats(self, node: NodeId) -> bool:
        """Whether the instances of an operator repeat what they did."""
        return self.by_node[node].repeats

    @property
    def repeating(self) -> frozenset[NodeId]:
        """The nodes of which this is so."""
        return frozenset(node for node, kind in self.by_node.items() if kind.repeats)

    @property
    def some_repeat(self) -> bool:
        """Whether there are logs of determinants in the query."""
        return bool(self.repeating)

    @property
    def some_force(self) -> bool:
        """Whether rows force checkpoints, of all operators that go back."""
        return any(kind.forces_checkpoints for kind in self.by_node.values())

    @property
    def all_repeat(self) -> bool:
        """Whether nothing is ever done anew that was seen elsewhere."""
        return all(kind.repeats for kind in self.by_node.values())

    def by_name(self, topology: Topology) -> dict[str, RecoveryKind]:
        """Of the operators and sinks of a program."""
        return {topology.node(number).name: kind for number, kind in self.by_node.items()}

    @property
    def replace(self) -> bool:
        """Whether every lost process is replaced alone, and all rows are seen at once."""
        return all(kind.replaces for kind in self.by_node.values())

    def holds(self, sink: NodeId) -> bool:
        """Whether a sink holds rows until they may be seen, and so has checkpoints of its own."""
        return not self.by_node[sink].replaces

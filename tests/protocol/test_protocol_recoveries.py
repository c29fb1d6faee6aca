"""Which recovery operators and sinks have, and which of them may go back."""

from __future__ import annotations

import pytest

from clonos.protocol.ids import NodeId
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import Node, NodeKind, Topology

EAGER, UNCOORDINATED = RecoveryKind.EAGER, RecoveryKind.UNCOORDINATED


def node(number: int, kind: NodeKind, *upstream: int) -> Node:
    return Node(number, kind, f"n{number}", 1, upstream=upstream)


DIAMOND = Topology(
    (
        node(1, NodeKind.SOURCE),
        node(2, NodeKind.OPERATOR, 1),
        node(3, NodeKind.OPERATOR, 2),
        node(4, NodeKind.OPERATOR, 2),
        node(5, NodeKind.OPERATOR, 3, 4),
        node(6, NodeKind.SINK, 5),
        node(7, NodeKind.SINK, 4),
    )
)
"""2 feeds 3 and 4; both feed 5, which feeds the sink 6. The sink 7 reads 4."""


@pytest.mark.parametrize("kind", RecoveryKind)
def test_all_have_that_of_the_query(kind: RecoveryKind) -> None:
    found = Recoveries.of(DIAMOND, kind)
    assert set(found.by_node.values()) == {kind} and found.by_node.keys() == set(range(2, 8))
    assert bool(found.goes_back) == (kind is UNCOORDINATED)
    assert found.replace == (not found.holds(NodeId(6))) == kind.replaces


@pytest.mark.parametrize("default", [EAGER, UNCOORDINATED])
def test_what_is_behind_an_operator_that_goes_back_goes_back_with_it(default: RecoveryKind) -> None:
    """3 alone has uncoordinated checkpoints."""
    own = {3: UNCOORDINATED} if default is EAGER else {2: EAGER, 4: EAGER, 5: EAGER}
    found = Recoveries.of(DIAMOND, default, {NodeId(number): kind for number, kind in own.items()})
    assert {number: found.by_node[NodeId(number)] for number in (2, 3, 4, 5)} == {
        2: EAGER,
        3: UNCOORDINATED,
        4: EAGER,
        5: EAGER,
    }
    assert found.goes_back == {3, 5, 6}
    assert found.holds(NodeId(6)) and not found.holds(NodeId(7)) and not found.replace

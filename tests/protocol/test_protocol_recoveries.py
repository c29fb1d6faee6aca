"""Which recovery operators and sinks have, and which of them may go back."""

from __future__ import annotations

import pytest

from clonos.protocol.ids import NodeId, Origin
from clonos.protocol.recovery.choice import PolicyChoice
from clonos.protocol.recovery.coordinated.alignment import Alignment
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import Node, NodeKind, Topology

EAGER, UNCOORDINATED, BATCH = RecoveryKind.EAGER, RecoveryKind.UNCOORDINATED, RecoveryKind.BATCH
CAUSAL, EVENT_LOG = RecoveryKind.CAUSAL, RecoveryKind.EVENT_LOG
COORDINATED = RecoveryKind.COORDINATED


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
    assert bool(found.goes_back) == (kind in (UNCOORDINATED, RecoveryKind.COMMUNICATION_INDUCED))
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


@pytest.mark.parametrize("default", [EAGER, UNCOORDINATED])
def test_what_is_behind_an_operator_that_begins_epochs_again_does_so_too(default: RecoveryKind) -> None:
    """Whatever recovery that is said to have: no checkpoint of it inside an epoch is ever begun with."""
    found = Recoveries.of(DIAMOND, default, {NodeId(3): BATCH, NodeId(5): EAGER})
    assert {number for number, kind in found.by_node.items() if kind is BATCH} == {3, 5, 6}
    assert found.holds(NodeId(6)) and not found.replace
    assert found.line_kind.logs_messages


@pytest.mark.parametrize("default", [EAGER, COORDINATED, RecoveryKind.UNALIGNED])
def test_what_is_behind_an_operator_of_rounds_takes_part_in_them(default: RecoveryKind) -> None:
    """3 alone has coordinated checkpoints. The sink 7, before which nothing goes back, shows rows at once. 5 aligns
    also where 3 does not."""
    rounds = COORDINATED if default is EAGER else default
    own = {3: rounds} if default is EAGER else {2: EAGER, 4: EAGER, 5: EAGER}
    found = Recoveries.of(DIAMOND, default, {NodeId(number): kind for number, kind in own.items()})
    expected = {2: EAGER, 3: rounds, 4: EAGER, 5: EAGER, 6: rounds, 7: EAGER}
    assert {int(number): kind for number, kind in found.by_node.items()} == expected
    assert found.in_rounds == {3, 5, 6}
    assert found.goes_back == {5}, "3 and 6 take no checkpoints alone"
    assert found.holds(NodeId(6)) and not found.holds(NodeId(7)) and not found.replace
    assert found.keeping == {2, 4, 5, 7}
    policy = PolicyChoice.of(DIAMOND, found, NodeId(5)).policy(0)
    assert isinstance(policy, Alignment) and policy.kind is EAGER and policy.goes_back
    senders = {number: PolicyChoice.of(DIAMOND, found, NodeId(number)).senders for number in (3, 5, 6)}
    channels = {number: Origin.of(number, 0).channel for number in (3, 5)}
    assert senders == {3: set(), 5: {channels[3]}, 6: {channels[5]}}, "no marker comes from a firewall"


def test_a_query_of_epochs_that_are_done_again_has_operators_in_front_that_go_on() -> None:
    """What these have sent is looked for, although the query's own recovery keeps nothing."""
    found = Recoveries.of(DIAMOND, BATCH, {NodeId(2): EAGER})
    assert {number for number, kind in found.by_node.items() if kind is BATCH} == {3, 4, 5, 6, 7}
    assert found.line_kind is EAGER


@pytest.mark.parametrize(
    ("default", "own"), [(CAUSAL, {3: EAGER, 4: EVENT_LOG}), (EAGER, {2: CAUSAL, 4: EVENT_LOG, 5: CAUSAL})]
)
def test_beside_causal_logging_sinks_keep_determinants(
    default: RecoveryKind, own: dict[int, RecoveryKind]
) -> None:
    """Whatever is before them: what is visible may depend on any of them."""
    found = Recoveries.of(DIAMOND, default, {NodeId(number): kind for number, kind in own.items()})
    expected = {2: CAUSAL, 3: EAGER, 4: EVENT_LOG, 5: CAUSAL, 6: CAUSAL, 7: CAUSAL}
    assert {int(number): kind for number, kind in found.by_node.items()} == expected
    assert found.some_repeat and not found.all_repeat
    assert found.replace and not found.goes_back and found.line_kind.logs_messages


def test_which_go_together() -> None:
    together = {
        frozenset((one, other)) for one in RecoveryKind for other in RecoveryKind if one.goes_with(other)
    }
    logs = (EAGER, EVENT_LOG, UNCOORDINATED, BATCH)
    expected = {frozenset((one, other)) for one in logs for other in logs}
    induced = RecoveryKind.COMMUNICATION_INDUCED
    expected |= {frozenset((induced, other)) for other in (EAGER, EVENT_LOG, BATCH)}
    beside_stored_first = (CAUSAL, COORDINATED, RecoveryKind.UNALIGNED)
    expected |= {frozenset((one, other)) for one in beside_stored_first for other in (EAGER, EVENT_LOG)}
    assert together == expected | {frozenset((kind,)) for kind in RecoveryKind}

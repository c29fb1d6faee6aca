"""What rides along for communication-induced checkpoints: its bytes, and what an instance does about it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from clonos.errors import LogCorrupt
from clonos.protocol.destination import NOWHERE
from clonos.protocol.fence import NO_GENERATION
from clonos.protocol.ids import LOG_BEGIN, NodeId, OutputNumber
from clonos.protocol.ports import Bundle, Emit
from clonos.protocol.recovery.choice import PolicyChoice
from clonos.protocol.recovery.communication_induced.dependency_vector import DependencyVector
from clonos.protocol.recovery.communication_induced.forced_checkpoints import ForcedCheckpoints
from clonos.protocol.recovery.communication_induced.instance_numbering import InstanceNumbering
from clonos.protocol.recovery.coordinated.alignment import Alignment
from clonos.protocol.recovery.policy import ALONE, Decision
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import Node, NodeKind, Topology

GOLDEN = DependencyVector(300, (1, 2, 0, 7, 1, 1, 1, 1, 200), taken=0b1_0000_0110, greater=0b0_0000_0001)
GOLDEN_BYTES = bytes.fromhex("c1 ac02 09 01 02 00 07 01 01 01 01 c801 0601 0100")


def node(number: int, kind: NodeKind, *upstream: int, parallelism: int = 2) -> Node:
    return Node(number, kind, f"node{number}", parallelism, tuple(upstream))


TOPOLOGY = Topology(
    (
        node(1, NodeKind.SOURCE),
        node(2, NodeKind.OPERATOR, 1),
        node(3, NodeKind.OPERATOR, 2, parallelism=3),
        node(4, NodeKind.SINK, 2, parallelism=1),
        node(5, NodeKind.SINK, 3),
    )
)
"""2 feeds 3 and the sink 4; 3 feeds the sink 5."""
INDUCED = Recoveries.of(TOPOLOGY, RecoveryKind.COMMUNICATION_INDUCED)


def emit(*columns: list[int]) -> Emit:
    return Emit(
        OutputNumber(1),
        len(columns[0]),
        None,
        list(columns),
        {},
        LOG_BEGIN,
        b"",
        OutputNumber(len(columns[0])),
    )


def instance(number: int, node: int = 2) -> ForcedCheckpoints:
    return ForcedCheckpoints(number, InstanceNumbering.of(TOPOLOGY, INDUCED, NodeId(node)))


def taken(policy: ForcedCheckpoints, *deltas: bytes) -> list[Decision]:
    return list(policy.arrive(Bundle([1], [1], [("row",)], deltas=deltas)))


def test_a_vector_has_these_bytes() -> None:
    assert GOLDEN.to_bytes() == GOLDEN_BYTES
    read = DependencyVector.from_bytes(GOLDEN_BYTES)
    assert (read.lamport, tuple(read.checkpoints), read.taken, read.greater) == (300, *_rest(GOLDEN))


def _rest(vector: DependencyVector) -> Any:
    return tuple(vector.checkpoints), vector.taken, vector.greater


@given(st.integers(0, 1 << 62), st.lists(st.integers(0, 1 << 62), max_size=40), st.data())
def test_any_vector_comes_back(lamport: int, checkpoints: list[int], data: Any) -> None:
    bits = st.integers(0, (1 << len(checkpoints)) - 1)
    vector = DependencyVector(lamport, checkpoints, data.draw(bits), data.draw(bits))
    assert DependencyVector.from_bytes(vector.to_bytes()) == vector


@given(st.binary(max_size=40))
def test_other_bytes_are_a_vector_or_refused(raw: bytes) -> None:
    for bytes_ in (raw, b"\xc1" + raw):
        try:
            DependencyVector.from_bytes(bytes_).to_bytes()
        except LogCorrupt:
            continue


@pytest.mark.parametrize("size", range(len(GOLDEN_BYTES)))
def test_what_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(LogCorrupt):
        DependencyVector.from_bytes(GOLDEN_BYTES[:size])


def test_bits_beyond_the_instances_are_refused() -> None:
    with pytest.raises(LogCorrupt, match="beyond"):
        DependencyVector.from_bytes(bytes.fromhex("c1 01 02 01 01 04 00"))


def test_instances_of_operators_are_numbered_through() -> None:
    assert InstanceNumbering.of(TOPOLOGY, INDUCED, NodeId(2)) == InstanceNumbering(0, 5, (2, 3, 4, None))
    assert InstanceNumbering.of(TOPOLOGY, INDUCED, NodeId(3)) == InstanceNumbering(2, 5, (None, None))


CHAIN = Topology(
    (
        node(1, NodeKind.SOURCE),
        node(2, NodeKind.OPERATOR, 1),
        node(3, NodeKind.OPERATOR, 2),
        node(4, NodeKind.OPERATOR, 3, parallelism=1),
        node(5, NodeKind.OPERATOR, 4),
        node(6, NodeKind.SINK, 5),
    )
)


def test_only_those_that_go_back_to_checkpoints_inside_an_epoch_are_numbered() -> None:
    """No chain of rows that makes a checkpoint useless leads through another one."""
    own = {NodeId(2): RecoveryKind.EAGER, NodeId(4): RecoveryKind.EAGER, NodeId(5): RecoveryKind.BATCH}
    found = Recoveries.of(CHAIN, RecoveryKind.COMMUNICATION_INDUCED, own)
    policies = {number: PolicyChoice.of(CHAIN, found, NodeId(number)).policy(0) for number in range(2, 7)}
    forcing = {number for number, policy in policies.items() if isinstance(policy, ForcedCheckpoints)}
    assert forcing == {3, 4}, "2 is in front and never goes back, 5 begins where the epoch does"
    assert InstanceNumbering.of(CHAIN, found, NodeId(3)) == InstanceNumbering(0, 3, (2,))
    assert InstanceNumbering.of(CHAIN, found, NodeId(4)) == InstanceNumbering(2, 3, (None, None))
    assert policies[4].kind is RecoveryKind.EAGER


def test_of_the_checkpoints_of_one_that_stores_before_it_sends_those_count_that_are_kept() -> None:
    ahead, numbering = instance(0), InstanceNumbering.of(TOPOLOGY, INDUCED, NodeId(2))
    policy = ForcedCheckpoints(1, numbering, RecoveryKind.EAGER)
    ahead.take_checkpoint()
    (vector,) = ahead.send(emit([0])).deltas.values()
    policy.send(emit([2]))
    kept = policy.take_checkpoint(counts=False)
    assert taken(policy, vector)[0] is ALONE, "what was sent is behind the last that counts"
    again = ForcedCheckpoints(1, numbering, RecoveryKind.EAGER)
    again.resume(kept, NO_GENERATION)
    assert taken(again, vector)[0] is ALONE, "it may have sent rows to any reader"
    again.take_checkpoint(counts=True)
    assert taken(again, vector)[0] is not ALONE


def test_a_vector_goes_to_each_operator_that_is_sent_rows_and_to_no_sink() -> None:
    policy = instance(1)
    sent = policy.send(emit([0, 2, 2, NOWHERE], [3, 3, 3, 3]))
    assert sent.deltas.keys() == {0, 2}
    vector = DependencyVector.from_bytes(sent.deltas[0])
    assert (vector.lamport, list(vector.checkpoints)) == (1, [0, 1, 0, 0, 0])
    assert instance(0, 3).send(emit([0, 1])).deltas == {}


def test_rows_of_a_source_force_nothing() -> None:
    bundle = Bundle([1], [1], [("row",)])
    assert list(instance(0).arrive(bundle)) == [bundle]


def test_a_row_from_behind_a_later_checkpoint_forces_one_where_rows_were_sent_since_the_last() -> None:
    """The sender is ahead of the instance that this one has sent to, by what is known here."""
    ahead, policy = instance(0), instance(1)
    ahead.take_checkpoint()
    (vector,) = ahead.send(emit([0])).deltas.values()
    assert taken(policy, vector)[0] is not ALONE, "nothing was sent"
    policy = instance(1)
    policy.send(emit([2]))
    decisions = taken(policy, vector)
    assert decisions[0] is ALONE
    assert isinstance(decisions[1], Bundle) and not decisions[1].deltas, "the engine knows nothing of vectors"
    policy.take_checkpoint()
    assert taken(policy, vector)[0] is not ALONE, "not twice"


def test_a_checkpoint_is_begun_with_what_it_has() -> None:
    policy = instance(1)
    taken(policy, *instance(0).send(emit([0])).deltas.values())
    kept = policy.take_checkpoint()
    policy.send(emit([2]))
    again = instance(1)
    again.begin_epoch()
    again.resume(kept, NO_GENERATION)
    assert again.send(emit([0])).deltas == {0: kept}
    again.begin_epoch()
    assert again.send(emit([0])) == instance(1).send(emit([0])), "an epoch begins anew"


@pytest.mark.parametrize("kind", RecoveryKind)
def test_the_choice_of_a_policy_is_that_of_its_recovery(kind: RecoveryKind) -> None:
    recoveries = Recoveries.of(TOPOLOGY, kind)
    for number in (2, 3, 4, 5):
        choice = PolicyChoice.of(TOPOLOGY, recoveries, NodeId(number))
        policy = choice.policy(0)
        assert policy.kind is kind and policy.goes_back == kind.begins_at_older_ones
        forces = kind is RecoveryKind.COMMUNICATION_INDUCED and number in (2, 3)
        assert isinstance(policy, ForcedCheckpoints) == forces
        if not forces and not isinstance(policy, Alignment):
            with pytest.raises(NotImplementedError, match=kind.value):
                policy.resume(b"something", NO_GENERATION)

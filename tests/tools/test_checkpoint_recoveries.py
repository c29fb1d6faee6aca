"""Which recoveries a checkpoint keeps, and what it is told apart by."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from clonos.errors import CheckpointMismatch
from clonos.protocol.ids import NodeId
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import Node, NodeKind, Topology
from clonos.spark.checkpoint import Checkpoint

CHAIN = Topology(
    (
        Node(1, NodeKind.SOURCE, "in", 0),
        Node(2, NodeKind.OPERATOR, "first", 1, upstream=(1,)),
        Node(3, NodeKind.OPERATOR, "second", 1, upstream=(2,)),
        Node(4, NodeKind.SINK, "out", 1, upstream=(3,)),
    )
)
KINDS = (RecoveryKind.EAGER, RecoveryKind.UNCOORDINATED)
CHOICES = [
    Recoveries.of(CHAIN, default, {NodeId(2): first, NodeId(3): second})
    for default, first, second in product(KINDS, repeat=3)
] + [Recoveries.of(CHAIN, kind) for kind in RecoveryKind]


@pytest.mark.parametrize("chosen", CHOICES)
def test_a_query_goes_on_with_what_it_began_with_and_with_nothing_else(
    chosen: Recoveries, tmp_path: Path
) -> None:
    location = str(tmp_path / "checkpoint")
    query = Checkpoint(location).open(CHAIN, chosen)
    assert Checkpoint(location).open(CHAIN, chosen) == query
    assert Checkpoint(location).recoveries() == chosen.by_name(CHAIN)
    for other in CHOICES:
        if other.by_node != chosen.by_node:
            with pytest.raises(CheckpointMismatch, match=r"began with .*recovery="):
                Checkpoint(location).open(CHAIN, other)

"""The layered plan: which stage runs which instance, and how blocks find it."""

from __future__ import annotations

from random import Random

import pytest

from clonos.protocol.ids import Origin
from clonos.protocol.topology import Node, NodeKind, Topology
from clonos.sim.dataflow import draw_dataflow
from clonos.sim.dimensions.fan_out import with_another_edge, with_another_sink
from clonos.spark.layers import Forwarder, Layers

DIAMOND = Topology(
    (
        Node(1, NodeKind.SOURCE, "in", 0),
        Node(2, NodeKind.OPERATOR, "first", 2, (1,)),
        Node(3, NodeKind.OPERATOR, "second", 1, (2,)),
        Node(4, NodeKind.OPERATOR, "third", 2, (1, 2, 3)),
        Node(5, NodeKind.SINK, "out", 1, (2, 4)),
    )
)


def test_a_layer_has_the_instances_of_its_nodes_and_forwarders_for_later_ones() -> None:
    first, second, third = (
        [Origin.of(2, 0), Origin.of(2, 1)],
        Origin.of(3, 0),
        [Origin.of(4, 0), Origin.of(4, 1)],
    )
    out = Origin.of(5, 0)
    layers = Layers(DIAMOND)
    assert [stage.partitions for stage in layers.stages] == [
        (*first, Forwarder(third[0], 1), Forwarder(third[1], 2)),
        (second, Forwarder(third[0], 0), Forwarder(third[1], 1), Forwarder(out, 2)),
        (*third, Forwarder(out, 0)),
        (out,),
    ]
    assert layers.partitions_of(1) == [0, 1, 2, 3]
    assert layers.partitions_of(2) == [0, 1, 2, 3]
    assert layers.partitions_of(3) == [0, 1]
    assert layers.partitions_of(4) == [0]


@pytest.mark.parametrize("seed", range(60))
def test_every_block_comes_to_its_receiver(seed: int) -> None:
    """In any dataflow, by whatever layers, and those of one channel by one way."""
    rng = Random(seed)
    flow = draw_dataflow(rng)
    for _ in range(rng.randint(0, 4)):
        flow = rng.choice((with_another_edge, with_another_sink))(flow, rng)
    topology, layers = flow.topology, Layers(flow.topology)
    assert sorted(
        origin for stage in layers.stages for origin in stage.partitions if isinstance(origin, Origin)
    ) == (sorted(flow.instances(NodeKind.OPERATOR, NodeKind.SINK)))
    level = {node.number: at for at, stage in enumerate(layers.stages, 1) for node in stage.nodes}
    for node in topology.nodes:
        for destination, partition in enumerate(layers.partitions_of(node.number)):
            at = level.get(node.number, 0)
            found = layers.stages[at].partitions[partition]
            while isinstance(found, Forwarder):
                at += 1
                found = layers.stages[at].partitions[found.to]
            assert found == topology.receiver(node.number, destination)

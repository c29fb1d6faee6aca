"""Streams that feed several operators and sinks, and meet again or not."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.protocol.ids import NodeId
from clonos.protocol.topology import Node, NodeKind, Topology
from clonos.sim.dataflow import Dataflow
from clonos.sim.plan import Plan

SHARE = 0.25
MOST_WAYS = 4
"""Of records to a sink: each makes a row of its own."""


def fan_out(plan: Plan, rng: Random) -> Plan:
    return fanned_out(plan, rng) if rng.random() < SHARE else plan


def fanned_out(plan: Plan, rng: Random) -> Plan:
    """With one to three more edges to later nodes, or more sinks. Poison, which every first reader would have to pass
    over, and the users' types, whose rows have one key, are in other runs."""
    flow = plan.dataflow
    for _ in range(rng.randint(1, 3)):
        more = with_another_sink(flow, rng) if rng.random() < 0.4 else with_another_edge(flow, rng)
        if all(len(more.ways_to(sink.number)) <= MOST_WAYS for sink in more.sinks):
            flow = more
    if not flow.fans_out:
        return plan
    return replace(plan, dataflow=flow, poison=0, real_values=False)


def with_another_sink(flow: Dataflow, rng: Random) -> Dataflow:
    """Of an operator that has a reader already."""
    number = NodeId(max(node.number for node in flow.topology.nodes) + 1)
    upstream = (rng.choice(flow.operators).number,)
    sink = Node(number, NodeKind.SINK, f"sink{number}", rng.choice((1, 2)), upstream)
    return replace(flow, topology=Topology((*flow.topology.nodes, sink)))


def with_another_edge(flow: Dataflow, rng: Random) -> Dataflow:
    nodes = flow.topology.nodes
    sender = rng.choice([node for node in nodes if node.kind is not NodeKind.SINK])
    reader = rng.choice([node for node in nodes if may_read(node, sender)])
    read = replace(reader, upstream=tuple(sorted({*reader.upstream, sender.number})))
    return replace(flow, topology=Topology(tuple(read if each is reader else each for each in nodes)))


def may_read(node: Node, sender: Node) -> bool:
    """Operators read sources, and what comes before them; sinks read operators."""
    if node.kind is NodeKind.SINK:
        return sender.kind is NodeKind.OPERATOR
    return node.kind is NodeKind.OPERATOR and node.number > sender.number

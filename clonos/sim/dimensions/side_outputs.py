"""Operators that feed several nodes have a side output, which only some of these read."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.protocol.side_output import MAIN
from clonos.protocol.topology import Topology
from clonos.sim.dataflow import Dataflow
from clonos.sim.plan import Plan
from clonos.sim.side_outputs import SIDE

SHARE = 0.5
"""Of the runs whose streams feed several nodes."""


def side_outputs(plan: Plan, rng: Random) -> Plan:
    if rng.random() >= SHARE or plan.real_values:
        return plan
    return replace(plan, dataflow=with_side_outputs(plan.dataflow, rng))


def with_side_outputs(flow: Dataflow, rng: Random) -> Dataflow:
    """Each output of an operator has a reader: the ledger of a node is judged by what becomes visible."""
    nodes = {node.number: node for node in flow.topology.nodes}
    for sender in flow.operators:
        readers = flow.topology.downstream(sender.number)
        if len(readers) > 1 and rng.random() < 0.7:
            nodes[sender.number] = replace(nodes[sender.number], side_outputs={SIDE: ()})
            reads_side = rng.sample(readers, rng.randint(1, len(readers) - 1))
            for reader in readers:
                known = nodes[reader.number]
                output = SIDE if reader in reads_side else MAIN
                nodes[reader.number] = replace(known, reads={**known.reads, sender.number: output})
    return replace(flow, topology=Topology(tuple(nodes.values())))

"""What the plugin is told of a query's nodes, so that the progress of a batch tells of them."""

from __future__ import annotations

import json

from clonos.protocol.ids import NodeId
from clonos.protocol.topology import NodeKind
from clonos.spark.compile import Compiled


def dataflow_of(compiled: Compiled) -> str:
    """As JSON (`org.clonos.spark.progress.Dataflow`). An end of a loop shows nothing, so it is no sink here."""
    topology, timed = compiled.topology(), compiled.timed_operators()
    ends = compiled.back_edges()
    operators = [
        {
            "node": node.number,
            "name": node.name,
            "parallelism": node.parallelism,
            "readers": [reader.number for reader in topology.downstream(node.number)],
            "event_time": node.number in timed,
        }
        for node in topology.nodes
        if node.kind is NodeKind.OPERATOR
    ]
    sinks = [
        {
            "node": node.number,
            "name": node.name,
            "parallelism": node.parallelism,
            "upstream": list(node.upstream),
        }
        for node in topology.nodes
        if node.kind is NodeKind.SINK and node.number not in ends
    ]
    return json.dumps({"operators": operators, "sinks": sinks, "sources": streaming_sources(compiled)})


def streaming_sources(compiled: Compiled) -> list[NodeId]:
    """The nodes of Spark's streaming sources, in the order of the plan."""
    found: list[NodeId] = []
    for number, node in compiled.source_plans():
        leaves = node.df._jdf.queryExecution().analyzed().collectLeaves()
        found += [number for at in range(leaves.size()) if leaves.apply(at).isStreaming()]
    return found

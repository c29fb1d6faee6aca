"""A query's dataflow as it is drawn: which nodes stand in which column, and which rows go from which to which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any

from clonos.protocol.side_output import MAIN


def graph(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of a topology's document. A node's column is the length of the longest way to it from a source.

    `nodes`: number, name, kind, parallelism (0 of a source), key, column. `edges`: from, to, and the output that is
    read, "" where it is the main one.
    """
    upstream = {node["number"]: node["upstream"] for node in nodes}
    columns = {node: column for column, front in enumerate(_fronts(upstream)) for node in front}
    return {
        "nodes": [
            {
                **{name: node[name] for name in ("number", "name", "kind", "parallelism")},
                "key": list(node.get("key") or ()),
                "column": columns[node["number"]],
            }
            for node in nodes
        ],
        "edges": [
            {"from": up, "to": node["number"], "output": _output(node, up)}
            for node in nodes
            for up in node["upstream"]
        ],
    }


def _fronts(upstream: Mapping[int, Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """What can be drawn next, when all that it reads has been."""
    sorter = TopologicalSorter(upstream)
    sorter.prepare()
    while front := sorter.get_ready():
        yield front
        sorter.done(*front)


def _output(node: Mapping[str, Any], upstream: int) -> str:
    read = dict(node.get("reads", ())).get(upstream, MAIN)
    return "" if read == MAIN else str(read)

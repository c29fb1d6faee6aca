"""Random shapes of a query: linear and branching, several sources, unions, one or more sinks.

A node with several upstream nodes is a union. A stream may feed several operators and sinks, which all get all of it;
where their outputs meet again, a record arrives once for every way that it can take. Nodes are numbered in topological
order, as the compiler numbers them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from clonos.protocol.ids import NodeId, Origin
from clonos.protocol.topology import Node, NodeKind, Topology
from clonos.sim.side_outputs import output_at


@dataclass(frozen=True)
class Dataflow:
    """`partitions` are those of the sources."""

    topology: Topology
    partitions: tuple[tuple[int, int], ...]  # source node, partitions

    def of(self, kind: NodeKind) -> list[Node]:
        return [node for node in self.topology.nodes if node.kind is kind]

    @property
    def operators(self) -> list[Node]:
        return self.of(NodeKind.OPERATOR)

    @property
    def sinks(self) -> list[Node]:
        return self.of(NodeKind.SINK)

    @property
    def fans_out(self) -> bool:
        """Some stream feeds several nodes."""
        return any(len(self.topology.downstream(node.number)) > 1 for node in self.topology.nodes)

    def ways(self, number: int, to: int) -> list[tuple[NodeId, ...]]:
        """The ways that lead from a node to another, as the nodes behind the first, the other included."""
        if number == to:
            return [()]
        return [
            (reader.number, *rest)
            for reader in self.topology.downstream(number)
            for rest in self.ways(reader.number, to)
        ]

    def ways_to(self, number: NodeId) -> tuple[tuple[NodeId, ...], ...]:
        """The ways from any source to a node, as the operators in between."""
        sources = self.of(NodeKind.SOURCE)
        return tuple(sorted({way[:-1] for source in sources for way in self.ways(source.number, number)}))

    def takes(self, way: tuple[NodeId, ...], record: int) -> bool:
        """Whether a record goes this way, which leads through operators: each has to let it out by the output that the
        next node reads."""
        nodes = [self.topology.node(number) for number in way]
        return all(
            not node.side_outputs or output_at(node.number, record) == reader.output_read(node.number)
            for node, reader in pairwise(nodes)
        )

    @property
    def source_partitions(self) -> list[Origin]:
        return [Origin.of(node, local) for node, count in self.partitions for local in range(count)]

    def instances(self, *kinds: NodeKind) -> list[Origin]:
        return self.topology.instances(*kinds)

    def stages(self) -> list[list[Node]]:
        """Operators and sinks by their distance from the sources: what Spark runs one after another in a batch."""
        level: dict[int, int] = {}
        for node in self.topology.nodes:
            level[node.number] = 1 + max((level[number] for number in node.upstream), default=-1)
        found: dict[int, list[Node]] = {}
        for node in self.topology.nodes:
            if node.kind is not NodeKind.SOURCE:
                found.setdefault(level[node.number], []).append(node)
        return [found[at] for at in sorted(found)]

    def smaller(self) -> Iterator[Dataflow]:
        """The same shape with less in one place: half the instances of a node, half the partitions of a source."""
        for node in self.topology.nodes:
            if node.parallelism > 1:
                less = replace(node, parallelism=node.parallelism // 2)
                nodes = tuple(less if each is node else each for each in self.topology.nodes)
                yield replace(self, topology=Topology(nodes))
        for source, count in self.partitions:
            if count > 1:
                changed = tuple((at, max(n // 2, 1) if at == source else n) for at, n in self.partitions)
                yield replace(self, partitions=changed)


def draw_dataflow(rng: Random) -> Dataflow:
    """One to six operators of one to eight instances, mostly few of few."""
    operators = rng.choice((1, 1, 2, 2, 2, 3, 3, 4, 6))
    sinks = 2 if operators > 1 and rng.random() < 0.2 else 1
    wide = rng.random() < 0.1
    parallelism = [rng.choice((1, 1, 2, 2, 3) if not wide else (2, 8)) for _ in range(operators)]
    feeds = draw_feeds(rng, operators, sinks)
    sources: list[int] = []  # by source: the operator (from 0) it feeds
    for operator in range(operators):
        fed = operator in feeds.values()
        sources += [operator] * (rng.choice((0, 0, 0, 1)) if fed else rng.choice((1, 1, 1, 2)))
    return build_dataflow(
        sources=[(rng.randint(1, 3), operator) for operator in sources],
        parallelism=parallelism,
        feeds=feeds,
        sinks=[rng.choice((1, 1, 2)) for _ in range(sinks)],
    )


def draw_feeds(rng: Random, operators: int, sinks: int) -> dict[int, int]:
    """By operator, what it feeds: a later operator, or `operators + i` for sink i. Every sink is fed."""
    linear = rng.random() < 0.5
    feeds = {at: at + 1 if linear else rng.randint(at + 1, operators) for at in range(operators)}
    if sinks == 2:  # the operator before the last begins a branch of its own
        feeds[operators - 2] = operators + 1
    return feeds


def build_dataflow(
    *,
    sources: list[tuple[int, int]],  # partitions, the operator (from 0) they feed
    parallelism: list[int],
    feeds: dict[int, int],
    sinks: list[int],
) -> Dataflow:
    first = len(sources) + 1
    upstream: dict[int, list[int]] = {}
    for at, (_, operator) in enumerate(sources, 1):
        upstream.setdefault(first + operator, []).append(at)
    for operator, target in sorted(feeds.items()):
        upstream.setdefault(first + target, []).append(first + operator)
    nodes = [Node(NodeId(at), NodeKind.SOURCE, f"source{at}", 0) for at in range(1, first)]
    for at, count in enumerate(parallelism):
        number = NodeId(first + at)
        nodes.append(Node(number, NodeKind.OPERATOR, f"op{number}", count, tuple(upstream[number])))
    for at, count in enumerate(sinks):
        number = NodeId(first + len(parallelism) + at)
        nodes.append(Node(number, NodeKind.SINK, f"sink{number}", count, tuple(upstream[number])))
    partitions = tuple((at, count) for at, (count, _) in enumerate(sources, 1))
    return Dataflow(Topology(tuple(nodes)), partitions)

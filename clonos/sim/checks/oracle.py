"""The outside, judged by the ledger: every node's chain, by what the sinks made visible and nothing else."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from clonos.protocol.engine.instance import Row
from clonos.protocol.ids import NodeId, Origin
from clonos.sim.checks.violation import Violation
from clonos.sim.operator import entry_of_link, identity
from clonos.testing.ledger import Entry, Judge

if TYPE_CHECKING:
    from clonos.sim.world import World


class Oracle:
    """One judge per node. Where a stream feeds several nodes, a link comes to light with every row that it is in: all
    of them must say the same of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._flow = world.plan.dataflow
        self._judges = {node.number: Judge() for node in self._flow.operators}
        self._ways = {node.number: self._flow.ways_to(node.number) for node in self._flow.topology.nodes}
        self._fans_out = self._flow.fans_out
        self._links: dict[tuple[NodeId, str], Entry] = {}
        self._shown: set[tuple[NodeId, int, tuple[NodeId, ...]]] = set()
        self.shown = 0

    @cached_property
    def due(self) -> int:
        """How many rows all sinks are to show."""
        return sum(len(self._expected(sink.number)) for sink in self._flow.sinks)

    def shows(self, sink: Origin, row: Row) -> None:
        _, record, links = row[:3]
        self.shown += 1
        way: tuple[NodeId, ...] = tuple(link[0] for link in links)
        if (sink.node, record, way) in self._shown:
            raise Violation("I3", f"sink {sink} shows record {record} twice that came by the way {way}")
        self._shown.add((sink.node, record, way))
        for at, link in enumerate(links):
            entry = entry_of_link(record, link, self._ways[link[0]].index(way[:at]))
            if self._fans_out and self._links.setdefault((link[0], entry.input_id), entry) is not entry:
                self._says_the_same(link[0], entry)
                continue
            fault = self._judges[link[0]].add(entry)
            if fault is not None:
                raise Violation("I3", f"the ledger of node {link[0]} is {fault.value} by {entry}")

    def _says_the_same(self, node: NodeId, entry: Entry) -> None:
        known = self._links[node, entry.input_id]
        if known != entry:
            raise Violation("I3", f"the ledger of node {node} says {known} in one row and {entry} in another")

    def at_the_end(self, *, complete: bool) -> None:
        """Whether all chains are whole. Where the query has stopped, they may end early."""
        if not complete:
            return
        poison = self._world.poison
        if poison.dead_letters != poison.records:
            raise Violation(
                "I3", f"poison is {set(poison.records)}, letters were written of {poison.dead_letters}"
            )
        for number, judge in self._judges.items():
            verdict = judge.verdict(map(str, self._expected(number)))
            if not verdict.exact:
                raise Violation(
                    "I3", f"the ledger of node {number}: {verdict}: {'; '.join(verdict.first_problems)}"
                )
        if self.shown != self.due:
            raise Violation("I3", f"the sinks show {self.shown} rows of {self.due}")

    def _expected(self, number: NodeId) -> list[int]:
        """The records that pass a node, once for each way: those of the sources above it that are not poison."""
        ways = self._ways[number]
        found: list[int] = []
        for partition, records in self._world.partitions.items():
            for way in self._flow.ways(partition.node, number):
                at = ways.index(way[:-1])
                found += [
                    identity(record, at)
                    for record in records
                    if record not in self._world.poison.records and self._flow.takes(way, record)
                ]
        return found

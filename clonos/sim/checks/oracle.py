"""The outside, judged by the ledger: every node's chain, by what the sinks made visible and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.protocol.engine.instance import Row
from clonos.protocol.ids import Origin
from clonos.sim.checks.violation import Violation
from clonos.sim.operator import entry_of_link
from clonos.testing.ledger import Judge

if TYPE_CHECKING:
    from clonos.sim.world import World


class Oracle:
    """One judge per node."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._judges = {node.number: Judge() for node in world.plan.dataflow.operators}
        self.shown = 0

    def shows(self, row: Row) -> None:
        _, record, links = row[:3]
        self.shown += 1
        for link in links:
            entry = entry_of_link(record, link)
            fault = self._judges[link[0]].add(entry)
            if fault is not None:
                raise Violation("I3", f"the ledger of node {link[0]} is {fault.value} by {entry}")

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

    def _expected(self, number: int) -> list[int]:
        """The records that pass a node: those of the sources above it that are not poison."""
        found: list[int] = []
        for partition, records in self._world.partitions.items():
            if self._passes(partition, number):
                found += [record for record in records if record not in self._world.poison.records]
        return found

    def _passes(self, partition: Origin, number: int) -> bool:
        flow, at = self._world.plan.dataflow, partition.node
        while at != number:
            downstream = flow.topology.downstream(at)
            if not downstream:
                return False
            at = downstream[0].number
        return True

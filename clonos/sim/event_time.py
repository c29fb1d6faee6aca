"""Event time in the simulated query: what senders say of it, and what instances make of that.

Event time of a record is its number. Sources say now and then, and at the end of what an epoch reads, how far they have
come; what is said goes to every destination, behind the records before it, whether or not one of them was for that.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from clonos.protocol.engine.channel_watermarks import EventInput
from clonos.protocol.engine.instance import Row
from clonos.protocol.event_time import later
from clonos.protocol.ids import NodeId
from clonos.protocol.topology import Node, NodeKind
from clonos.sim.records import Given, Mark, Record, Rows

if TYPE_CHECKING:
    from clonos.sim.plan import Plan

STEP = 10
DELAY = 40
_IDLE_AFTER = (2_000, 20_000, 200_000)
_SAYS = 0.3
"""How often a source says how far it has come."""


def moment_of(record: int) -> int:
    return record * STEP


def watermark_of(rows: list[Row]) -> int | None:
    return max(moment_of(int(row[1])) for row in rows) - DELAY if rows else None


def watermark_of_output(rows: Rows) -> int | None:
    return watermark_of(rows.rows)


def event_inputs(plan: Plan, node: Node) -> tuple[EventInput, ...]:
    """All that a node reads. In some runs inputs are idle soon, in others hardly ever."""
    if not plan.event_time:
        return ()
    idle_after = _IDLE_AFTER[plan.seed % len(_IDLE_AFTER)]
    inputs = [plan.dataflow.topology.node(number) for number in node.upstream]
    return tuple(
        EventInput(each.number, each.parallelism if each.kind is NodeKind.OPERATOR else None, idle_after)
        for each in inputs
    )


def with_marks(plan: Plan, source: NodeId, sent: list[tuple[int, Record]]) -> list[tuple[int, Given]]:
    """What a partition of a source gives, in its order, by destination."""
    if not plan.event_time or not sent:
        return [*sent]
    rng = Random(f"{plan.seed}/{sent[0][1].position}/{len(sent)}")
    readers = plan.dataflow.topology.downstream(source)
    destinations = range(sum(reader.parallelism for reader in readers))
    given: list[tuple[int, Given]] = []
    reached: int | None = None
    for at, (to, record) in enumerate(sent):
        given.append((to, record))
        reached = later(reached, watermark_of([record.row]))
        if reached is not None and (at == len(sent) - 1 or rng.random() < _SAYS):
            given += [(each, Mark(reached, record.channel)) for each in destinations]
    return given

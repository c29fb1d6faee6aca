"""Other ways to the line, each as its own paper has it: what the one solver is compared with."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from clonos.protocol.ids import Origin
from clonos.protocol.line.consistent_line import RestartPoint
from clonos.protocol.line.recovery_line import Standing
from clonos.protocol.topology import NodeKind, Topology

Points = Mapping[int, Sequence[RestartPoint]]


def is_consistent(points: Points, line: Mapping[int, int]) -> bool:
    """By the definition: of every process that is not at its beginning, what its point asks for is there."""
    for process, at in line.items():
        point = points[process][at]
        if not at:
            continue
        for demands, side in ((point.unkept, "received"), (point.unrepeatable, "sent")):
            for other, upto in demands.items():
                had = getattr(points[other][line[other]], side) if other in points else {}
                if had.get(process, -1) < upto:
                    return False
    return True


def newest_of_all(points: Points) -> dict[int, int]:
    """Every line there is, and of the consistent ones the one that is not before any other."""
    lines = [
        dict(zip(points, choice, strict=True))
        for choice in product(*(range(len(candidates)) for candidates in points.values()))
    ]
    consistent = [line for line in lines if is_consistent(points, line)]
    newest = {process: max(line[process] for line in consistent) for process in points}
    assert newest in consistent, "there is one newest line"
    return newest


def rollback_propagation(points: Points) -> dict[int, int]:
    """Wang, Chung, Lin and Fuchs, "Checkpoint Space Reclamation for Uncoordinated Checkpointing", 1995: a graph of
    checkpoints, the newest ones as roots; roots that others reach are marked, and replaced by the next older ones.
    For messages that are logged: an orphan is all that is looked at."""
    nodes = [(process, at) for process, candidates in points.items() for at in range(len(candidates))]
    edges: dict[tuple[int, int], list[tuple[int, int]]] = {node: [] for node in nodes}
    for process, at in nodes:
        if at + 1 < len(points[process]):
            edges[process, at].append((process, at + 1))
        sent_after = points[process][at].sent
        for other, candidates in points.items():
            for number, candidate in enumerate(candidates):
                if candidate.received.get(process, -1) > sent_after.get(other, -1):
                    edges[process, at].append((other, number))
    roots = {process: len(candidates) - 1 for process, candidates in points.items()}
    while True:
        reached: set[tuple[int, int]] = set()
        left = [after for root in roots.items() for after in edges[root]]
        while left:
            node = left.pop()
            if node not in reached:
                reached.add(node)
                left += edges[node]
        marked = [process for process, at in roots.items() if (process, at) in reached]
        if not marked:
            return roots
        for process in marked:
            while (process, roots[process]) in reached:
                roots[process] -= 1


def receivers_first(
    topology: Topology, standings: Mapping[Origin, Standing], cursors: Mapping[Origin, Mapping[int, int]]
) -> dict[Origin, str]:
    """The line of causal logging on a graph without loops, in one pass from the sinks upstream, as 0.1.0 drew it."""
    chosen: dict[Origin, str] = {}
    reached: dict[Origin, Mapping[int, int]] = dict(cursors)
    operators = [node for node in topology.nodes if node.kind is NodeKind.OPERATOR]
    for node in reversed(operators):  # nodes stand behind those that they read
        for instance in range(node.parallelism):
            origin = Origin.of(node.number, instance)
            standing = standings.get(origin, Standing())
            reached[origin] = standing.reached
            for point in reversed(standing.inside):
                receivers = {topology.receiver(node.number, to): number for to, number in point.sent.items()}
                if all(
                    receiver is not None and reached.get(receiver, {}).get(origin.channel, -1) >= number
                    for receiver, number in receivers.items()
                ):
                    chosen[origin], reached[origin] = point.name, point.reached
                    break
    return chosen


@dataclass(slots=True)
class Machine:
    """A process of a random execution."""

    sent: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)
    checkpoints: list[tuple[dict[int, int], dict[int, int]]] = field(default_factory=list)

    def checkpoint(self) -> None:
        self.checkpoints.append((dict(self.received), dict(self.sent)))


def executed(seed: int, *, lossless: bool, repeatable: bool) -> dict[int, list[RestartPoint]]:
    """The checkpoints of a random execution, over channels in order between any two processes, loops among them.
    `lossless`: messages are logged; `repeatable`: what was sent is sent again as it was."""
    draw = random.Random(seed)
    machines = {number: Machine() for number in range(draw.randint(2, 4))}
    for machine in machines.values():
        machine.checkpoint()
    for _ in range(draw.randint(5, 60)):
        number = draw.choice(list(machines))
        machine = machines[number]
        match draw.choices(("send", "receive", "checkpoint"), (4, 4, 1))[0]:
            case "send":
                to = draw.choice([other for other in machines if other != number])
                machine.sent[to] = machine.sent.get(to, -1) + 1
            case "receive":
                senders = [
                    other
                    for other, its in machines.items()
                    if its.sent.get(number, -1) > machine.received.get(other, -1)
                ]
                if senders:
                    other = draw.choice(senders)
                    machine.received[other] = machine.received.get(other, -1) + 1
            case _ if len(machine.checkpoints) < 5:
                machine.checkpoint()
    return {
        number: [
            RestartPoint(
                received,
                sent,
                unkept={} if lossless else sent,
                unrepeatable={} if repeatable else received,
            )
            for received, sent in machine.checkpoints
        ]
        for number, machine in machines.items()
    }

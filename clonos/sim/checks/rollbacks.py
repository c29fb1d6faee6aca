"""Where all instances go back together: every line is consistent, and nothing is seen that lies behind the line that a
failure now would lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.errors import CheckpointMismatch
from clonos.protocol.ids import Origin, channel_origin
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.topology import NodeKind
from clonos.sim.checks.violation import Violation
from clonos.sim.records import Tag

if TYPE_CHECKING:
    from clonos.sim.world import World


class Rollbacks:
    """For recoveries that repeat nothing."""

    def __init__(self, world: World) -> None:
        self._world = world

    def line_drawn(self, line: RecoveryLine) -> None:
        """By the definition: what was received was sent, and what was sent was received."""
        topology = self._world.plan.dataflow.topology
        for receiver in topology.instances(NodeKind.OPERATOR, NodeKind.SINK):
            reached = self._reached(line, receiver)
            for number in topology.node(receiver.node).upstream:
                sender = topology.node(number)
                if sender.kind is not NodeKind.OPERATOR:
                    continue
                for instance in range(sender.parallelism):
                    origin = Origin.of(number, instance)
                    sent, had = self._sent(line, origin, receiver), reached.get(origin.channel, -1)
                    if sent != had:
                        raise Violation(
                            "line",
                            f"{receiver} begins with row {had} of {origin}, which begins behind row {sent}",
                        )

    def shows(self, sink: Origin, tag: Tag) -> None:
        """A failure that strikes now leads to a line that has the row."""
        assert self._world.driver is not None
        try:
            line = self._world.driver.next_line()
        except CheckpointMismatch as behind:
            raise Violation("output rule", behind.message) from behind
        last = self._reached(line, sink).get(tag.channel, -1)
        if last < tag.position:
            sender = channel_origin(tag.channel)
            raise Violation(
                "output rule",
                f"sink {sink} shows row {tag.position} of {sender}, and would begin behind {last}",
            )

    def _reached(self, line: RecoveryLine, origin: Origin) -> dict[int, int]:
        checkpoint = self._world.checkpoint
        resume = line.resumes.get(origin)
        kept = checkpoint.any_snapshots(origin)
        name = resume.name if resume is not None else (line.bases or {}).get(origin)
        found = kept.named(name) if name is not None else None
        return dict(found.point.reached) if found is not None else {}

    def _sent(self, line: RecoveryLine, sender: Origin, receiver: Origin) -> int:
        topology = self._world.plan.dataflow.topology
        resume = line.resumes.get(sender)
        name = resume.name if resume is not None else (line.bases or {}).get(sender)
        found = self._world.checkpoint.snapshots(sender).named(name) if name is not None else None
        to = topology.destination(sender.node, receiver)
        return found.point.sent.get(to, -1) if found is not None and to is not None else -1

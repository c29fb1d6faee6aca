"""Where all instances go back together: every line is consistent, and nothing is seen that lies behind the line that a
failure now would lead to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING

from clonos.errors import CheckpointMismatch, SnapshotCorrupt
from clonos.protocol.ids import Epoch, Origin, channel_origin
from clonos.protocol.line.recovery_line import Point, RecoveryLine
from clonos.protocol.topology import NodeKind
from clonos.sim.checks.violation import Violation
from clonos.sim.plan import Fault
from clonos.sim.records import Tag

if TYPE_CHECKING:
    from clonos.sim.checkpoint import Snapshot
    from clonos.sim.frames import OutputFrame
    from clonos.sim.task import Task
    from clonos.sim.world import World


class Rollbacks:
    """Where not all instances repeat what they did."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._passed: dict[Origin, tuple[Epoch, dict[int, int]]] = {}

    def begins(self, origin: Origin) -> None:
        """With a new task attempt."""
        self._passed.pop(origin, None)

    def passed_on(self, task: Task, frame: OutputFrame) -> None:
        """Rows of an instance that sends what a checkpoint has, on their way to its readers."""
        if not self._world.recoveries.by_node[task.origin.node].sends_late or not frame.records:
            return
        known = self._passed.get(task.origin)
        last = known[1] if known is not None and known[0] == task.epoch else {}
        last.update({to: record.position for to, record in frame.records})
        self._passed[task.origin] = task.epoch, last
        self.stored(task.origin)

    def stored(self, origin: Origin) -> None:
        """It has a checkpoint more, perhaps one of a process that was lost. The newest one, with which the next start
        begins, has what has been passed on."""
        if origin not in self._passed or self._are_snapshots_gone:
            return
        epoch, last = self._passed[origin]
        snapshots = self._world.checkpoint.snapshots(origin)
        if any(name.final and name.epoch >= epoch for name in snapshots.kept):
            return  # it has ended the epoch, and may forget what it has stored in it
        inside = snapshots.inside_of_all_attempts(epoch)
        for to, number in last.items():
            if not inside or inside[-1].sent.get(to, -1) < number:
                raise Violation(
                    "output rule",
                    f"row {number} of {origin} was passed on, which its newest checkpoint lacks",
                )

    def takes_snapshot(self, origin: Origin, snapshot: Snapshot) -> None:
        """What it does not say to be gone from the log of what was sent is in it."""
        if not self._world.recoveries.by_node[origin.node].logs_messages:
            return
        kept = {(to, record.position) for frame in snapshot.sent for to, record in frame.records}
        for to, numbers in snapshot.rows.sent.items():
            first = bisect_right(numbers, snapshot.instance.unkept.get(to, -1))
            lost = [number for number in numbers[first:] if (to, number) not in kept]
            if lost:
                raise Violation(
                    "log of what was sent",
                    f"{origin} has not kept row {lost[0]} for {to}, and does not say so",
                )

    def line_drawn(self, line: RecoveryLine) -> None:
        """By the definition: what was received was sent, and what was sent was received, or is kept by its sender."""
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
                    if sent < had and self._world.recoveries.repeats(origin.node):
                        continue
                    if sent != had and not (sent > had and self._sends_again(line, origin, receiver, had)):
                        raise Violation(
                            "line",
                            f"{receiver} begins with row {had} of {origin}, which begins behind row {sent}",
                        )

    def _sends_again(self, line: RecoveryLine, sender: Origin, receiver: Origin, had: int) -> bool:
        """Whether the sender begins with everything in its log that it had sent behind row `had`."""
        resume = line.resumes.get(sender)
        found = self._world.checkpoint.snapshots(sender).named(resume.name) if resume is not None else None
        to = self._world.plan.dataflow.topology.destination(sender.node, receiver)
        if found is None or resume is None or resume.unread is None or to is None:
            return False
        lacks = {number for number in found.rows.sent.get(to, ()) if number > had}
        frames = [frame for frame in found.sent if frame.output.last >= resume.unread]
        return lacks <= {
            record.position for frame in frames for target, record in frame.records if target == to
        }

    def shows(self, sink: Origin, tag: Tag) -> None:
        """A failure that strikes now leads to a line that has the row."""
        assert self._world.driver is not None
        checkpoint = self._world.checkpoint
        if checkpoint.passed < checkpoint.settled or self._are_snapshots_gone:
            return  # the next start writes Spark's commit again first; or what the row relied on was taken away since
        try:
            line = self._world.driver.next_line()
        except CheckpointMismatch as behind:
            raise Violation("output rule", behind.message) from behind
        except SnapshotCorrupt:
            return  # a checkpoint is gone, and the next start is refused
        sender = channel_origin(tag.channel)
        if self._world.recoveries.holds(sink.node):
            last = self._reached(line, sink).get(tag.channel, -1)
        elif self._is_done_anew(sender):
            last = self._sent(line, sender, sink)
        else:
            return
        if last < tag.position:
            raise Violation(
                "output rule",
                f"sink {sink} shows row {tag.position} of {sender}, and would begin behind {last}",
            )

    @property
    def _are_snapshots_gone(self) -> bool:
        return any(each.kind is Fault.SNAPSHOTS_GONE for each in self._world.faults.struck)

    def _is_done_anew(self, sender: Origin) -> bool:
        """Whether it may send something else, if the line lets it."""
        is_operator = self._world.plan.dataflow.topology.node(sender.node).kind is NodeKind.OPERATOR
        return is_operator and not self._world.recoveries.repeats(sender.node)

    def _reached(self, line: RecoveryLine, origin: Origin) -> Mapping[int, int]:
        if origin in self._world.sinks and not self._world.recoveries.holds(origin.node):
            return self._world.sinks[origin].cursors
        begins = self._begins(line, origin)
        return begins.reached if begins is not None else {}

    def _sent(self, line: RecoveryLine, sender: Origin, receiver: Origin) -> int:
        begins = self._begins(line, sender)
        to = self._world.plan.dataflow.topology.destination(sender.node, receiver)
        return begins.sent.get(to, -1) if begins is not None and to is not None else -1

    def _begins(self, line: RecoveryLine, origin: Origin) -> Point | None:
        """Where an instance does; None: from nothing."""
        resume = line.resumes.get(origin)
        name = resume.name if resume is not None else (line.bases or {}).get(origin)
        found = self._world.checkpoint.any_snapshots(origin).named(name) if name is not None else None
        return found.point if found is not None else None

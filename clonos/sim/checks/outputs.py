"""I3: every output number of every instance means one row, which becomes visible once.

Also what leaves an instance is numbered without holes, and what leaves it again is the same (invariant I2 at the rows).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from clonos.protocol.destination import NOWHERE
from clonos.protocol.engine.instance import Emit, Row
from clonos.protocol.fence import attempt_of
from clonos.protocol.ids import LOG_BEGIN, LogOffset, NodeId, Origin, OutputNumber, output_after
from clonos.protocol.recovery.causal.determinant_codec import decode_steps
from clonos.protocol.topology import Topology
from clonos.sim.checks.truth import Truth
from clonos.sim.checks.violation import Violation
from clonos.sim.records import Rows, Tag

if TYPE_CHECKING:
    from clonos.sim.frames import OutputFrame
    from clonos.sim.task import Task


class Outputs:
    """Rows by number, at the instance and at the sink."""

    def __init__(self, truth: Truth, topology: Topology) -> None:
        self._truth = truth
        self._topology = topology
        self._visible: dict[tuple[NodeId, str], str] = {}
        self._passed: dict[tuple[Origin, int, NodeId], int] = {}  # by attempt and reader
        # By instance and reader, rows of other outputs
        self._nowhere: dict[tuple[Origin, int], set[int]] = {}

    def emits(
        self,
        origin: Origin,
        emit: Emit,
        depends: Mapping[Origin, LogOffset],
        checkpoints: Mapping[Origin, int],
    ) -> list[list[Tag]]:
        """By reader and row. Rows depend on logs up to `depends`, and on `checkpoints` of instances by their number."""
        assert isinstance(emit.payload, Rows)
        truth, sent = self._truth.rows[origin], self._truth.sent[origin]
        tags: list[list[Tag]] = [[] for _ in emit.destinations]
        for index, row in enumerate(emit.payload.rows):
            number = output_after(emit.first, index)
            targets = [column[index] for column in emit.destinations]
            text = f"{row!r} to {' '.join(map(str, targets))}"
            if truth.setdefault(number, text) != text:
                raise Violation("I2", f"output {number} of {origin} was {truth[number]}, and is now {text}")
            for at, (of_reader, target) in enumerate(zip(tags, targets, strict=True)):
                nowhere = self._nowhere.setdefault((origin, at), set())
                if target == NOWHERE:
                    nowhere.add(number)
                    of_reader.append(Tag(origin.channel, number, -1, depends, checkpoints))
                    continue
                nowhere.discard(number)
                positions = sent[target]
                if not positions or positions[-1] < number:
                    positions.append(number)
                before = max((at for at in positions if at < number), default=-1)
                of_reader.append(Tag(origin.channel, number, before, depends, checkpoints))
        return tags

    def shortened(
        self,
        origin: Origin,
        emitted: OutputNumber,
        recorded: bytes,
        start: LogOffset = LOG_BEGIN,
        upto: LogOffset | None = None,
    ) -> None:
        """An instance goes live before the end of its history: the rows of the rest never were."""
        steps = [step for step in decode_steps(recorded, start) if step.complete]
        made = sum(step.outputs for step in steps if upto is None or step.stop <= upto)
        self._truth.cut_rows(origin, output_after(emitted, made))

    def passed_on(self, task: Task, frame: OutputFrame) -> None:
        for destination, record in frame.records:
            receiver = self._topology.receiver(task.origin.node, destination)
            assert receiver is not None
            attempt = task.origin, attempt_of(task.conduit.limits.fence), receiver.node
            last = self._passed.get(attempt)
            if last is not None and not self._follows(task.origin, receiver, last, record.position):
                raise Violation(
                    "I3", f"{task.name} passes on output {record.position} of {task.origin} after {last}"
                )
            self._passed[attempt] = record.position

    def _follows(self, origin: Origin, receiver: Origin, last: int, number: int) -> bool:
        """Whether what lies between two rows for a reader is of outputs that it does not read."""
        readers = [reader.number for reader in self._topology.downstream(origin.node)]
        # There is nothing of an instance of which only a process was heard that is overtaken.
        nowhere = self._nowhere.get((origin, readers.index(receiver.node)), set())
        return number > last and all(between in nowhere for between in range(last + 1, number))

    def shows(self, sink: Origin, identity: str, row: Row) -> None:
        text = repr(row[:3])
        if (sink.node, identity) in self._visible:
            raise Violation("I3", f"sink {sink} shows output {identity} twice")
        self._visible[sink.node, identity] = text

    def repeats(self, sink: Origin, identity: str, row: Row) -> None:
        """An idempotent function is called again."""
        text = repr(row[:3])
        if self._visible.get((sink.node, identity)) != text:
            raise Violation(
                "I3",
                f"output {identity} comes again as {text}, it was {self._visible.get((sink.node, identity))}",
            )

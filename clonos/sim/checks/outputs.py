"""I3: every output number of every instance means one row, which becomes visible once.

Also what leaves an instance is numbered without holes, and what leaves it again is the same (invariant I2 at the rows).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from clonos.protocol.engine.instance import Emit, Row
from clonos.protocol.fence import attempt_of
from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin, OutputNumber, output_after
from clonos.protocol.recovery.causal.determinant_codec import decode_steps
from clonos.sim.checks.truth import Truth
from clonos.sim.checks.violation import Violation
from clonos.sim.records import Rows, Tag

if TYPE_CHECKING:
    from clonos.sim.frames import OutputFrame
    from clonos.sim.task import Task


class Outputs:
    """Rows by number, at the instance and at the sink."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._visible: dict[str, str] = {}
        self._passed: dict[tuple[Origin, int], int] = {}

    def emits(self, origin: Origin, emit: Emit, depends: Mapping[Origin, LogOffset]) -> list[Tag]:
        assert isinstance(emit.payload, Rows)
        truth, sent = self._truth.rows[origin], self._truth.sent[origin]
        tags = []
        for index, row in enumerate(emit.payload.rows):
            number, target = output_after(emit.first, index), emit.destinations[index]
            text = f"{row!r} to {target}"
            if truth.setdefault(number, text) != text:
                raise Violation("I2", f"output {number} of {origin} was {truth[number]}, and is now {text}")
            positions = sent[target]
            if not positions or positions[-1] < number:
                positions.append(number)
            before = max((at for at in positions if at < number), default=-1)
            tags.append(Tag(origin.channel, number, before, depends))
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
        attempt = task.origin, attempt_of(task.conduit.limits.fence)
        for _, record in frame.records:
            last = self._passed.get(attempt)
            if last is not None and record.position != last + 1:
                raise Violation(
                    "I3", f"{task.name} passes on output {record.position} of {task.origin} after {last}"
                )
            self._passed[attempt] = record.position

    def shows(self, sink: Origin, identity: str, row: Row) -> None:
        text = repr(row[:3])
        if identity in self._visible:
            raise Violation("I3", f"sink {sink} shows output {identity} twice")
        self._visible[identity] = text

    def repeats(self, identity: str, row: Row) -> None:
        """An idempotent function is called again."""
        text = repr(row[:3])
        if self._visible.get(identity) != text:
            raise Violation(
                "I3", f"output {identity} comes again as {text}, it was {self._visible.get(identity)}"
            )

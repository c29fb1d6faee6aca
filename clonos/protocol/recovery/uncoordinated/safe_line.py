"""The safe line: where a failure leads at the earliest, when instances take checkpoints alone.

It is the line that a start of the query would draw if every process were lost now (`protocol.line.rollback_line`), over
the checkpoints that are known to be durable. More checkpoints never make a line earlier (Isard and Abadi, "Falkirk
Wheel", 2015, section 3.4: the low-watermark), so no failure leads behind it. What sinks hold in it may be seen, and
checkpoints and messages before it may go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from clonos.protocol.fence import Generation, generation_of
from clonos.protocol.ids import NO_OUTPUT, Epoch, Origin
from clonos.protocol.line.recovery_line import Point, RecoveryLine
from clonos.protocol.line.snapshot_name import SnapshotName, is_marked
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.rollback.progress import Progress
from clonos.protocol.recovery.rollback.rounds import NOTHING_STORED, Rounds, SafePoint, StoredRound, later_of

DrawSafe: TypeAlias = Callable[[Mapping[Origin, StoredRound]], Mapping[Origin, SafePoint]]
"""The line over the checkpoints that are stored, by instance up to which."""

_LOOKS: Final = 4
"""In an interval of checkpoints."""


class SafeLine(Progress):
    """Of one start of the query, in its driver. `interval`, in seconds, is that of one instance's checkpoints."""

    def __init__(self, draw: DrawSafe, *, interval: float) -> None:
        self._draw = draw
        self._pause = interval / _LOOKS
        self._due = 0.0
        self._stored: dict[Origin, StoredRound] = {}
        self._is_news = False
        self.said = Rounds()

    def told(self, stored: Mapping[Origin, StoredRound]) -> None:
        for origin, last in stored.items():
            if last > self._stored.get(origin, NOTHING_STORED):
                self._stored[origin] = last
                self._is_news = True

    def look(self, now: float, committed: Epoch) -> Rounds:
        """Raises what drawing a line raises; it is tried again at the next look."""
        if committed > self.said.committed:  # what is stored in the next epoch counts from now on
            self.said = replace(self.said, committed=committed)
            self._is_news = bool(self._stored)
        if self._is_news and now >= self._due:
            self._due = now + self._pause
            safe = later_of(self.said.safe, self._draw(self._stored))
            self._is_news = False
            self.said = replace(self.said, safe=safe)
        return self.said


def durable(inside: Sequence[Point], generation: Generation, stored: StoredRound | None) -> list[Point]:
    """Those of an instance's checkpoints that are known to outlive a power failure: up to the last that it has said is
    stored in this start, those that the start has begun with, and those behind which their process has stored another:
    it stores one at a time. What it has said is some moments old, and by then all that are so old may be gone."""
    last = stored or NOTHING_STORED
    named = [(point, name) for point in inside if (name := SnapshotName.parse(point.name))]
    newest = {name.fence: at for at, (_, name) in enumerate(named)}
    return [
        point
        for at, (point, name) in enumerate(named)
        if _is_durable(name, generation, last) or at < newest[name.fence]
    ]


def marked(inside: Sequence[Point]) -> list[Point]:
    """Those of an instance that may go back which are kept until the safe line has passed them."""
    named = [(point, SnapshotName.parse(point.name)) for point in inside]
    return [point for point, name in named if name is not None and (name.resumed or is_marked(name.sequence))]


def _is_durable(name: SnapshotName, generation: Generation, last: StoredRound) -> bool:
    if name.resumed or generation_of(name.fence) != generation:
        return True
    return StoredRound(name.epoch, Round(name.sequence)) <= last


def safe_points(line: RecoveryLine) -> dict[Origin, SafePoint]:
    """Of the instances that begin inside the epoch."""
    found: dict[Origin, SafePoint] = {}
    for origin, resume in line.resumes.items():
        name = SnapshotName.parse(resume.name)
        if name is not None:
            stored = StoredRound(name.epoch, Round(name.sequence))
            found[origin] = SafePoint(stored, resume.unread if resume.unread is not None else NO_OUTPUT)
    return found

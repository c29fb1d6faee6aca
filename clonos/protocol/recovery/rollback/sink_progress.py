"""How far sinks have come that hold output: what they hold in a checkpoint that counts is as good as visible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clonos.protocol.fence import LOWEST_FENCE, Fence, Generation, generation_of
from clonos.protocol.ids import LOG_BEGIN, NO_OUTPUT, Epoch, Origin
from clonos.protocol.line.recovery_line import Point
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.recovery.rollback.held_output import SinkCheckpoint
from clonos.protocol.roles.attach_request import AttachRequest


@dataclass(frozen=True, slots=True)
class SinkEnd:
    """The checkpoint with which a sink's instance ended an epoch that has committed."""

    name: str
    checkpoint: SinkCheckpoint

    @property
    def whole(self) -> Point:
        """Where the sink's store has lost nothing."""
        return Point(self.name, LOG_BEGIN, {}, dict(self.checkpoint.covered))

    def request(self, origin: Origin, epoch: Epoch, generation: Generation, *, tried: int) -> AttachRequest:
        """With which the instance goes on from here, in a driver of this start, when none of its own processes does:
        above all fences that these have shown, and that have been `tried` here, and below those of later task
        attempts. Raises CounterExhausted."""
        name = SnapshotName.parse(self.name)
        ended = name.fence if name is not None else LOWEST_FENCE
        before = ended if generation_of(ended) == generation else Fence.of(generation)
        return AttachRequest(
            origin,
            epoch,
            Fence.of(generation, before.attempt, before.replacement + 1 + tried),
            fresh=True,
            is_retry=False,
            emitted_output=NO_OUTPUT,
            log_start=LOG_BEGIN,
            log=b"",
        )

    def point(self, cursors: Mapping[int, int]) -> Point:
        """For the recovery line, where the sink's store has `cursors`."""
        return Point(self.name, LOG_BEGIN, {}, self.checkpoint.reached(cursors))


def with_held(
    cursors: Mapping[Origin, Mapping[int, int]], ends: Mapping[Origin, SinkEnd]
) -> dict[Origin, dict[int, int]]:
    """By sink's instance and channel, what is visible or certain to be."""
    found = {origin: dict(visible) for origin, visible in cursors.items()}
    for origin, end in ends.items():
        visible = found.setdefault(origin, {})
        for channel, at in end.checkpoint.reached(visible).items():
            visible[channel] = max(at, visible.get(channel, at))
    return found

"""When an instance takes a snapshot in the middle of an epoch.

A recovery repeats the work since the last snapshot, so it is work that makes one due, as long as taking them is a small
part of it. Time makes one due for the sake of the conduit, which keeps what came since.

Work is processor time of the instance's thread, time is of any steady clock; both in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

WORK_PER_COST = 30
"""Work between two snapshots, as a multiple of what the last one took."""


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """`work` makes a snapshot due unless the last one was dear, `interval` does in any case."""

    work: float
    interval: float


class SnapshotSchedule:
    """See the module. One snapshot at a time."""

    def __init__(self, limits: SnapshotLimits, *, now: float, work: float) -> None:
        self._limits = limits
        self._began_at = now
        self._worked_until = work
        self._cost = 0.0
        self._preparing = 0.0

    def is_due(self, now: float, work: float) -> bool:
        enough = max(self._limits.work, WORK_PER_COST * self._cost)
        return work - self._worked_until >= enough or now - self._began_at >= self._limits.interval

    def begin(self, now: float, work: float) -> None:
        """A snapshot was begun, or the instance is where a snapshot would leave it."""
        self._began_at = now
        self._worked_until = work

    def prepare(self, cost: float, *, is_done: bool) -> None:
        """The instance's thread has worked for a snapshot; until it `is_done`, others of its kind may come."""
        self._preparing += cost
        if is_done:
            self._cost, self._preparing = self._preparing, 0.0

    def store(self, cost: float) -> None:
        """The snapshot is durable, and that took work, too."""
        self._cost += cost

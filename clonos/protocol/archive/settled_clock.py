"""By which clock archived epochs are old: a host's, once it goes on steadily.

A host that has just begun may have a clock that is wrong by years until it has been set. What was dropped as too old
would be lost by that, so a clock that was set, or of a process that has just begun, decides nothing for a while. (A
clock that stays wrong is not found out.)
"""

from __future__ import annotations

from typing import Final

_SETTLES_S: Final = 600.0
_TOLERANCE_S: Final = 5.0
"""By so much a clock may have been corrected meanwhile."""
_OF_KEEP: Final = 10


class SettledClock:
    """`keep`: for how long epochs are kept, in seconds; it takes a tenth of that at most to settle."""

    def __init__(self, keep: float) -> None:
        self._settles = min(_SETTLES_S, keep / _OF_KEEP)
        self._since: tuple[int, float] | None = None  # when it began to go on steadily, by both clocks

    def reads(self, wall: int, steady: float) -> int | None:
        """The host's clock, which is at `wall` (microseconds since 1970) when the steady one is at `steady` (seconds);
        None where it decides nothing yet."""
        if self._since is None or self._was_set(wall, steady, *self._since):
            self._since = wall, steady
        _, since = self._since
        return wall if steady - since >= self._settles else None

    @staticmethod
    def _was_set(wall: int, steady: float, wall_before: int, steady_before: float) -> bool:
        return abs((wall - wall_before) / 1_000_000 - (steady - steady_before)) > _TOLERANCE_S

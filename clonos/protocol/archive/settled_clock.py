"""By which clock archived epochs are old: a host's, once it goes on steadily.

A host that has just begun may have a clock that is wrong by years until it has been set. What was dropped as too old
would be lost by that, so until a clock has gone on steadily for a while, it is not later than when the archive was
written last before. (A clock that stays wrong is not found out.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SETTLES_S: Final = 600.0
_TOLERANCE_S: Final = 5.0
"""By so much a clock may have been corrected meanwhile."""
_OF_KEEP: Final = 10


class SettledClock:
    """`keep`: for how long epochs are kept, in seconds; it takes a tenth of that at most to settle."""

    def __init__(self, keep: float, wall: int, steady: float) -> None:
        """The host's clock is at `wall` (microseconds since 1970) when the steady one is at `steady` (seconds)."""
        self._settles = min(_SETTLES_S, keep / _OF_KEEP)
        self._since = wall, steady  # when it began to go on steadily

    def reads(self, wall: int, steady: float, written: Iterable[int]) -> int | None:
        """By which time it is decided what is old, where the archive was `written` at these; None where nothing is."""
        if self._was_set(wall, steady, *self._since):
            self._since = wall, steady
        since, steady_since = self._since
        if steady - steady_since >= self._settles:
            return wall
        return max((each for each in written if each < since), default=None)

    @staticmethod
    def _was_set(wall: int, steady: float, wall_before: int, steady_before: float) -> bool:
        return abs((wall - wall_before) / 1_000_000 - (steady - steady_before)) > _TOLERANCE_S

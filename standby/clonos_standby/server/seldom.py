"""What goes on for longer is said once, and again each half minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final

AGAIN_SECONDS: Final = 30.0


class Seldom:
    """When one speaker may repeat what it said last; something else it may say at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: Hashable = None
        self._until = clock()

    def is_due(self, what: Hashable) -> bool:
        """Whether this is to be said now; then it counts as said."""
        now = self._clock()
        if what == self._last and now < self._until:
            return False
        self._last, self._until = what, now + AGAIN_SECONDS
        return True

"""A clock per host: what programs there read as the time of day, and what they measure deadlines with.

The time of day of two hosts differs, and jumps, goes back or stands still. What deadlines are measured with does none
of that, but no two run equally fast.
"""

from __future__ import annotations

from random import Random
from typing import Final

from clonos.sim.kernel import Kernel

APART: Final = 200_000
"""Microseconds between two hosts' times of day, at most, to begin with."""
DRIFT: Final = 0.02
"""How much faster or slower than true a clock runs, at most."""


class HostClock:
    """The clock of one host; without drawing, a true one."""

    def __init__(self, kernel: Kernel, rng: Random | None = None) -> None:
        self._kernel = kernel
        self._ahead = rng.randint(-APART, APART) if rng is not None else 0
        self._rate = 1 + rng.uniform(-DRIFT, DRIFT) if rng is not None else 1.0
        self._stands_until = 0
        self._stands_at = 0

    @property
    def day(self) -> int:
        """The time of day, in microseconds."""
        if self._kernel.now < self._stands_until:
            return self._stands_at
        return self.elapsed + self._ahead

    @property
    def elapsed(self) -> int:
        """Microseconds since some moment of this host's own."""
        return int(self._kernel.now * self._rate) if self._rate != 1.0 else self._kernel.now

    def jump(self, by: int) -> None:
        self._ahead += by

    def stand_still(self, duration: int) -> None:
        """It is behind from then on."""
        self._stands_at = self.day
        self._stands_until = self._kernel.now + duration
        self._ahead -= duration

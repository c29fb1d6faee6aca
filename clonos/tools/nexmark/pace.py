"""When each event is due: a function of its number, so that time needs no history either.

A pace is a cycle of phases, each some seconds at some rate, repeated for ever. A constant rate is a cycle of one phase;
bursts are a second phase at another rate; a phase of rate 0 is silence. All arithmetic is in whole microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Self

import numpy as np

from clonos.errors import ConfigurationError
from clonos.tools.nexmark.draw import Ids

SECOND = 1_000_000


@dataclass(frozen=True)
class Phase:
    """`seconds` at `rate` events per second."""

    rate: int
    seconds: int

    def __post_init__(self) -> None:
        if self.rate < 0 or self.seconds < 1:
            raise ConfigurationError(
                f"a phase of {self.seconds} seconds at {self.rate} events per second",
                hint="A phase lasts whole seconds, at least one, and its rate is a whole number, at least 0",
            )


@dataclass(frozen=True)
class Pace:
    """A cycle of phases."""

    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        if not any(phase.rate for phase in self.phases):
            raise ConfigurationError("a pace needs a phase in which events come")

    @classmethod
    def constant(cls, rate: int) -> Self:
        return cls((Phase(rate, 1),))

    @classmethod
    def bursts(cls, rate: int, burst: int, *, every: int, lasting: int) -> Self:
        """`rate`, and `burst` instead for the last `lasting` of every `every` seconds."""
        return cls((Phase(rate, every - lasting), Phase(burst, lasting)))

    @cached_property
    def _counts(self) -> list[int]:
        """Events before each phase of the cycle, and in all of it."""
        return [0, *accumulate(phase.rate * phase.seconds for phase in self.phases)]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(phase.seconds * SECOND for phase in self.phases)]

    def due_us(self, numbers: Ids) -> Ids:
        """Microseconds from the beginning at which the events of these numbers are due."""
        cycles, left = np.divmod(numbers, self._counts[-1])
        at = np.searchsorted(self._counts, left, side="right") - 1
        rates = np.array([max(1, phase.rate) for phase in self.phases])
        due: Ids = (left - np.array(self._counts)[at]) * SECOND // rates[at]
        due += cycles * self._starts[-1] + np.array(self._starts)[at]
        return due

    def due_by(self, us: int) -> int:
        """How many events are due at that moment or before."""
        if us < 0:
            return 0
        cycles, left = divmod(us, self._starts[-1])
        count = cycles * self._counts[-1]
        for phase, start in zip(self.phases, self._starts):
            if left >= start:
                so_far = -(-(left - start + 1) * phase.rate // SECOND)
                count += min(so_far, phase.rate * phase.seconds)
        return count

"""A sink that is away for a moment must only delay, so every operation is tried again for a while.

Only `SinkUnavailable` is tried again: it is the one error that can go away by itself. The attempt is told its number,
because a repeated attempt has to find out first whether the one before took effect after all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from clonos.errors import ConfigurationError, SinkUnavailable

_T = TypeVar("_T")
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0


class Patience:
    """Tries again, with growing pauses, until `seconds` have passed since the operation's first failure."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.seconds = check_patience(seconds)
        self._clock = clock
        self._sleep = sleep
        self.retries = 0  # of all its operations

    def run(self, attempt: Callable[[int], _T]) -> _T:
        deadline: float | None = None
        pause, number = _FIRST_PAUSE_S, 0
        while True:
            try:
                return attempt(number)
            except SinkUnavailable as error:
                now = self._clock()
                deadline = now + self.seconds if deadline is None else deadline
                if now >= deadline:
                    raise SinkUnavailable(
                        f"{error.message}; tried {number + 1} times in {self.seconds:g} s",
                        where=error.where,
                        hint=error.hint,
                    ) from error
                self._sleep(min(pause, deadline - now))
                pause, number = min(pause * 2, _LONGEST_PAUSE_S), number + 1
                self.retries += 1


def check_patience(seconds: float) -> float:
    if not 0 <= seconds <= 86_400:
        raise ConfigurationError(f"patience must be between 0 and 86400 seconds, not {seconds!r}")
    return float(seconds)

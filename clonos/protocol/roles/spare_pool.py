"""When a host starts spare replica processes, which of them may serve, and when it gives up starting any.

A spare that dies by itself has served no instance: it could not start. After some that did in a row the reason is not
going to go away by itself, so instances are refused with it, and go on only with a spare that has been alive for a
while; meanwhile spares are tried ever more seldom. One that lives shows that processes start again.

Times are seconds of any one clock.
"""

from __future__ import annotations

from typing import Final

from clonos.protocol.roles.death import KILLED, Death

GIVES_UP_AFTER: Final = 3
PROVEN_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_MOST_DOUBLINGS: Final = 16


class SparePool:
    """The spare processes of one host."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._failures = 0  # spares in a row that died by themselves
        self._next_start = 0.0

    def lacks(self, spares: int) -> bool:
        """Whether there are fewer than are wanted."""
        return spares < self._wanted

    def starts_one(self, spares: int, now: float, *, recovering: bool) -> bool:
        """Whether to start a spare now. While an instance recovers, one is enough: what a spare imports would take
        processors from the recovery."""
        return self.lacks(spares) and not (spares and recovering) and now >= self._next_start

    @property
    def doubts(self) -> bool:
        """Whether a spare that has just started has still to show that it lives."""
        return self._failures > 0

    @property
    def has_given_up(self) -> bool:
        """Whether only a proven process may serve an instance."""
        return self._failures >= GIVES_UP_AFTER

    def may_serve(self, started: float, now: float) -> bool:
        return started <= now - (PROVEN_SECONDS if self.has_given_up else 0.0)

    def cannot_start(self, now: float) -> float:
        """The host has no process to give; after how long to look again."""
        pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, _MOST_DOUBLINGS), LONGEST_PAUSE_SECONDS)
        self._next_start = now + pause
        return pause

    def died(self, death: Death, now: float) -> float | None:
        """A spare is dead; after how long to look again. None where a SIGKILL came from outside, which says nothing."""
        if death.signal == KILLED:
            return None
        self._failures += 1
        return self.cannot_start(now)

    def lives(self) -> None:
        """A spare has been alive for `PROVEN_SECONDS`."""
        self._failures = 0

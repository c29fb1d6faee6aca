"""Asking all holders, and again those that have not answered.

*No answer is not an empty answer*: a holder that refuses because it is busy, cannot read what it holds, breaks off in
the middle of a reply or says nothing at all may hold what an instance depends on. It is asked again, until it answers,
until the driver says that it is gone for good, or until the deadline of a recovery. Then the recovery stops, and names
the holder and the reason. A reply counts when it is whole.

Which holders to ask may change meanwhile, or be unknown for a while: then not all of them have answered.
"""

from __future__ import annotations

from collections.abc import Sequence

from clonos.errors import RecoveryTimeout, Where
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal.holding import HolderReply

FIRST_PAUSE = 20_000
LONGEST_PAUSE = 1_000_000


class Asking:
    """One question: what is known of the log of `origin`. Times are microseconds."""

    def __init__(self, origin: Origin, *, now: int, deadline: int, where: Where) -> None:
        self.replies: list[HolderReply] = []
        self._origin = origin
        self._deadline = deadline
        self._until = now + deadline
        self._where = where
        self._answered: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._pause = FIRST_PAUSE

    def missing(self, holders: Sequence[str]) -> list[str]:
        """Of all holders that are to be asked, those that have still to answer."""
        missing = [holder for holder in dict.fromkeys(holders) if holder not in self._answered]
        self._reasons = {holder: why for holder, why in self._reasons.items() if holder in missing}
        return missing

    def answered(self, holder: str, reply: HolderReply) -> None:
        """The whole reply has come."""
        self._answered.add(holder)
        self.replies.append(reply)

    def refused(self, holder: str, why: str) -> None:
        """There is no answer yet, or only a part of one."""
        self._reasons[holder] = why

    def left(self, now: int) -> int:
        """How long it may still be asked. Raises RecoveryTimeout."""
        left = self._until - now
        if left <= 0:
            silent = ", ".join(f"{holder} ({why})" for holder, why in self._reasons.items())
            raise RecoveryTimeout(
                f"no answer about the log of {self._origin} within {self._deadline / 1e6:g} s from "
                f"{silent or 'any holder'}",
                where=self._where,
                hint="What it holds may be needed, so nothing goes on without it. See that it runs and can read its "
                "data directory; if that is gone for good, remove it, and start the query again",
            )
        return left

    def pause(self) -> int:
        """How long to wait before the next round, at most: longer each time, so that a holder that has too much to do
        gets it done."""
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return pause

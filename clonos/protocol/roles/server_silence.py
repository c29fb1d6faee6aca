"""When a replica server is taken for hung by the process that started it: the driver, or a replica service.

A server that is stopped by a signal, or waits for a disk that does not answer, lives on: its process does not end, and
its socket still accepts connections. So it is pinged, several times within the deadline, and each ping is waited
for until the next is due. Of the time between two looks no more than that counts as silence: where the one that looks
stood still, or its whole host did, the server has not had the time to answer. Times are in any one unit.
"""

from __future__ import annotations

from typing import Final

PINGS: Final = 4
"""So many in a row without an answer are the deadline."""


class ServerSilence:
    """Of one server process."""

    def __init__(self, deadline: float, now: float) -> None:
        self.step = deadline / PINGS
        self._deadline = deadline
        self._looked_at = now
        self._silent = 0.0

    @property
    def is_hung(self) -> bool:
        return self._silent >= self._deadline

    def answered(self, now: float) -> None:
        self._looked_at, self._silent = now, 0.0

    def unanswered(self, now: float) -> None:
        """The last ping has been waited for, and nothing was heard."""
        self._silent += min(now - self._looked_at, self.step)
        self._looked_at = now

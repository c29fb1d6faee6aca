"""One connection of a conduit to a process: to the instance's replica, or to its standby.

Two marks walk along the numbers of the bundles that the conduit keeps: `acked` (the process has them) and `sent` (on
this connection). What lies between them is under way, and the process says how much of that it has room for. When a
standby becomes the replica, its link becomes the replica's as it is. `PeerLink.java` is the same in the plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FIRST_WINDOW = 4
FIRST_WINDOW_BYTES = 1 << 20


@dataclass(slots=True)
class PeerLink:
    """Windows are counts of bundles and of bytes, times are milliseconds. A process that is `paused` has said that it
    will be silent for a while."""

    connected: bool = False
    paused: bool = False
    heard_at: int = 0
    sent: int = 0
    acked: int = 0
    under_way: int = 0
    window: int = FIRST_WINDOW
    window_bytes: int = FIRST_WINDOW_BYTES

    def open(self, now: int) -> None:
        """The connection stands."""
        self.connected, self.paused, self.heard_at = True, False, now

    def begin_after(self, bundle: int) -> None:
        """The process has what lies up to there, and is sent what follows."""
        self.sent = self.acked = bundle
        self.under_way = 0

    def has_room_for(self, size: int) -> bool:
        """Whether one more bundle may be sent; one alone may be larger than the window."""
        return self.sent - self.acked < self.window and self.has_room_again_for(size)

    def has_room_again_for(self, size: int) -> bool:
        """Whether one more bundle may be sent that was made for an earlier process. That there be few under way is for
        those that are still to be made: it makes them larger."""
        return self.under_way == 0 or self.under_way + size <= self.window_bytes

    def send(self, size: int) -> int:
        """The next bundle; its number."""
        self.sent += 1
        self.under_way += size
        return self.sent

    def acknowledge(self, upto: int, sizes: Mapping[int, int]) -> None:
        """The process has the bundles up to there. One that replaces another may have some that it was never sent."""
        if upto > self.sent:
            self.begin_after(upto)
        while self.acked < upto:
            self.acked += 1
            self.under_way -= sizes[self.acked]

    def is_silent(self, now: int, limit: int) -> bool:
        """Whether nothing has been heard for as long as it may be."""
        return self.connected and not self.paused and now - self.heard_at >= limit

    def silent_at(self, limit: int) -> int | None:
        """When it will have been silent for that long."""
        return self.heard_at + limit if self.connected and not self.paused else None

"""How long a server on another host may serve a query, so that the driver knows when it does not any more.

The driver asks for more time again and again, and each answer has a number. A renewal says which answer the driver has
had; the host counts the lease from the moment when it gave *that* answer, not from the moment when the renewal came: of
a renewal whose answer is lost the driver knows nothing, and a host that counted it would serve on after the driver has
taken it for gone. So whatever is lost or late, in one direction or both, the host ends before the driver gives it up,
if its clock is not slower than the driver's by more than the margin. Times are in any one unit.
"""

from __future__ import annotations


class HostLease:
    """Where the server runs. The grant is answer 0."""

    def __init__(self, length: float, now: float) -> None:
        self._length = length
        self._given = {0: now}
        self.ends = now + length

    def renew(self, heard: int, now: float) -> int:
        """The driver has had this answer; the number of the next one."""
        given = self._given.get(heard)
        if given is not None:
            self.ends = max(self.ends, given + self._length)
        number = max(self._given) + 1
        self._given = {known: at for known, at in self._given.items() if known >= heard}
        self._given[number] = now
        return number

    def is_over(self, now: float) -> bool:
        return now >= self.ends


class DriverLease:
    """As its holder knows it. `heard` is the last answer that came."""

    def __init__(self, length: float, margin: float, now: float) -> None:
        self._length = length
        self._margin = margin
        self._heard_at = now
        self.heard = 0

    def answered(self, number: int, now: float) -> None:
        if number > self.heard:
            self.heard, self._heard_at = number, now

    def is_over(self, now: float) -> bool:
        """Whether the server is gone, whatever was lost on the way, or does not count any more: one that is
        stopped by a signal notices the end of its lease later."""
        return now > self._heard_at + self._length + self._margin

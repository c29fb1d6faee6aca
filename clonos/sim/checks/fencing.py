"""I6: once a newer incarnation has acted, nothing that an older one does takes effect; and never do two run at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.protocol.fence import LOWEST_FENCE, NO_FENCE, Fence, Generation, generation_of, of_same_attempt
from clonos.protocol.ids import Origin
from clonos.sim.checks.violation import Violation

if TYPE_CHECKING:
    from clonos.sim.replica import Replica


class Fencing:
    """Keeps its own record of every token."""

    def __init__(self) -> None:
        self._acted: dict[Origin, Fence] = {}
        self._sinks: dict[Origin, Fence] = {}
        self._raised: dict[tuple[str, Origin], int] = {}
        self._served: dict[tuple[str, Origin], int] = {}
        self._generations: dict[str, int] = {}
        self._running: dict[Origin, Replica] = {}

    def raised(self, server: str, origin: Origin, fence: Fence) -> None:
        """The server serves a connection with this fence. (Another one may not have heard of a newer attempt yet.)"""
        if fence <= self._raised.get((server, origin), -1):
            raise Violation(
                "I6", f"{origin} is served under fence {fence:x}, which is not newer than all before"
            )
        self._raised[server, origin] = fence

    def told(self, server: str, generation: Generation) -> None:
        """The server has said that it serves no conduit of an older generation any more."""
        self._generations[server] = max(generation, self._generations.get(server, 0))

    def serves(self, server: str, origin: Origin, fence: Fence, *, standby: bool) -> None:
        """Some connection, as the replica or as its standby, whatever became of the server's process since."""
        told, shown = self._generations.get(server, 0), self._served.get((server, origin), -1)
        if generation_of(fence) < told:
            raise Violation("I6", f"{origin} is served under {fence:x} although {server} was told {told}")
        if fence < shown or (fence == shown and not standby):
            raise Violation("I6", f"{origin} is served under {fence:x} although {server} was shown {shown:x}")
        self._served[server, origin] = fence

    def forgotten(self, server: str) -> None:
        """With its disk. Then it is the snapshots' fence that an older incarnation finds raised."""
        self._raised = {place: fence for place, fence in self._raised.items() if place[0] != server}
        self._served = {place: fence for place, fence in self._served.items() if place[0] != server}
        self._generations.pop(server, None)

    def begins(self, origin: Origin, replica: Replica) -> None:
        other = self._running.get(origin)
        here = other is not None and other.server.disk is replica.server.disk
        if here and other is not None and other is not replica and other.alive:
            raise Violation("I6", f"{replica.name} begins while {other.name} is alive")
        self._running[origin] = replica

    def has_acted_since(self, origin: Origin, fence: Fence) -> bool:
        return fence < self._acted.get(origin, NO_FENCE)

    def starts_from(self, origin: Origin, fence: Fence, snapshot: Fence) -> None:
        """Inside an epoch, from a snapshot of its own task attempt."""
        if not of_same_attempt(fence, snapshot):
            raise Violation(
                "I6", f"{origin} under {fence:x} starts from a snapshot of another attempt, {snapshot:x}"
            )

    def ends(self, replica: Replica) -> None:
        if self._running.get(replica.origin) is replica:
            del self._running[replica.origin]

    def acts(self, origin: Origin, fence: Fence, what: str) -> None:
        newest = self._acted.get(origin, NO_FENCE)
        if fence < newest:
            raise Violation("I6", f"{origin} {what} under fence {fence:x} after {newest:x} has acted")
        self._acted[origin] = fence

    def sink_raised(self, origin: Origin, fence: Fence) -> None:
        self._sinks[origin] = max(fence, self._sinks.get(origin, NO_FENCE))

    def shown(self, origin: Origin, fence: Fence, first: Fence) -> None:
        """By a task attempt whose fences begin at `first`."""
        if not of_same_attempt(fence, first):
            raise Violation("I6", f"an attempt of {origin} shows {fence:x}, which is another attempt's")

    def drops(self, origin: Origin, fence: Fence) -> None:
        """A driver, of a sink's log."""
        standing = self._sinks.get(origin, LOWEST_FENCE)
        if generation_of(fence) < generation_of(standing):
            raise Violation(
                "I6", f"sink {origin} drops determinants under fence {fence:x} although {standing:x} stands"
            )

    def shows(self, origin: Origin, fence: Fence) -> None:
        standing = self._sinks.get(origin, NO_FENCE)
        if fence < standing:
            raise Violation(
                "I6", f"sink {origin} shows a row under fence {fence:x} although {standing:x} stands"
            )

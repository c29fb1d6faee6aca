"""Connections between conduits and replicas: FIFO both ways, until they break.

A frame is delivered whole or not at all, after a delay of its own but never before the one sent before it. When one
end closes, or its process dies, what it had sent still arrives, and then the other end finds out. When the connection
breaks, what is under way is lost, and each end finds out in its own time. Between hosts that cannot reach each other
nothing arrives, and neither end finds that out before a frame of its own is lost (`clonos.sim.partitions`).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from clonos.sim.kernel import Kernel, Process
from clonos.sim.partitions import Partitions, Way

Receiver = Callable[[Any], None]


class End:
    """One end of a connection: the process there, and what it does with what it receives."""

    def __init__(self, process: Process, receive: Receiver, broken: Callable[[str], None]) -> None:
        self.process = process
        self.receive = receive
        self.broken = broken


class Link:
    """A connection. The conduit's end is there from the start, the replica's when the server has handed it over."""

    def __init__(self, kernel: Kernel, rng: Random, conduit: End, partitions: Partitions, up: Way) -> None:
        """`up` is the way to the replica."""
        self._kernel = kernel
        self._rng = rng
        self._partitions = partitions
        self._ways = {"up": up, "down": (up[1], up[0])}
        self._conduit = conduit
        self._replica: End | None = None
        self._early: list[Any] = []
        self._not_before = {"up": 0, "down": 0}
        self.open = True
        self._cut = False

    def attach(self, replica: End) -> None:
        self._replica = replica
        early, self._early = self._early, []
        for frame in early:
            replica.process.call(replica.receive, frame)

    def send_up(self, frame: Any) -> None:
        """To the replica."""
        if self.open:
            self._plan("up", self._arrive_up, frame)

    def send_down(self, frame: Any) -> None:
        """To the conduit."""
        if self.open:
            self._plan("down", self._arrive_down, frame)

    def _plan(self, way: str, arrive: Receiver, frame: Any) -> None:
        opens = self._partitions.opens(*self._ways[way])
        at = max(self._kernel.now + self._rng.randint(10, 300), self._not_before[way], opens)
        self._not_before[way] = at
        if self._partitions.breaks(*self._ways[way]):
            self._kernel.after(opens - self._kernel.now, self.cut, "the connection was lost in a partition")
            return
        self._kernel.after(at - self._kernel.now, arrive, frame)

    def _arrive_up(self, frame: Any) -> None:
        if self._cut:
            return
        if self._replica is None:
            self._early.append(frame)
        else:
            self._replica.process.call(self._replica.receive, frame)

    def _arrive_down(self, frame: Any) -> None:
        if not self._cut:
            self._conduit.process.call(self._conduit.receive, frame)

    def close(self, reason: str, *, by: Process | None = None) -> None:
        """One end has closed; the other is told behind what is under way to it."""
        if not self.open:
            return
        self.open = False
        for way, end in (("down", self._conduit), ("up", self._replica)):
            if end is not None and end.process is not by:
                opens = self._partitions.opens(*self._ways[way])
                at = max(self._kernel.now + self._rng.randint(10, 500), self._not_before[way], opens)
                self._kernel.after(at - self._kernel.now, end.process.call, end.broken, reason)

    @property
    def was_cut(self) -> bool:
        return self._cut

    def cut(self, reason: str) -> None:
        """The connection breaks."""
        self._cut = True
        self.close(reason)

"""The starter of a replica server (the driver on its own host, the replica service on another one) pings the server,
and replaces it when it lives but does not answer, by the rule of `protocol.roles.server_silence`, as
`clonos_standby.cluster.server_watch` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from clonos.protocol.roles.server_silence import ServerSilence
from clonos.sim.leases import LENGTH
from clonos.sim.partitions import Place
from clonos.sim.task import HEARTBEAT_MS

if TYPE_CHECKING:
    from clonos.sim.world import World

DEADLINE: Final = HEARTBEAT_MS * 1000
"""As long as a conduit waits for a silent replica, in microseconds. For a leased server it is the
length of the lease, after which the server would end by itself."""


class ServerWatch:
    """The watch over one server process."""

    def __init__(self, world: World, at: int) -> None:
        self._world = world
        self._at = at
        self._server = world.servers[at]
        is_leased = world.plan.partitions and at == Place.SECOND_HOST
        self._silence = ServerSilence(LENGTH if is_leased else DEADLINE, world.kernel.now)
        self._ping()

    def _ping(self) -> None:
        self._has_answered = False
        self._server.call(self._answer)
        self._world.kernel.after(int(self._silence.step), self._look)

    def _answer(self) -> None:
        self._has_answered = True

    def _look(self) -> None:
        if not self._server.alive:
            return
        now = self._world.kernel.now
        if self._has_answered:
            self._silence.answered(now)
        else:
            self._silence.unanswered(now)
        if self._silence.is_hung:
            self._world.trace(self._server.name, "does not answer, and is replaced")
            self._world.lose_server(self._at)
        else:
            self._ping()

"""I8: an instance returns to a snapshot only because of what happened to itself, its task, the query or the host, or
because its task runs elsewhere now. Records that end processes fail no task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.errors import ReplicaLost
from clonos.protocol.ids import Origin
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.sim.checks.violation import Violation

if TYPE_CHECKING:
    from clonos.sim.operator_host import OperatorHost
    from clonos.sim.task import Task
    from clonos.sim.world import World


class Locality:
    """Which instances faults have struck, and which were replaced."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._struck: set[Origin] = set()
        self._all = False

    def struck(self, origin: Origin | None) -> None:
        if origin is None:
            self._all = True
        else:
            self._struck.add(origin)

    def restores(self, host: OperatorHost, hello: AttachRequest, *, moved: bool) -> None:
        """`moved`: it is on another host than when it ended its last epoch."""
        begins = hello.fresh and (hello.generation == 1 or moved)
        if not (begins or self._all or host.origin in self._struck or hello.generation > 1):
            raise Violation("I8", f"{host.origin} rolls back although nothing has happened to it")

    def fails(self, task: Task, error: str, message: str) -> None:
        """A conduit fails its task. Where no fault has struck, its replicas died of records alone."""
        if error == ReplicaLost.__name__ and not self._world.faults.struck:
            raise Violation("I8", f"{task.name} fails although records alone have ended processes: {message}")

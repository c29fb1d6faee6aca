"""The replica server: which process runs which instance. Mirrors `clonos_standby.server.supervisor`.

For every connection that shows a newer fence exactly one process serves the instance: the one that already does, if it
stands at the end of an earlier epoch; otherwise a spare, and then only after the old process is dead and reaped. Fences
are on disk before they are used, so they hold across the server's own death.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clonos.errors import Fenced
from clonos.protocol.ids import Origin
from clonos.protocol.roles.admission import goes_on
from clonos.protocol.roles.conduit_model import ReplicaError
from clonos.protocol.roles.incarnation import AttachRequest
from clonos.protocol.topology import NodeKind
from clonos.sim.disk import Disk
from clonos.sim.kernel import Process
from clonos.sim.network import Link
from clonos.sim.replica import Commit, Connect, Replica

if TYPE_CHECKING:
    from clonos.sim.world import World


@dataclass(eq=False, slots=True)
class Serving:
    """One replica as the server sees it."""

    replica: Replica
    hello: AttachRequest | None = None
    at_end: int | None = None
    doomed: bool = False

    def serves(self, hello: AttachRequest) -> bool:
        return not self.doomed and goes_on(hello, last=self.hello, at_end=self.at_end)


class ReplicaServer(Process):
    """Parent of all replicas: they die with it."""

    def __init__(self, world: World, disk: Disk) -> None:
        super().__init__(world.kernel, disk.holder)
        self.world = world
        self.disk = self._disk = disk
        disk.open_fences()
        self.at = world.disks.index(disk)
        self._serving: dict[Origin, Serving] = {}
        self._pending: dict[Origin, tuple[Link, AttachRequest]] = {}
        self._waiting_for_death: list[tuple[set[Replica], Callable[[], None]]] = []

    # ----------------------------------------------------------- connections

    def connect(self, link: Link, hello: AttachRequest) -> None:
        if hello.generation < self._disk.fences.generation:
            self._refuse(link, Fenced(f"generation {hello.generation} is over"))
        elif not (
            self._disk.fences.admit_standby(hello.origin, hello.fence)
            if hello.standby
            else self.raise_fence(hello.origin, hello.fence)
        ):
            self._refuse(
                link, Fenced(f"fence {hello.fence:x} of {hello.origin} is not newer than all before")
            )
        else:
            self.world.checks.fencing.serves(self.name, hello.origin, hello.fence, standby=hello.standby)
            self._place(hello.origin, link, hello)

    def raise_fence(self, origin: Origin, fence: int) -> bool:
        taken = self._disk.fences.raise_to(origin, fence)
        if taken:
            self.world.checks.fence_raised(self.name, origin, fence)
        return taken

    def _place(self, origin: Origin, link: Link, hello: AttachRequest) -> None:
        overtaken = self._pending.pop(origin, None)
        if overtaken is not None:
            self._refuse(overtaken[0], Fenced("a later attempt has connected"))
        current = self._serving.get(origin)
        if current is None:
            self._serve(origin, link, hello)
        elif current.serves(hello):
            self._hand_over(current, link, hello)
        else:
            self._pending[origin] = (link, hello)
            self._doom(current)

    def _serve(self, origin: Origin, link: Link, hello: AttachRequest) -> None:
        node = self.world.plan.dataflow.topology.node(origin.node)
        self.world.check_told(hello.generation)
        replica = Replica(self.world, origin, self, sink=node.kind is NodeKind.SINK)
        serving = self._serving[origin] = Serving(replica)
        replica.mourners.append(lambda: self._later(self._buried, origin, serving))
        replica.launch()
        self._hand_over(serving, link, hello)

    def _hand_over(self, serving: Serving, link: Link, hello: AttachRequest) -> None:
        serving.hello, serving.at_end = hello, None
        self._tell(serving, Connect(hello, link))

    def _tell(self, serving: Serving, word: Connect | Commit) -> None:
        self._later(serving.replica.call, serving.replica.hear, word)

    def _later(self, act: Callable[..., None], *arguments: object) -> None:
        self.kernel.after(self.world.choices.schedule.randint(10, 200), act, *arguments)

    def _refuse(self, link: Link, error: Fenced) -> None:
        link.send_down(ReplicaError(type(error).__name__, error.message, error.retryable))

    # ---------------------------------------------------------------- death

    def _doom(self, serving: Serving) -> None:
        if not serving.doomed:
            serving.doomed = True
            self._later(serving.replica.kill)

    def _buried(self, origin: Origin, serving: Serving) -> None:
        """Reaped: whoever waited for it is served."""
        if not self.alive:
            return
        for replicas, done in list(self._waiting_for_death):
            replicas.discard(serving.replica)
            if not replicas:
                self._waiting_for_death.remove((replicas, done))
                done()
        if self._serving.get(origin) is not serving:
            return
        del self._serving[origin]
        pending = self._pending.pop(origin, None)
        if pending is not None:
            self._serve(origin, *pending)

    def died(self) -> None:
        for serving in list(self._serving.values()):
            serving.replica.kill()
        for link, _ in self._pending.values():
            link.close("the replica server is gone")

    # ------------------------------------------------- replicas and the driver

    def at_end(self, replica: Replica, epoch: int) -> None:
        serving = self._serving.get(replica.origin)
        if serving is not None and serving.replica is replica:
            serving.at_end = epoch

    def promoted(self, replica: Replica, hello: AttachRequest) -> bool:
        """A standby has been told that it is the replica; whether nothing newer has been here."""
        serving = self._serving.get(replica.origin)
        if serving is None or serving.replica is not replica or serving.doomed:
            return False
        serving.hello = hello
        return self.raise_fence(hello.origin, hello.fence)

    def commit(self, epoch: int, stable: Mapping[Origin, int]) -> None:
        for serving in self._serving.values():
            if not serving.doomed:
                self._tell(serving, Commit(epoch, stable))

    def set_generation(self, generation: int, done: Callable[[], None]) -> None:
        """From now on only this generation: older replicas are dead when `done` is called."""
        self._disk.fences.raise_generation(generation)
        self.world.checks.fencing.told(self.name, generation)
        for origin, (link, hello) in list(self._pending.items()):
            if hello.generation < generation:
                del self._pending[origin]
                self._refuse(link, Fenced(f"the query runs generation {generation}"))
        older = [
            serving
            for serving in self._serving.values()
            if serving.hello is not None and serving.hello.generation < generation
        ]
        for serving in older:
            self._doom(serving)
        if older:
            self._waiting_for_death.append(({serving.replica for serving in older}, done))
        else:
            done()

    @property
    def replicas(self) -> list[Replica]:
        return [serving.replica for serving in self._serving.values()]

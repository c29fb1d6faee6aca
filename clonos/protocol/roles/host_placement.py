"""Which process of a host serves which instance, and what happens when none does any more.

For every connection that shows a newer fence exactly one process serves the instance: the one that already does, if it
stands at the end of an earlier epoch (`protocol.roles.admission`); otherwise another one, and then only after the old
one is dead and reaped. That order is what makes fencing true on a host: nothing written under an older fence can take
effect when the process that would write it no longer exists, and its locks and files are free for the next.

A conduit that comes back (`fresh` false) while its process is alive has given up on it: that is how a hang shows.
Conduits count attempts and decide when to stop. A connection waits for one death at most: a later connection to the
same instance takes its place, and the earlier one is refused.

The role holds no process and no socket. A runtime tells it what happens and carries out what it asks for (`HostPorts`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from clonos.errors import ClonosError, Fenced, ReplicaLost
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.roles.admission import Fences, Said, goes_on
from clonos.protocol.roles.death import Death, KillReason


class Asked(Said, Protocol):
    """What a conduit says when it connects, as far as its placement needs it."""

    @property
    def origin(self) -> Origin: ...

    @property
    def generation(self) -> Generation: ...


class Connection(Protocol):
    """The connection of a conduit that has said what it wants."""

    @property
    def said(self) -> Asked: ...


ProcessT = TypeVar("ProcessT", bound=Hashable)
ConnectionT = TypeVar("ConnectionT", bound=Connection)
HandedT = TypeVar("HandedT", bound=Connection, contravariant=True)


class HostPorts(Protocol[ProcessT, HandedT]):
    """What the role asks of the runtime that drives it."""

    def take(self, origin: Origin) -> ProcessT:
        """A process that has served no instance, for this one from now on. Raises ClonosError where there is none."""
        ...

    def catch_up(self, process: ProcessT) -> None:
        """Tell the role what the process has reported until now."""
        ...

    def hand_over(self, process: ProcessT, connection: HandedT, previous: Death | None) -> bool:
        """Whether the process has been sent the connection; `previous` is how the instance's last process here died.
        Raises ClonosError where this host lacks something."""
        ...

    def refuse(self, connection: HandedT, error: ClonosError) -> None: ...

    def is_ending(self, process: ProcessT) -> bool:
        """Whether it dies on its own account just now."""
        ...

    def kill_process(self, process: ProcessT, *, asks_for_stacks: bool) -> None:
        """`asks_for_stacks`: first let it say where it stands, if it can. It will be reaped later."""
        ...


@dataclass(eq=False, slots=True)
class Served(Generic[ProcessT]):
    """One instance's process. `said` is what it was handed last; `at_end` the epoch at whose end it stands."""

    process: ProcessT
    origin: Origin
    said: Asked | None = None
    at_end: Epoch | None = None
    killed_for: KillReason | None = None

    def may_go_on(self, said: Asked) -> bool:
        return self.killed_for is None and goes_on(said, last=self.said, at_end=self.at_end)


class HostPlacement(Generic[ProcessT, ConnectionT]):
    """See the module. Not safe to use from several threads at once."""

    def __init__(self, ports: HostPorts[ProcessT, ConnectionT], fences: Fences) -> None:
        self._ports = ports
        self._fences = fences
        self._serving: dict[Origin, Served[ProcessT]] = {}
        self._waiting: dict[Origin, ConnectionT] = {}
        self._deaths: dict[Origin, Death] = {}
        self._awaited: list[tuple[set[ProcessT], Callable[[], None]]] = []

    # ----------------------------------------------------------- what is known

    @property
    def serving(self) -> list[Served[ProcessT]]:
        """Those that serve an instance, dying ones included."""
        return list(self._serving.values())

    @property
    def not_given_up(self) -> list[ProcessT]:
        """Processes that serve an instance and are told of commits."""
        return [served.process for served in self._serving.values() if served.killed_for is None]

    @property
    def waiting(self) -> list[ConnectionT]:
        """Connections that wait for a death."""
        return list(self._waiting.values())

    def last_death(self, origin: Origin) -> Death | None:
        return self._deaths.get(origin)

    def killed_for(self, process: ProcessT) -> KillReason | None:
        served = self._of(process)
        return None if served is None else served.killed_for

    def stands_by(self, process: ProcessT) -> bool:
        """Whether it is a standby, and has not been promoted."""
        served = self._of(process)
        return served is not None and served.said is not None and served.said.standby

    def _of(self, process: ProcessT) -> Served[ProcessT] | None:
        return next((served for served in self._serving.values() if served.process == process), None)

    # ------------------------------------------------------------- connections

    def connects(self, connection: ConnectionT) -> bool:
        """A conduit has connected; whether its fence is taken. It is served, waits, or is refused."""
        try:
            self._admit(connection.said)
        except ClonosError as error:
            self._ports.refuse(connection, error)
            return False
        self._or_refuse(self._place, connection)
        return True

    def _admit(self, said: Asked) -> None:
        """Raises Fenced, and StorageUnavailable where the fence cannot be written down."""
        node, instance = said.origin
        if said.generation < self._fences.generation:
            raise Fenced(
                f"generation {said.generation} of operator {node}, instance {instance} is over; "
                f"the query runs generation {self._fences.generation}"
            )
        admit = self._fences.admit_standby if said.standby else self._fences.raise_to
        if not admit(said.origin, said.fence):
            raise Fenced(
                f"fence {said.fence:x} of operator {node}, instance {instance}, epoch {said.epoch} "
                f"is not newer than {self._fences.fence(said.origin) or 0:x}, which a later attempt has shown"
            )

    def _or_refuse(self, serve: Callable[[ConnectionT], None], connection: ConnectionT) -> None:
        try:
            serve(connection)
        except ClonosError as error:
            self._ports.refuse(connection, error)

    def _place(self, connection: ConnectionT) -> None:
        origin = connection.said.origin
        overtaken = self._waiting.pop(origin, None)
        if overtaken is not None:
            self._ports.refuse(overtaken, Fenced("a later attempt has connected"))
        current = self._serving.get(origin)
        if current is not None:
            self._ports.catch_up(current.process)
            current = self._serving.get(origin)
        if current is None:
            self._serve(connection)
        elif current.may_go_on(connection.said):
            self._hand_over(current, connection)
        else:
            self._waiting[origin] = connection
            self._give_up(current, KillReason.REPLACED if connection.said.fresh else KillReason.HANG)

    def _serve(self, connection: ConnectionT) -> None:
        origin = connection.said.origin
        served = Served(self._ports.take(origin), origin)
        self._serving[origin] = served
        self._hand_over(served, connection)

    def _hand_over(self, served: Served[ProcessT], connection: ConnectionT) -> None:
        served.said, served.at_end = connection.said, None
        if not self._ports.hand_over(served.process, connection, self._deaths.get(served.origin)):
            self._waiting[served.origin] = connection
            self._give_up(served, KillReason.DEAF)

    # ------------------------------------------------------- what processes say

    def stands_at_end(self, process: ProcessT, epoch: Epoch) -> None:
        """The process has come to the end of this epoch."""
        served = self._of(process)
        if served is not None:
            served.at_end = epoch

    def promotes(self, process: ProcessT, said: Asked) -> bool:
        """A standby has been told by its conduit that it is the replica; whether it is. It acts when its fence is
        written down. Raises StorageUnavailable where that cannot be done."""
        served = self._of(process)
        if served is None or not self._fences.raise_to(said.origin, said.fence):
            return False
        served.said = said
        return True

    def is_deaf(self, process: ProcessT) -> None:
        """The process does not read what it is told."""
        served = self._of(process)
        if served is not None:
            self._give_up(served, KillReason.DEAF)

    # --------------------------------------------------------------------- death

    def _give_up(self, served: Served[ProcessT], reason: KillReason) -> None:
        """One that dies on its own account is not killed: its death says then what it died of."""
        if served.killed_for is None and not self._ports.is_ending(served.process):
            served.killed_for = reason
            self._ports.kill_process(served.process, asks_for_stacks=reason is KillReason.HANG)

    def on_reaped(self, process: ProcessT, death: Death) -> None:
        """The process is dead, and what it held is free: the connection that waited for it is served."""
        served = self._of(process)
        if served is not None:
            del self._serving[served.origin]
            self._deaths[served.origin] = death
            connection = self._waiting.pop(served.origin, None)
            if connection is not None:
                self._or_refuse(self._serve, connection)
        for processes, done in list(self._awaited):
            processes.discard(process)
            if not processes:
                self._awaited.remove((processes, done))
                done()

    def cannot_be_killed(self, process: ProcessT, name: str) -> None:
        """It was killed long ago and is not reaped: the connection is not left to wait for it."""
        served = self._of(process)
        connection = self._waiting.pop(served.origin, None) if served is not None else None
        if connection is not None:
            self._ports.refuse(connection, ReplicaLost(f"{name} of an earlier attempt cannot be killed"))

    # ---------------------------------------------------------------- the driver

    def begins(self, generation: Generation, done: Callable[[], None]) -> None:
        """A start of the query: from now on only it is served, and older processes are dead when `done` is called.
        Raises StorageUnavailable where the generation cannot be written down."""
        self._fences.raise_generation(generation)
        for origin, connection in list(self._waiting.items()):
            if connection.said.generation < generation:
                del self._waiting[origin]
                self._ports.refuse(connection, Fenced(f"the query runs generation {generation}"))
        older = [
            served
            for served in self._serving.values()
            if served.said is not None and served.said.generation < generation
        ]
        for served in older:
            self._give_up(served, KillReason.FENCED)
            self._ports.kill_process(served.process, asks_for_stacks=False)  # no conduit waits for stacks now
        if older:
            self._awaited.append(({served.process for served in older}, done))
        else:
            done()

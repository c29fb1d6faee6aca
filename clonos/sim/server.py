"""The replica server of a host: parent of its replicas, and a thin driver of `protocol.roles.host_placement`, as
`clonos_standby.server.supervisor` is one. Fences are on its host's disk before they are used, so they hold across the
server's own death.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clonos.errors import ClonosError
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, LogOffset, Origin
from clonos.protocol.recovery.rollback.round_relay import RoundRelay
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.protocol.roles.conduit_model import ReplicaError
from clonos.protocol.roles.death import Death, Ending, classify_death
from clonos.protocol.roles.host_placement import HostPlacement
from clonos.protocol.roles.incarnation import AttachRequest
from clonos.protocol.topology import NodeKind
from clonos.sim.disk import Disk
from clonos.sim.kernel import Process
from clonos.sim.network import Link
from clonos.sim.replica import Commit, Connect, Replica, RoundsSaid

if TYPE_CHECKING:
    from clonos.sim.world import World


@dataclass(frozen=True, eq=False, slots=True)
class Connection:
    """A conduit's, which has said what it wants."""

    link: Link
    said: AttachRequest


class ReplicaServer(Process):
    """Parent of all replicas: they die with it. It carries out what the role asks for."""

    def __init__(self, world: World, disk: Disk) -> None:
        super().__init__(world.kernel, disk.holder)
        self.world = world
        self.disk = disk
        disk.open_fences()
        self.at = world.disks.index(disk)
        self._placement: HostPlacement[Replica, Connection] = HostPlacement(self, disk.fences)
        self._handed: dict[Replica, Link] = {}
        self._rounds = RoundRelay()
        self._killed: set[Replica] = set()

    # ----------------------------------------------------------- connections

    def connect(self, link: Link, hello: AttachRequest) -> None:
        if not self._placement.connects(Connection(link, hello)):
            return
        if not hello.standby:
            self.world.checks.fence_raised(self.name, hello.origin, hello.fence)
        self.world.checks.fencing.serves(self.name, hello.origin, hello.fence, standby=hello.standby)

    def take(self, origin: Origin) -> Replica:
        """For the role: its process is started now, so it is always one that can run."""
        node = self.world.plan.dataflow.topology.node(origin.node)
        replica = Replica(self.world, origin, self, sink=node.kind is NodeKind.SINK)
        replica.mourners.append(lambda: self._later(self.call, self._reap, replica))
        replica.launch()
        return replica

    def catch_up(self, process: Replica) -> None:
        """For the role: what a replica says is heard at once here."""

    def hand_over(self, process: Replica, connection: Connection, previous: Death | None) -> bool:
        """For the role."""
        if not process.alive:
            return False
        if process not in self._handed:
            self.world.check_told(connection.said.generation)
        self._handed[process] = connection.link
        self._tell(process, Connect(connection.said, connection.link, previous))
        if (rounds := self._rounds.first_told(connection.said.generation)) is not None:
            self._tell(process, RoundsSaid(rounds))
        return True

    def refuse(self, connection: Connection, error: ClonosError) -> None:
        """For the role."""
        connection.link.send_down(ReplicaError(type(error).__name__, error.message, error.retryable))

    def _tell(self, replica: Replica, word: Connect | Commit | RoundsSaid) -> None:
        self._later(replica.call, replica.hear, word)

    def _later(self, act: Callable[..., None], *arguments: object) -> None:
        self.kernel.after(self.world.choices.schedule.randint(10, 200), act, *arguments)

    # ---------------------------------------------------------------- death

    def is_ending(self, process: Replica) -> bool:
        """For the role."""
        return not process.alive

    def kill_process(self, process: Replica, *, asks_for_stacks: bool) -> None:
        """For the role. The simulator has no stacks to ask for, so a second kill is no quicker than the first."""
        if process not in self._killed:
            self._killed.add(process)
            self._later(self.call, process.kill)

    def _reap(self, replica: Replica) -> None:
        if not self.alive:
            return
        self._killed.discard(replica)
        link = self._handed.pop(replica, None)
        if link is not None:
            link.close("the replica is gone", by=replica)
        death = classify_death(
            Ending(
                replica.origin,
                replica.number,
                code=replica.exit_code,
                signal=replica.signal,
                killed_for=self._placement.killed_for(replica),
                standby=self._placement.stands_by(replica),
                at=self.kernel.now,
                uptime=0,
            )
        )
        if not death.expected:
            replica.struck()
        self._placement.on_reaped(replica, death)

    def died(self) -> None:
        for replica in self.replicas:
            replica.kill()
        for connection in self._placement.waiting:
            connection.link.close("the replica server is gone")

    # ------------------------------------------------- replicas and the driver

    def at_end(self, replica: Replica, epoch: Epoch) -> None:
        self._placement.stands_at_end(replica, epoch)

    def promoted(self, replica: Replica, hello: AttachRequest) -> bool:
        """A standby has been told that it is the replica; whether it is."""
        is_promoted = self._placement.promotes(replica, hello)
        if is_promoted:
            self.world.checks.fence_raised(self.name, hello.origin, hello.fence)
        return is_promoted

    def commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> None:
        for replica in self._placement.not_given_up:
            self._tell(replica, Commit(epoch, truncation_points))

    def hear_rounds(
        self, generation: Generation, rounds: Rounds, answer: Callable[[Mapping[Origin, StoredRound]], None]
    ) -> None:
        """The driver says how far they are; it is told what is stored here."""
        if self._rounds.say(generation, rounds):
            for replica in self._placement.not_given_up:
                self._tell(replica, RoundsSaid(self._rounds.rounds))
        answer(self._rounds.stored_of(generation))

    def round_stored(self, generation: Generation, origin: Origin, stored: StoredRound) -> None:
        self._rounds.stored(generation, origin, stored)

    def set_generation(self, generation: Generation, done: Callable[[], None]) -> None:
        """From now on only this generation: older replicas are dead when `done` is called."""
        self.world.checks.fencing.told(self.name, generation)
        self._placement.begins(generation, done)

    @property
    def replicas(self) -> list[Replica]:
        return [served.process for served in self._placement.serving]

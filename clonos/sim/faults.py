"""What strikes, when and whom. Every kind has its own opportunities; the plan says how often it takes one.

Each fault that strikes has a number, by which a shrunken run can leave it out. When enough have struck, or when the
world says that it is time for liveness, nothing strikes any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clonos.errors import StorageUnavailable
from clonos.protocol.ids import Origin
from clonos.sim.checkpoint import Snapshots
from clonos.sim.clocks import HostClock
from clonos.sim.disk import Disk, LogStore
from clonos.sim.kernel import Died
from clonos.sim.leaders import LEASE
from clonos.sim.network import Link
from clonos.sim.partitions import Place
from clonos.sim.plan import Fault
from clonos.sim.sink_moves import movable, move

AT_COMMIT = 10
"""A commit is looked at as often as so many moments."""

if TYPE_CHECKING:
    from clonos.sim.driver import Driver
    from clonos.sim.replica import Replica
    from clonos.sim.task import Task
    from clonos.sim.world import World

FOR_EVER = 1 << 62


WAYS = (
    (Place.DRIVER_HOST, Place.STORAGE),
    (Place.DRIVER_HOST, Place.SINKS),
    (Place.SECOND_HOST, Place.STORAGE),
    (Place.DRIVER_HOST, Place.SECOND_HOST),
    (Place.DRIVER_HOST, Place.SECOND_HOST),
)
HEARTBEATS_MISSED = 100_000
"""After that Spark takes an executor for lost."""
FOR_EVER = 1_000_000_000
"""Longer than any run."""


@dataclass(frozen=True, slots=True)
class Struck:
    """One fault that struck."""

    number: int
    at: int
    kind: Fault
    where: str

    def __str__(self) -> str:
        return f"#{self.number} {self.kind.value} ({self.where})"


class Faults:
    """The faults of one run."""

    def __init__(self, world: World) -> None:
        plan = world.plan
        self._world = world
        self._rng = world.choices.faults
        self._rates = dict(plan.rates)
        self._left = plan.faults
        self._only = plan.only
        self._numbers = 0
        self.struck: list[Struck] = []
        self.over = plan.faults == 0

    def strikes(self, kind: Fault, where: str) -> bool:
        if self.over:
            return False
        rate = self._rates.get(kind)
        if rate is None or self._rng.random() >= rate:
            return False
        number = self._numbers
        self._numbers += 1
        self._left -= 1
        self.over = self._left == 0
        if self._only is not None and number not in self._only:
            return False
        struck = Struck(number, self._world.kernel.now, kind, where)
        self.struck.append(struck)
        self._world.trace(where, f"*** {kind.value}", struck)
        return True

    def _duration(self, low: int, high: int) -> int:
        return self._rng.randint(low, high)

    # ------------------------------------------------------------- replicas

    def at_replica(self, replica: Replica, label: str) -> None:
        """Between two actions."""
        if self.over:
            return
        if self.strikes(Fault.REPLICA_CRASH, replica.name):
            self._world.checks.victim(replica.origin)
            self._world.trace(replica.name, f"dies when it {label}")
            raise Died
        if self.strikes(Fault.REPLICA_STOP, replica.name):
            self._world.checks.victim(replica.origin)
            replica.stop(self._duration(1_000, 400_000))
        if self.strikes(Fault.CLOCK_JUMP, "clock"):
            self._world.clock_offset += self._rng.choice((-1, 1)) * self._duration(1, 200_000)
        if self.strikes(Fault.DISK_FULL, replica.name):
            self._fill(replica.server.disk.store(replica.origin), replica.origin)

    def in_replica(self, replica: Replica, label: str) -> None:
        """In the middle of an action, where it cannot stop, but die."""
        if self.strikes(Fault.REPLICA_CRASH, replica.name):
            self._world.checks.victim(replica.origin)
            self._world.trace(replica.name, f"dies when it {label}")
            raise Died

    def slowness(self, replica: Replica) -> int:
        if self.strikes(Fault.REPLICA_SLOW, replica.name):
            self._world.checks.victim(replica.origin)
            return self._duration(1_000, 60_000)
        return self._world.choices.schedule.randint(0, 40)

    def _fill(self, store: LogStore, origin: Origin) -> None:
        self._world.checks.victim(origin)
        store.full = True

        def room() -> None:
            store.full = False

        self._world.kernel.after(self._duration(1_000, 50_000), room)

    # ---------------------------------------------------------------- tasks

    def at_action(self, task: Task) -> None:
        """Between two actions of a conduit."""
        if self.over:
            return
        if self.strikes(Fault.TASK_CRASH, task.name):
            self._world.checks.victim(None)
            self._world.task_lost(task)
            raise Died

    def at_task(self, task: Task) -> None:
        """Once per turn."""
        if self.over:
            return
        if self.strikes(Fault.TASK_PAUSE, task.name):
            task.pause(self._duration(5_000, 400_000))
        if self.strikes(Fault.TASK_ZOMBIE, task.name):
            self._world.checks.victim(None)
            self._world.task_lost(task)

    def at_link(self, link: Link, task: Task) -> None:
        if self.strikes(Fault.LINK_BREAK, task.name):
            self._world.checks.victim(task.origin)
            link.cut("the connection broke")

    # ------------------------------------------------------------- the driver

    def at_driver(self, driver: Driver) -> bool:
        """Whether the query is to be restarted; the driver, or the server, may be lost."""
        if self.over:
            return False
        if self.strikes(Fault.SECOND_DRIVER, driver.name):
            self._world.checks.victim(None)
            self._world.start_second_driver()
        if self.strikes(Fault.DRIVER_PAUSE, driver.name):
            self._world.checks.victim(None)
            driver.stop(self._duration(1_000, 4 * LEASE))
        if self.strikes(Fault.DRIVER_CUT, driver.name):
            self._world.checks.victim(None)
            driver.cut_until = self._world.kernel.now + self._duration(1_000, 4 * LEASE)
        if self.strikes(Fault.SERVER_CRASH, "server"):
            self._world.checks.victim(None)
            servers = len(self._world.servers)
            self._world.lose_server(self._rng.randrange(servers) if servers > 1 else 0)
        if self.strikes(Fault.SERVER_STOP, "server"):
            self._world.checks.victim(None)
            self._rng.choice(self._world.servers).stop(
                self._rng.choice((self._duration(1_000, 400_000), FOR_EVER))
            )
        if self._world.plan.loses_hosts and self.strikes(Fault.HOST_LOST, "second host"):
            self._world.checks.victim(None)
            self._world.lose_host(1)
        if self.strikes(Fault.HOST_CLOCK, "clock of a host"):
            self._disturb(self._rng.choice(self._world.clocks))
        if self.strikes(Fault.PARTITION, "network"):
            self._part()
        if driver is self._world.driver:  # of a host's drivers it is the one that dies with it
            if self.strikes(Fault.POWER_LOSS, "host"):
                self._strike_host(self._world.lose_power)
            if self.strikes(Fault.OLD_DISK, "host"):
                self._strike_host(self._world.return_old)
        if self.strikes(Fault.PROGRAM_CHANGED, "driver"):
            self._world.deployment.change()
            self._world.checks.victim(None)
            self.at_restart()
            raise Died
        if self.strikes(Fault.DRIVER_LOSS, "driver"):
            self._world.checks.victim(None)
            self.at_restart()
            raise Died
        if self.strikes(Fault.QUERY_RESTART, "driver"):
            self._world.checks.victim(None)
            self.at_restart()
            return True
        return False

    def _disturb(self, clock: HostClock) -> None:
        if self._rng.random() < 0.3:
            clock.stand_still(self._duration(1_000, 100_000))
        else:
            clock.jump(self._rng.choice((-1, 1)) * self._duration(1, 200_000))

    def _part(self) -> None:
        """Two places, in one direction or both."""
        world, rng = self._world, self._rng
        world.checks.victim(None)
        way = rng.choice(WAYS if world.plan.standbys else WAYS[:2])
        duration = rng.choice((self._duration(1_000, 30_000), self._duration(40_000, 300_000)))
        for each in rng.choice(((way,), (way[::-1],), (way, way[::-1]))):
            world.ways.cut(each, duration, holds=rng.random() < 0.5)
        world.trace("network", f"{way[0].name} and {way[1].name} are apart for {duration / 1000} ms")
        if Place.SECOND_HOST in way and duration > HEARTBEATS_MISSED and world.plan.has_two_hosts:
            world.kernel.after(HEARTBEATS_MISSED, world.executor_silent, Place.SECOND_HOST)

    def at_commit(self) -> None:
        """The user may stop the query at a commit, to start another program: then no open epoch is repeated."""
        if any(self.strikes(Fault.PROGRAM_CHANGED, "driver") for _ in range(AT_COMMIT)):
            self._world.deployment.change()
            self._world.checks.victim(None)
            raise Died

    def _strike_host(self, strike: Callable[[int], None]) -> None:
        """The driver's, or the second one."""
        self._world.checks.victim(None)
        at = self._rng.randrange(len(self._world.disks))
        strike(at)
        if at == 0:
            raise Died

    def at_restart(self) -> None:
        """Hosts may be lost together with the query."""
        for store in list(self._world.stores()):
            if self.strikes(Fault.STORE_LOST, f"store {store.owner}"):
                self._world.stores_to_lose.append(store)
            elif self.strikes(Fault.STORE_TAIL, f"store {store.owner}"):
                self._world.stores_to_cut.append(store)

    def at_checkpoint(self) -> None:
        """While no driver is alive."""
        world = self._world
        if world.checkpoint.may_lose_commit and self.strikes(Fault.COMMIT_LOST, "checkpoint"):
            world.checkpoint.lose_commit(offsets=world.plan.realtime)
        if world.checkpoint.may_lose_offsets and self.strikes(Fault.OFFSETS_LOST, "checkpoint"):
            world.checkpoint.lose_offsets()
        copy = world.checkpoint_copy
        if copy is None or copy.is_between_numbers_of(world.checkpoint):
            return
        if self.strikes(Fault.CHECKPOINT_OLDER, "checkpoint"):
            world.checkpoint.restore(copy)

    def at_sinks(self) -> None:
        """While no driver is alive."""
        if not self._world.plan.may(Fault.SINK_MOVED):
            return
        for node in movable(self._world):
            if self.strikes(Fault.SINK_MOVED, f"sink node {node}"):
                move(self._world, node, self._rng)

    # -------------------------------------------------------- disks and sinks

    def at_store(self, store: LogStore) -> None:
        """When its owner opens it. Raises StorageUnavailable."""
        if self.strikes(Fault.STORE_UNREADABLE, f"store {store.owner}"):
            self._world.checks.victim(store.owner)
            raise StorageUnavailable(f"too many files are open to open the store of {store.owner}")
        if self.strikes(Fault.STORE_PAGE, f"store {store.owner}"):
            with self._world.checks.losses.watched(damage=True):
                store.damage(self._rng)

    def at_torn_store(self, store: LogStore) -> bool:
        """When its host has lost power."""
        return self.strikes(Fault.TORN_TAIL, f"store {store.owner}")

    def at_snapshots(self, snapshots: Snapshots) -> None:
        """When an instance looks for one."""
        if self._world.has_recorded(snapshots.origin):
            self._remove(snapshots)
        if snapshots.kept and self.strikes(Fault.SNAPSHOT_PAGE, f"snapshots of {snapshots.origin}"):
            names = sorted(snapshots.kept)
            name = names[-1] if self._rng.random() < 0.5 else self._rng.choice(names)
            snapshots.damage(name)

    def at_unrecorded_commit(self) -> None:
        """When the driver sees one, and has not recorded it."""
        for snapshots in self._world.ended_unrecorded():
            self._remove(snapshots)

    def _remove(self, snapshots: Snapshots) -> None:
        if self.strikes(Fault.SNAPSHOTS_GONE, f"snapshots of {snapshots.origin}"):
            self._world.checks.truncation.snapshots_go(snapshots.origin)  # while they can be read
            snapshots.clear()

    def at_sink_log(self) -> None:
        """When it is read."""
        for place in self._world.sinks.values():
            if place.log and self.strikes(Fault.SINK_LOG_PAGE, f"log of sink {place.origin}"):
                with self._world.checks.losses.watched(damage=True):
                    self._rng.choice(place.log).damaged = True

    def at_service(self, name: str) -> int:
        """For how long a determinant service does not answer."""
        if self.strikes(Fault.SERVICE_DOWN, name):
            self._world.checks.victim(None)
            return self._duration(1_000, 300_000)
        return 0

    def at_busy_service(self, name: str) -> int:
        """For how long a determinant service takes no more requests."""
        return self._duration(1_000, 150_000) if self.strikes(Fault.SERVICE_BUSY, name) else 0

    def at_list_of_holders(self) -> int:
        """For how long the list of the holders cannot be read."""
        return self._duration(1_000, 150_000) if self.strikes(Fault.HOLDERS_UNKNOWN, "holders") else 0

    def at_reading(self, disk: Disk) -> None:
        """When a service reads the directories of its host."""
        for store in list(disk.stores.values()):
            if self.strikes(Fault.DIRECTORY_UNREADABLE, f"{disk.holder}: store {store.owner}"):
                store.unreadable_until = self._world.kernel.now + self._duration(1_000, 300_000)
            if self.strikes(Fault.DIRECTORY_LOST, f"{disk.holder}: store {store.owner}"):
                store.unreadable_until = FOR_EVER

    def at_reply(self, name: str) -> None:
        """When a determinant service has begun to answer. Raises StorageUnavailable."""
        if self.strikes(Fault.REPLY_CUT, name):
            raise StorageUnavailable(f"the reply of {name} broke off")

    # -------------------------------------------------------- control messages

    def deliveries(self, what: str) -> list[int]:
        """When a control message arrives: once, never, twice, or late."""
        rng = self._world.choices.schedule
        if self.strikes(Fault.CONTROL_DROP, what):
            return []
        delays = [rng.randint(50, 1_000)]
        if self.strikes(Fault.CONTROL_DELAY, what):
            delays[0] += self._duration(1_000, 200_000)
        if self.strikes(Fault.CONTROL_REPEAT, what):
            delays.append(delays[0] + self._duration(100, 100_000))
        return delays

"""The second server runs under a lease, as `clonos_standby.cluster.leased_server` and
`clonos_standby.service.replica_service` have it around `protocol.roles.lease`: while the driver can renew it, it
counts; when it could not for long enough, the query goes on without it. Messages take time, and may be lost or late
in one direction. Whether its logs count is the rule of `protocol.roles.membership`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from clonos.errors import Fenced
from clonos.protocol.roles.lease import DriverLease, HostLease
from clonos.protocol.roles.membership import Memberships
from clonos.sim.kernel import Steps
from clonos.sim.partitions import Place

if TYPE_CHECKING:
    from clonos.sim.driver import Driver
    from clonos.sim.server import ReplicaServer
    from clonos.sim.world import World

LENGTH = 60_000
MARGIN = 5_000
PERIOD = LENGTH // 4
LOOK = 1_000
PATIENCE = 10_000
PAUSE = 3_000
HOST = "second"


class Hosting:
    """What the second host has granted: a server for as long as its lease lasts, which it ends by itself."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lease = HostLease(0, 0)
        self.server = world.servers[Place.SECOND_HOST]

    def grant(self, token: str) -> HostLease:
        """A new one, in the place of whatever it had. Under another token it begins with empty logs."""
        self.server.kill()
        with self._world.checks.losses.watched():
            self._world.disks[Place.SECOND_HOST].is_asked_under(token)
        self.server = self._world.start_server(Place.SECOND_HOST)
        lease = self.lease = HostLease(LENGTH, self._now)
        self._look(lease)
        return lease

    def renew(self, lease: HostLease, heard: int) -> int | None:
        """The number of the answer; None for a lease that has ended."""
        if lease is not self.lease or not self.server.alive:
            return None
        return lease.renew(heard, self._now)

    @property
    def _now(self) -> int:
        return self._world.clocks[Place.SECOND_HOST].elapsed

    def _look(self, lease: HostLease) -> None:
        if lease is not self.lease or not self.server.alive:
            return
        if lease.is_over(self._now):
            self._world.trace(self.server.name, "ends, as its lease does")
            self.server.kill()
        self._world.kernel.after(LOOK, self._look, lease)


class Leased:
    """The second server as a driver knows it."""

    def __init__(self, world: World, driver: Driver) -> None:
        self._world = world
        self._driver = driver
        self._known: tuple[HostLease, DriverLease] | None = None
        self._is_there = False  # the server, as far as the driver knows
        self._asks = 0
        self._memberships: Memberships | None = None

    def launch(self) -> None:
        if self._world.plan.partitions:
            self._memberships = Memberships(
                self._world.checkpoint.last_hosts,
                self._world.next_token,
                keep=lambda kept: self._world.checkpoint.keep_hosts(self._driver.generation, kept),
                check_leads=self._driver.leaders.check,
            )
            self._keep()

    def counts(self, at: int) -> bool:
        """Whether its logs are asked for."""
        return at == Place.DRIVER_HOST or not self._world.plan.partitions or self._known is not None

    def begins(self) -> Steps:
        """Instances begin, and ask the hosts that count by now: one that cannot be reached is not waited for."""
        if self._memberships is None:
            return
        ways = self._world.ways
        until = self._now + PATIENCE
        while not self._is_there and self._now < until and ways.answers(Place.DRIVER_HOST, Place.SECOND_HOST):
            yield PAUSE
            if not self._is_there:
                self._ask()
        self._memberships.begins()
        self._world.goes_without_a_host |= self._known is None

    def _keep(self) -> None:
        if not self._is_there:
            self._ask()
        elif self._known is not None:
            lease, known = self._known
            self._to_host(self._renewed, lease, known.heard)
        if self._known is not None and self._known[1].is_over(self._now):
            self._go_on_without(self._known[0])
        self._world.kernel.after(PERIOD, self._driver.call, self._keep)

    def _go_on_without(self, lease: HostLease) -> None:
        """If the checkpoint can keep that."""
        if self._memberships is None or not self._driver.is_reachable:
            return
        try:
            self._memberships.leaves(HOST)
        except Fenced:
            return
        self._world.trace(self._driver.name, "has not heard of the second server, and goes on without it")
        self._world.checks.given_up(lease)
        self._world.goes_without_a_host = True
        self._known, self._is_there = None, False

    def _ask(self) -> None:
        """Only a driver that leads may ask, since a driver that asks takes the server over."""
        if self._memberships is None or not self._driver.is_reachable:
            return
        with contextlib.suppress(Fenced):
            self._driver.leaders.check()
            self._asks += 1
            self._to_host(self._asked, self._asks, self._memberships.token(HOST))

    def _asked(self, number: int, token: str) -> None:
        hosting = self._world.hosting
        self._to_driver(self._granted, number, token, hosting.grant(token), hosting.server)

    def _granted(self, number: int, token: str, lease: HostLease, server: ReplicaServer) -> None:
        """The server counts when it has been told the generation, so that it serves no conduit of an older one."""
        if self._is_there or number != self._asks:
            return
        heard_at = self._now
        generation = self._driver.generation

        def told() -> None:
            self._to_driver(counted)

        def counted() -> None:
            if self._is_there or generation != self._driver.generation or self._memberships is None:
                return
            is_asked = number == self._asks and self._driver.is_reachable  # the checkpoint keeps who counts
            if is_asked and self._memberships.joins(HOST, token):
                self._known = lease, DriverLease(LENGTH, MARGIN, heard_at)
                self._is_there = True
                self._world.trace(self._driver.name, "counts the second server")

        self._to_host(server.call, server.set_generation, generation, told)

    def _renewed(self, lease: HostLease, heard: int) -> None:
        number = self._world.hosting.renew(lease, heard)
        self._to_driver(self._answered, lease, number)

    def _answered(self, lease: HostLease, number: int | None) -> None:
        """A server that has ended is asked for again, and its logs count, until its lease is over here, too."""
        if self._known is None or self._known[0] is not lease:
            return
        if number is None:
            self._is_there = False
        else:
            self._known[1].answered(number, self._now)

    @property
    def _now(self) -> int:
        return self._world.clocks[Place.DRIVER_HOST].elapsed

    def _to_host(self, act: Callable[..., None], *arguments: object) -> None:
        self._send(Place.DRIVER_HOST, Place.SECOND_HOST, act, *arguments)

    def _to_driver(self, act: Callable[..., None], *arguments: object) -> None:
        self._send(Place.SECOND_HOST, Place.DRIVER_HOST, self._driver.call, act, *arguments)

    def _send(self, source: Place, target: Place, act: Callable[..., None], *arguments: object) -> None:
        """What a cut does not hold is lost."""
        world = self._world
        if not world.ways.breaks(source, target):
            delay = max(world.ways.opens(source, target) - world.kernel.now, 0)
            world.kernel.after(delay + world.choices.schedule.randint(50, 500), act, *arguments)

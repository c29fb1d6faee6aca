"""How drivers come to lead in a run: the core's rules, over a checkpoint whose steps take time and may be out of reach.

Only where several drivers meet does time pass in a claim; alone, a driver finds its predecessor dead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from clonos.errors import Fenced
from clonos.protocol.fence import Generation
from clonos.protocol.roles.leadership import LEASE_SECONDS, RENEWALS_PER_LEASE, Claim, Leadership, Lease
from clonos.sim.checks.violation import Violation
from clonos.sim.kernel import Steps

if TYPE_CHECKING:
    from clonos.sim.driver import Driver
    from clonos.sim.world import World

SECOND = 2_000
"""A second of a lease, in microseconds: what else happens in a run is as much faster."""
LEASE = int(LEASE_SECONDS * SECOND)


class Shelf:
    """For `clonos.protocol.roles.leadership`. The storage creates nothing exclusively; a driver's own clock has a
    speed."""

    def __init__(self, world: World, driver: Driver) -> None:
        self._world = world
        self._checkpoint = world.checkpoint
        self._driver = driver

    def floor(self) -> Generation:
        return Generation(self._world.plan.first_generation)

    def claims(self) -> list[Claim]:
        return list(self._checkpoint.claims)

    def claim(self, claim: Claim) -> bool:
        self._checkpoint.claims.append(claim)
        return True

    def withdraw(self, claim: Claim) -> None:
        self._checkpoint.claims.remove(claim)

    def forget(self, claims: Collection[Claim], kept: Collection[str]) -> None:
        self._checkpoint.claims = [one for one in self._checkpoint.claims if one not in claims]
        self._checkpoint.leases = {
            owner: lease for owner, lease in self._checkpoint.leases.items() if owner in kept
        }

    def leases(self, owners: Collection[str]) -> Mapping[str, Lease]:
        return {owner: lease for owner, lease in self._checkpoint.leases.items() if owner in owners}

    def keep(self, lease: Lease) -> None:
        self._checkpoint.leases[lease.owner] = lease

    def is_dead(self, lease: Lease) -> bool:
        """Whether the driver with this lease is known to be dead, which only a driver on the same host can tell."""
        other = self._world.drivers[lease.owner]
        return not other.alive and other.host == self._driver.host

    def now(self) -> float:
        return self._world.kernel.now * self._driver.clock_speed / SECOND

    def backoff(self) -> float:
        return self._world.meetings.uniform(0, 1)


class Leaders:
    """One driver's leadership, and what the simulator knows of it."""

    def __init__(self, world: World, driver: Driver) -> None:
        self._world = world
        self._driver = driver
        self._rules = Leadership(Shelf(world, driver), driver.name, driver.name)
        self._renewed: list[int] = []

    def campaign(self, *, above: Generation) -> Steps:
        steps = self._rules.campaign(above=above)
        while True:
            try:
                seconds = next(steps)
            except StopIteration as end:
                self._claimed()
                return end.value
            if self._world.drivers_meet:
                yield int(seconds * SECOND) + self._world.meetings.randint(50, 500)
                yield from self._driver.until_reachable()

    def _claimed(self) -> None:
        """This driver leads from now on. It must not have taken over from one that is at work."""
        leader = self._world.driver
        if leader is not None and leader is not self._driver and leader.leaders.is_at_work:
            raise Violation(
                "leadership", f"{self._driver.name} takes over from {leader.name}, which is at work"
            )
        self._world.driver = self._driver
        if self._world.drivers_meet and not self._renewed:
            self._later()
        self._renewed.append(self._world.kernel.now)

    @property
    def is_at_work(self) -> bool:
        """Whether it has renewed its lease more than once while a lease cannot have run out by any driver's clock."""
        since = self._world.kernel.now - LEASE // 2
        return self._driver.alive and sum(at > since for at in self._renewed) > 1

    def _later(self) -> None:
        self._world.kernel.after(LEASE // RENEWALS_PER_LEASE, self._driver.call, self._renew)

    def _renew(self) -> None:
        if self._driver.is_reachable:
            try:
                for _ in self._rules.renew():
                    pass
            except Fenced as error:
                self._driver.overtaken(error)
                return
            self._renewed = [*self._renewed[-4:], self._world.kernel.now]
        self._later()

    def check(self) -> None:
        """Raises Fenced where another driver has taken over."""
        self._rules.check()

"""Bugs of who leads, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from typing import Any

import pytest
from planted import OTHERS, Planted, planted

from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.roles import leadership
from clonos.protocol.roles.leadership import Claim, Leadership, Verdict, Watch
from clonos.protocol.roles.query_coordinator import QueryCoordinator
from clonos.sim.leaders import Shelf
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch


def generation_is_read_changed_and_written(patch: Patch) -> None:
    """Two starts at a time get the same one: neither looks whether its claim is alone."""
    patch.setattr(leadership, "counts", lambda claim, listed: True)
    patch.setattr(leadership, "is_overtaken", lambda number, owner, listed: False)


def claim_that_does_not_count_is_led_under(patch: Patch) -> None:
    """The driver that writes its claim second goes on as well."""
    patch.setattr(
        leadership, "counts", lambda claim, listed: max(one.number for one in listed) == claim.number
    )


def lease_is_not_looked_at(patch: Patch) -> None:
    patch.setattr(Watch, "look", lambda self, now, rivals, leases, dead: (Verdict.OVER, None))


def lease_is_not_renewed_in_time(patch: Patch) -> None:
    """It says that it is over sooner than its holder says that it is not."""
    patch.setattr(leadership, "LEASE_SECONDS", 1.0)
    real = Leadership._next_lease

    def next_lease(self: Leadership) -> Any:
        lease = real(self)
        return leadership.replace(lease, seconds=1.0)

    patch.setattr(Leadership, "_next_lease", next_lease)


def overtaken_driver_goes_on_claiming(patch: Patch) -> None:
    patch.setattr(leadership, "is_overtaken", lambda number, owner, listed: False)


def refused_start_has_changed_what_replicas_are_told(patch: Patch) -> None:
    """Before it looks whether another driver leads."""

    real = QueryCoordinator._claim

    def claim(self: Any, heard_of: int) -> Any:
        for generation in self._world.told:
            self._world.told[generation] = self._driver.name
        return (yield from real(self, heard_of))

    patch.setattr(QueryCoordinator, "_claim", claim)


def old_claims_are_forgotten_too_soon(patch: Patch) -> None:
    """Then the highest number that was used is used again."""

    def tidy(self: Leadership, listed: list[Claim]) -> None:
        self._shelf.forget(listed, {one.owner for one in listed})

    patch.setattr(Leadership, "_tidy", tidy)
    patch.setattr(Shelf, "floor", lambda self: 0)


WORLD: dict[str, Any] = {**OTHERS, "depth": FULL, "standbys": 0, "effects": False, "faults": 30}
MEET = {
    Fault.SECOND_DRIVER: 0.03,
    Fault.DRIVER_PAUSE: 0.003,
    Fault.DRIVER_CUT: 0.003,
    Fault.DRIVER_LOSS: 0.01,
}

LEADERS: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(generation_is_read_changed_and_written, first=56, rates=MEET, **WORLD),
        planted(claim_that_does_not_count_is_led_under, first=131, rates=MEET, **WORLD),
        planted(lease_is_not_looked_at, rates=MEET, **WORLD),
        planted(lease_is_not_renewed_in_time, first=5, rates=MEET, **WORLD),
        planted(overtaken_driver_goes_on_claiming, first=56, rates=MEET, **WORLD),
        planted(refused_start_has_changed_what_replicas_are_told, rates=MEET, **WORLD),
        planted(old_claims_are_forgotten_too_soon, rates=MEET, **WORLD),
    )
}

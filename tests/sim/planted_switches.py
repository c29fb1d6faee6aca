"""Bugs of standbys that are switched off or on between two starts, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

import pytest
from planted import CRASHES, SERVERS, STANDBYS, Planted, planted

from clonos.sim import world
from clonos.sim.disk import lookup
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch
DRIVERS = {Fault.DRIVER_LOSS: 0.01}
SWITCHED = {**STANDBYS, "effects": True, "faults": 80, "switches": 3, "snapshot_rate": 0.0}


def what_a_server_has_left_behind_is_not_asked(patch: Patch) -> None:
    """It is not started any more, and the first one answers for its own directories alone."""
    patch.setattr(world, "lookup", lambda disks, origin, now: lookup(disks[:1], origin, now))


def who_was_elsewhere_begins_as_if_alone(patch: Patch) -> None:
    """Since it has no standby now: its own store is believed, although it may have gone on at the second server."""
    patch.setattr(world.World, "may_have_moved", property(lambda self: self.standbys > 0))


SWITCHES: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(
            what_a_server_has_left_behind_is_not_asked,
            first=15,
            rates=CRASHES | SERVERS | DRIVERS,
            **SWITCHED,
        ),
        planted(
            who_was_elsewhere_begins_as_if_alone,
            first=15,
            rates=CRASHES | SERVERS | DRIVERS,
            **SWITCHED,
        ),
    )
}

"""Bugs of standbys that are switched off or on between two starts, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from typing import Any

import pytest
from planted import CRASHES, SERVERS, STANDBYS, Planted, planted

from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.incarnation import Incarnation
from clonos.protocol.roles.steps import Steps
from clonos.sim import world
from clonos.sim.disk import lookup
from clonos.sim.plan import LOSES_EFFECTS, Fault

Patch = pytest.MonkeyPatch
RATES = {**CRASHES, **SERVERS, Fault.DRIVER_LOSS: 0.01, **dict.fromkeys(LOSES_EFFECTS, 0.0)}
SWITCHED = {**STANDBYS, "effects": True, "faults": 80, "switches": 3, "snapshot_rate": 0.0}


def what_a_server_has_left_behind_is_not_asked(patch: Patch) -> None:
    """It is not started any more, and the first one answers for its own directories alone."""
    patch.setattr(world, "lookup", lambda disks, origin, now: lookup(disks[:1], origin, now))


def instance_that_ran_on_another_server_begins_as_if_alone(patch: Patch) -> None:
    """Since it has no standby now: its own store is believed, although it may have gone on at the second server."""
    real = Incarnation.serve

    def serve(self: Incarnation[Any], request: AttachRequest) -> Steps:
        world = self._ports._world  # type: ignore[attr-defined]
        self._may_have_moved = bool(world.standbys_of(self.origin))
        return real(self, request)

    patch.setattr(Incarnation, "serve", serve)


SWITCHES: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(
            what_a_server_has_left_behind_is_not_asked,
            first=50,
            rates=RATES,
            **SWITCHED,
        ),
        planted(
            instance_that_ran_on_another_server_begins_as_if_alone,
            first=171,
            rates=RATES,
            **SWITCHED,
        ),
    )
}

"""Bugs of crash marks, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

import pytest
from planted import OTHERS, PASSIVE, Planted, planted

from clonos.protocol.roles import crash_marks
from clonos.protocol.roles.conduit_model import Conduit, PassedOver
from clonos.sim.plan import Fault


def one_death_makes_a_record_poison(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(crash_marks, "DEADLY", 1)


def standbys_take_the_place_of_all_victims(patch: pytest.MonkeyPatch) -> None:
    """Where they are ready in time, no process is ever careful."""
    patch.setattr(Conduit, "_standby_takes_over", lambda self, first_not_acked: self._standby.follows)


def a_record_that_is_passed_over_is_no_progress(patch: pytest.MonkeyPatch) -> None:
    real = Conduit.handle
    patch.setattr(
        Conduit,
        "handle",
        lambda self, event, now: [] if isinstance(event, PassedOver) else real(self, event, now),
    )


ONE_BY_ONE = {"bundle": 1, "window": 1, "snapshot_rate": 0.0}
POISON: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(one_death_makes_a_record_poison, poison=3, rates={Fault.REPLICA_CRASH: 0.05}, **OTHERS),
        planted(
            standbys_take_the_place_of_all_victims,
            first=7,
            rates={Fault.REPLICA_SLOW: 0.02},
            **{**PASSIVE, "poison": 3, "realtime": False, "records": 100, "epoch": 40, **ONE_BY_ONE},
        ),
        planted(
            a_record_that_is_passed_over_is_no_progress,
            **{
                **OTHERS,
                "faults": 0,
                "poison": 30,
                "poison_in_a_row": True,
                "bundle": 40,
                "records": 100,
                "epoch": 60,
            },
        ),
    )
}

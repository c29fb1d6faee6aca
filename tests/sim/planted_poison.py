"""Bugs of crash marks, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

import pytest
from planted import OTHERS, Planted, planted

from clonos.protocol.roles import crash_marks
from clonos.sim.plan import Fault


def one_death_makes_a_record_poison(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(crash_marks, "DEADLY", 1)


POISON: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(one_death_makes_a_record_poison, poison=3, rates={Fault.REPLICA_CRASH: 0.05}, **OTHERS),
    )
}

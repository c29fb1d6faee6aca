"""Bugs of crash marks, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

import pytest
from planted import OTHERS, Planted, planted

from clonos.protocol.roles import crash_marks
from clonos.protocol.roles.death import Death, KillReason
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch


def one_death_makes_a_record_poison(patch: Patch) -> None:
    patch.setattr(crash_marks, "DEADLY", 1)


def deaths_of_other_processes_count_against_a_record(patch: Patch) -> None:
    """Of the one before, when only the conduit of this one has gone, or its server has died with it."""

    def counts(left: crash_marks.InHand, previous: Death) -> bool:
        return previous.kind == "signal"

    patch.setattr(crash_marks, "counts", counts)


def deaths_that_the_server_wanted_count_against_a_record(patch: Patch) -> None:
    wanted = (KillReason.REPLACED.value, KillReason.FENCED.value)
    patch.setattr(crash_marks, "_OWN_DOING", ("exit", "signal", "oom", "hang", *wanted))


POISON: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(one_death_makes_a_record_poison, poison=3, rates={Fault.REPLICA_CRASH: 0.05}, **OTHERS),
        planted(
            deaths_of_other_processes_count_against_a_record,
            poison=3,
            rates={Fault.REPLICA_CRASH: 0.02, Fault.LINK_BREAK: 0.15},
            **{**OTHERS, "faults": 80},
        ),
        planted(
            deaths_that_the_server_wanted_count_against_a_record,
            poison=3,
            rates={Fault.QUERY_RESTART: 0.2, Fault.LINK_BREAK: 0.05},
            **{**OTHERS, "faults": 80},
        ),
    )
}

"""Bugs of how an incarnation begins, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

import pytest
from planted import CRASHES, OTHERS, SERVERS, STANDBYS, Planted, planted

from clonos.core.admission import goes_on
from clonos.core.incarnation import Incarnation
from clonos.sim import server
from clonos.sim.operator_host import OperatorHost
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch
TASKS = {Fault.TASK_ZOMBIE: 0.02, Fault.QUERY_RESTART: 0.01}


def process_goes_on_from_the_middle_of_an_epoch(patch: Patch) -> None:
    """It is ahead of what anybody was shown."""
    patch.setattr(
        server,
        "goes_on",
        lambda said, *, last, at_end: goes_on(said, last=last, at_end=said.epoch - 1),
    )


def process_goes_on_although_another_attempt_ran(patch: Patch) -> None:
    """In memory it has an epoch's beginning that another server has gone on from."""
    patch.setattr(Incarnation, "_check_newest", lambda self: None)


def promoted_standby_leads_from_the_end_of_all_it_has(patch: Patch) -> None:
    """Also of what only its dead primary knew, and what that did beyond it is believed, too."""
    real = Incarnation._lead
    patch.setattr(Incarnation, "_lead", lambda self, since: real(self, max(since, self.recovered_end)))


def replacement_does_not_claim_its_snapshots(patch: Patch) -> None:
    """Whoever is slow does not see that it was overtaken."""
    patch.setattr(OperatorHost, "claim", lambda self: None)


STARTING: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(process_goes_on_from_the_middle_of_an_epoch, rates=CRASHES | TASKS, **OTHERS),
        planted(
            process_goes_on_although_another_attempt_ran,
            rates=CRASHES | SERVERS | TASKS,
            **{**STANDBYS, "executors": True},
        ),
        planted(promoted_standby_leads_from_the_end_of_all_it_has, rates=CRASHES | TASKS, **STANDBYS),
        planted(replacement_does_not_claim_its_snapshots, rates=CRASHES | TASKS, **OTHERS),
    )
}

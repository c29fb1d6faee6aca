"""Bugs that show where executors are lost with what they wrote, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

import pytest
from planted import Planted, planted

from clonos.sim.checkpoint import Snapshots
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch


def epoch_that_has_ended_goes_on_when_it_runs_again(patch: Patch) -> None:
    patch.setattr(Snapshots, "binding", lambda self, epoch, fence: None)


EXECUTORS: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(
            epoch_that_has_ended_goes_on_when_it_runs_again,
            rates={Fault.FILES_LOST: 0.3},
            executors=True,
            realtime=False,
            timers=True,
            faults=60,
            impure=False,
        ),
    )
}

"""Executors are lost with the shuffle files they wrote: what had ended runs again, and not all of its readers do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos.sim.checkpoint import Snapshots
from clonos.sim.plan import Fault, Plan, draw_plan
from clonos.sim.run import run


def plan_of(seed: int) -> Plan:
    plan = replace(
        draw_plan(seed),
        realtime=False,
        executors=True,
        standbys=0,
        timers=True,
        impure=False,
        records=60,
        epoch=3,
        faults=60,
    )
    return plan.with_rates(FILES_LOST=0.5)


@pytest.mark.parametrize("seed", [72, 96])
def test_an_epoch_that_has_ended_ends_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule, rows that came out only the second time are missed by those who had read the first."""
    report = run(plan_of(seed))
    assert report.right, str(report)
    assert any(struck.kind is Fault.FILES_LOST for struck in report.struck)
    monkeypatch.setattr(Snapshots, "binding", lambda self, epoch, fence: None)
    assert "too early" in str(run(plan_of(seed)))

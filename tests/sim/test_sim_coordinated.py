"""Whole queries with coordinated and with unaligned checkpoints, under seeded schedules and faults."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest

from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.roles.incarnation import Incarnation
from clonos.sim.command import run_rolled_back
from clonos.sim.plan import Plan, draw_plan
from clonos.sim.process_pool import process_pool
from clonos.sim.rollback_plan import rolled_back
from clonos.sim.run import Report, run

FEW = 120
KINDS: Final = (RecoveryKind.COORDINATED, RecoveryKind.UNALIGNED)
PROCESSES = min(os.cpu_count() or 1, 4)
KEPT = {
    32: "an instance was claimed, and its process lost before it had begun where the line says",
    145: "tasks of the next epoch had claimed instances when the epoch before was run again",
    312: "a sink's process was lost behind its begin, and another one looked for the checkpoint under its old name",
    541: "Spark lost the commit of an epoch of which a sink still held output",
    902: "a start that had drawn no line made the next one begin where the epoch did, before what was visible",
    4: "another program began in the first epoch, and went on from what the one before had done inside it",
    417: "a program that had begun with an earlier epoch was taken for another one in its own first epoch",
    186: "a process that replaced another between two epochs took its checkpoint of a complete round again",
}
"""Seeds that were wrong once, and why."""


def coordinated(plan: Plan) -> Plan:
    return rolled_back(plan, RecoveryKind.COORDINATED)


def right(seed: int) -> Report:
    report = run_rolled_back(RecoveryKind.COORDINATED, seed)
    assert report.right, str(report)
    return report


@pytest.mark.parametrize("kind", KINDS)
def test_every_seed_is_right(kind: RecoveryKind) -> None:
    with process_pool(PROCESSES) as pool:
        reports = list(pool.map(partial(run_rolled_back, kind), range(FEW), chunksize=10))
    wrong = [str(report) for report in reports if not report.right]
    assert not wrong, "\n".join(wrong)
    assert sum(report.outcome == "exact" for report in reports) > 0.9 * FEW


@pytest.mark.parametrize("seed", KEPT)
def test_what_was_wrong_once_is_right(seed: int) -> None:
    right(seed)
    assert run(coordinated(draw_plan(seed))).right


@pytest.mark.parametrize("kind", KINDS)
def test_without_faults_every_run_is_exact(kind: RecoveryKind) -> None:
    """Also where functions reach for entropy behind the back of the services."""
    for seed in range(20):
        report = run(replace(rolled_back(draw_plan(seed), kind), faults=0, impure=True))
        assert report.outcome == "exact" and not report.struck, str(report)


def test_lines_have_states_of_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing would be tested of what an instance takes first that begins with one."""
    waited: list[int] = []
    real = Incarnation._restore

    def restore(self: Incarnation[Any]) -> Any:
        yield from real(self)
        waited.append(sum(self.live.waiting.values()))

    monkeypatch.setattr(Incarnation, "_restore", restore)
    for seed in range(40):
        assert run_rolled_back(RecoveryKind.UNALIGNED, seed).right
    assert any(waited)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_many_seeds_are_right(kind: RecoveryKind) -> None:
    with process_pool(None) as pool:
        for report in pool.map(partial(run_rolled_back, kind), range(FEW, 100_000), chunksize=25):
            assert report.right, str(report)

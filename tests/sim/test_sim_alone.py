"""Whole queries with checkpoints that instances take alone, or with none inside an epoch, under seeded schedules and
faults."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import pytest

from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.roles import operator_session
from clonos.sim.command import (
    run_mixed,
    run_mixed_with_causal,
    run_mixed_with_induced,
    run_mixed_with_rounds,
    run_rolled_back,
    wide_storm,
)
from clonos.sim.coordinator import Coordinator
from clonos.sim.plan import draw_plan
from clonos.sim.process_pool import process_pool
from clonos.sim.rollback_plan import rolled_back
from clonos.sim.run import Report, run

FEW = 100
PROCESSES = min(os.cpu_count() or 1, 4)
KINDS: Final = (
    RecoveryKind.UNCOORDINATED,
    RecoveryKind.COMMUNICATION_INDUCED,
    RecoveryKind.EAGER,
    RecoveryKind.EVENT_LOG,
    RecoveryKind.BATCH,
)
RUNS: Final = {
    **{kind.value: partial(run_rolled_back, kind) for kind in KINDS},
    "mixed": run_mixed,
    "mixed with causal": run_mixed_with_causal,
    "mixed with induced": run_mixed_with_induced,
    "mixed with rounds": run_mixed_with_rounds,
}


@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_every_seed_is_right(runs: Callable[[int], Report]) -> None:
    with process_pool(PROCESSES) as pool:
        reports = list(pool.map(runs, range(FEW), chunksize=10))
    wrong = [str(report) for report in reports if not report.right]
    assert not wrong, "\n".join(wrong)
    assert sum(report.outcome == "exact" for report in reports) > 0.9 * FEW


@pytest.mark.parametrize("kind", KINDS)
def test_without_faults_every_run_is_exact(kind: RecoveryKind) -> None:
    """Also where functions reach for entropy behind the back of the services."""
    for seed in range(20):
        plan = rolled_back(draw_plan(seed), kind)
        report = run(replace(plan, faults=0, impure=True))
        assert report.outcome == "exact" and not report.struck, str(report)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            9803059,
            id="the checker took a commit for lost that the next start writes into Spark's files again",
        ),
        pytest.param(9803177, id="snapshots went while rows that rely on them were on their way to the sink"),
    ],
)
def test_a_storm_of_eager_checkpoints_that_once_went_wrong_is_right(seed: int) -> None:
    report = run(rolled_back(wide_storm(seed), RecoveryKind.EAGER))
    assert report.right, str(report)


@pytest.mark.parametrize("most", [0, 1])
def test_an_instance_whose_storage_is_slow_takes_no_more(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(operator_session, "_MOST_UNSENT", most)
    for seed in range(20):
        assert run_rolled_back(RecoveryKind.EAGER, seed).right


def test_lines_cut_through_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing would be tested of what is sent again."""
    unread: list[bool] = []
    real = Coordinator.keep_line

    def keep_line(self: Coordinator, line: RecoveryLine) -> None:
        for origin, resume in line.resumes.items():
            if resume.unread is not None:
                begins = self._checkpoint.snapshots(origin).named(resume.name)
                assert begins is not None
                unread.append(resume.unread <= max(begins.instance.sent.values(), default=0))
        real(self, line)

    monkeypatch.setattr(Coordinator, "keep_line", keep_line)
    for seed in range(40):
        assert run_rolled_back(RecoveryKind.UNCOORDINATED, seed).right
    assert sum(unread) > 10


@pytest.mark.soak
@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_many_seeds_are_right(runs: Callable[[int], Report]) -> None:
    with process_pool(None) as pool:
        for report in pool.map(runs, range(FEW, 100_000), chunksize=25):
            assert report.right, str(report)

"""Whole queries under seeded schedules and faults: every invariant at every step, and the outside judged at the end.

A failure prints its seed; `clonos simulate --seed S --trace` shows it, `--shrink` makes it smaller.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from clonos.protocol.recovery.causal.delta_journal import DeltaJournal
from clonos.sim.command import run_seed, run_storm
from clonos.sim.plan import draw_plan
from clonos.sim.process_pool import process_pool
from clonos.sim.run import run

FEW = 400
"""How many seeds run while a change is made; `test_sim_many_seeds.py` has the others."""
SOAK_FAULTS = int(os.environ.get("CLONOS_SOAK_FAULTS", "1000000"))
PROCESSES = os.cpu_count() or 1


@pytest.mark.timeout(1200)
def test_every_seed_is_right() -> None:
    with process_pool(min(PROCESSES, 4)) as pool:
        wrong = [str(report) for report in pool.map(run_seed, range(FEW), chunksize=10) if not report.right]
    assert not wrong, "\n".join(wrong)


def test_storms_are_weathered() -> None:
    for seed in range(40):
        report = run_storm(seed)
        assert report.right, str(report)


def test_without_faults_every_run_is_exact() -> None:
    for seed in range(30):
        report = run(replace(draw_plan(seed), faults=0))
        assert report.outcome == "exact" and not report.struck, str(report)


def test_a_journal_that_is_folded_shares_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeltaJournal.__init__, "__kwdefaults__", {"fold_from": 6})
    for seed in range(60):
        report = run(draw_plan(seed))
        assert report.right, str(report)


@pytest.mark.soak
def test_a_million_faults() -> None:
    """For as long as it is told: CLONOS_SOAK_FAULTS faults."""
    struck, seed = 0, 1_400
    with process_pool(PROCESSES) as pool:
        while struck < SOAK_FAULTS:
            for report in pool.map(run_storm, range(seed, seed + 1000), chunksize=25):
                struck += len(report.struck)
                assert report.right, str(report)
            seed += 1000

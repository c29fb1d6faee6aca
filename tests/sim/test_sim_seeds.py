"""Whole queries under seeded schedules and faults: every invariant at every step, and the outside judged at the end.

A failure prints its seed; `clonos simulate --seed S --trace` shows it, `--shrink` makes it smaller.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from clonos.protocol.recovery.causal.delta_journal import FULL, DeltaJournal
from clonos.sim.command import run_seed, run_storm
from clonos.sim.plan import Fault, SinkKind, draw_plan
from clonos.sim.run import Report, run

SEEDS = 2_000
SOAK_FAULTS = int(os.environ.get("CLONOS_SOAK_FAULTS", "1000000"))
PROCESSES = os.cpu_count() or 1


@pytest.fixture(scope="module")
def reports() -> list[Report]:
    with ProcessPoolExecutor(min(PROCESSES, 4)) as pool:
        return list(pool.map(run_seed, range(SEEDS), chunksize=25))


@pytest.mark.timeout(1200)
def test_every_seed_is_right(reports: list[Report]) -> None:
    wrong = [str(report) for report in reports if not report.right]
    assert not wrong, "\n".join(wrong)


def test_most_runs_come_out_exact(reports: list[Report]) -> None:
    outcomes = Counter(report.outcome for report in reports)
    assert outcomes["exact"] > 0.9 * SEEDS, outcomes
    assert outcomes["beyond"] < 0.01 * SEEDS, outcomes


def test_within_the_promise_every_run_comes_out_exact(reports: list[Report]) -> None:
    """Depth full, pure functions, no damaged pages, no directory that can never be read again, the checkpoint whole and
    its own, and no two stores lost one after the other: then nothing may end the query."""
    damage = {Fault.SNAPSHOT_PAGE, Fault.SINK_LOG_PAGE, Fault.STORE_PAGE, Fault.TORN_TAIL}
    damage |= {Fault.SNAPSHOTS_GONE, Fault.CHECKPOINT_OLDER, Fault.DIRECTORY_LOST}
    within = [
        report
        for report in reports
        if report.plan.depth == FULL
        and not report.plan.impure
        and not report.plan.recreated
        and not damage & {struck.kind for struck in report.struck}
        and report.outcome != "beyond"
    ]
    assert len(within) > 0.4 * SEEDS
    assert {report.outcome for report in within} == {"exact"}


def test_every_kind_of_fault_strikes_and_most_runs_see_some(reports: list[Report]) -> None:
    kinds = Counter(struck.kind for report in reports for struck in report.struck)
    assert all(kinds[kind] >= 5 for kind in Fault), kinds
    assert sum(bool(report.struck) for report in reports) > 0.7 * SEEDS


def test_the_seeds_cover_the_shapes(reports: list[Report]) -> None:
    plans = [report.plan for report in reports]
    assert {plan.realtime for plan in plans} == {True, False}
    assert {plan.sink for plan in plans} == set(SinkKind)
    assert sum(plan.poison > 0 for plan in plans) > 0.1 * SEEDS
    assert {len(plan.dataflow.operators) for plan in plans} == {1, 2, 3, 4, 6}
    assert {len(plan.dataflow.sinks) for plan in plans} == {1, 2}
    assert max(node.parallelism for plan in plans for node in plan.dataflow.operators) == 8
    assert any(len(node.upstream) > 1 for plan in plans for node in plan.dataflow.operators)


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
    struck, seed = 0, SEEDS
    with ProcessPoolExecutor(PROCESSES) as pool:
        while struck < SOAK_FAULTS:
            for report in pool.map(run_storm, range(seed, seed + 1000), chunksize=25):
                struck += len(report.struck)
                assert report.right, str(report)
            seed += 1000

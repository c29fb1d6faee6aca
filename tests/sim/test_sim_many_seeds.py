"""Many seeds: each run is right, and together they cover every shape of query and every kind of fault."""

from __future__ import annotations

from collections import Counter

import pytest
from test_sim_seeds import FEW, PROCESSES

from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.sim.command import run_seed
from clonos.sim.plan import Fault, SinkKind
from clonos.sim.process_pool import process_pool
from clonos.sim.run import Report

UPTO = [1_000, pytest.param(1_400, marks=pytest.mark.soak)]


@pytest.fixture(scope="module", params=UPTO)
def reports(request: pytest.FixtureRequest) -> list[Report]:
    with process_pool(min(PROCESSES, 4)) as pool:
        return list(pool.map(run_seed, range(FEW, request.param), chunksize=25))


@pytest.mark.timeout(1200)
def test_every_seed_is_right(reports: list[Report]) -> None:
    wrong = [str(report) for report in reports if not report.right]
    assert not wrong, "\n".join(wrong)


def test_most_runs_come_out_exact(reports: list[Report]) -> None:
    outcomes = Counter(report.outcome for report in reports)
    assert outcomes["exact"] > 0.88 * len(reports), outcomes
    assert outcomes["beyond"] < 0.01 * len(reports), outcomes


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
    assert len(within) > 0.35 * len(reports)
    assert {report.outcome for report in within} == {"exact"}


def test_every_kind_of_fault_strikes_and_most_runs_see_some(reports: list[Report]) -> None:
    kinds = Counter(struck.kind for report in reports for struck in report.struck)
    assert all(kinds[kind] >= 5 for kind in Fault), kinds
    assert sum(bool(report.struck) for report in reports) > 0.7 * len(reports)


def test_the_seeds_cover_the_shapes(reports: list[Report]) -> None:
    plans = [report.plan for report in reports]
    assert {plan.realtime for plan in plans} == {True, False}
    assert {plan.sink for plan in plans} == set(SinkKind)
    assert sum(plan.poison > 0 for plan in plans) > 0.1 * len(reports)
    assert {len(plan.dataflow.operators) for plan in plans} == {1, 2, 3, 4, 6}
    assert {len(plan.dataflow.sinks) for plan in plans} >= {1, 2, 3}
    assert any(plan.dataflow.fans_out and plan.realtime for plan in plans)
    assert max(node.parallelism for plan in plans for node in plan.dataflow.operators) == 8
    assert any(len(node.upstream) > 1 for plan in plans for node in plan.dataflow.operators)

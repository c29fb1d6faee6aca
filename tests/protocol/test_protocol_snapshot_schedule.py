"""When a snapshot inside an epoch is due."""

from __future__ import annotations

import pytest

from clonos.protocol.roles.snapshot_schedule import WORK_PER_COST, SnapshotLimits, SnapshotSchedule

HOUR = 3600.0


@pytest.fixture
def schedule() -> SnapshotSchedule:
    return SnapshotSchedule(SnapshotLimits(work=0.1, interval=HOUR), now=5.0, work=1.0)


def test_work_makes_a_snapshot_due(schedule: SnapshotSchedule) -> None:
    assert not schedule.is_due(6.0, 1.09)
    assert schedule.is_due(6.0, 1.11)
    schedule.begin(6.0, 1.11)
    assert not schedule.is_due(6.0, 1.2)


def test_time_makes_one_due_without_work(schedule: SnapshotSchedule) -> None:
    assert not schedule.is_due(5.0 + HOUR - 1, 1.0)
    assert schedule.is_due(5.0 + HOUR, 1.0)


def test_after_a_dear_one_more_work_has_to_be_done(schedule: SnapshotSchedule) -> None:
    schedule.begin(6.0, 2.0)
    schedule.prepare(0.25, is_done=False)
    schedule.prepare(0.25, is_done=True)
    schedule.store(0.5)
    assert not schedule.is_due(6.0, 2.0 + WORK_PER_COST - 0.1)
    assert schedule.is_due(6.0, 2.0 + WORK_PER_COST + 0.1)


def test_what_the_last_one_cost_counts_and_not_those_before(schedule: SnapshotSchedule) -> None:
    schedule.prepare(8.0, is_done=True)
    schedule.store(8.0)
    schedule.begin(6.0, 2.0)
    schedule.prepare(0.001, is_done=True)
    assert schedule.is_due(6.0, 2.2)

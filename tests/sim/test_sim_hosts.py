"""Hosts are lost: replica server, disk, tasks, and the shuffle files that those wrote. A standby is on another one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planted_standbys import whatever_a_snapshot_depends_on

from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.roles import incarnation
from clonos.protocol.roles.incarnation import Incarnation
from clonos.sim.plan import Fault, Plan, draw_plan
from clonos.sim.run import Report, run

Patch = pytest.MonkeyPatch
ENDED = "has ended the epoch at"


def micro_batch(seed: int) -> Plan:
    return _plan(seed, faults=30, epoch=3, realtime=False).with_rates(HOST_LOST=0.1)


def real_time(seed: int) -> Plan:
    return _plan(seed, faults=3, epoch=6, realtime=True).with_rates(HOST_LOST=0.02)


def _plan(seed: int, *, faults: int, epoch: int, realtime: bool) -> Plan:
    return replace(
        draw_plan(seed),
        realtime=realtime,
        faults=faults,
        epoch=epoch,
        records=60,
        executors=True,
        standbys=1,
        effects=False,
        impure=False,
        depth=FULL,
        rates=(),
    )


def right(plan: Plan) -> Report:
    report = run(plan, tracing=True)
    assert report.right and report.outcome == "exact", str(report)
    return report


def test_queries_outlive_hosts() -> None:
    plans = [plan(seed) for seed in range(40) for plan in (micro_batch, real_time)]
    assert sum(struck.kind is Fault.HOST_LOST for plan in plans for struck in right(plan).struck) > 900


@pytest.mark.parametrize("seed", [14, 19])
def test_the_end_of_an_epoch_is_not_lost_with_its_host(seed: int, monkeypatch: Patch) -> None:
    """Else an instance that has to end its epoch as it did before cannot, and the whole query begins the epoch anew."""
    assert ENDED not in right(micro_batch(seed)).trace
    monkeypatch.setattr(Incarnation, "epoch_end", lambda self: self.live.snapshot())
    assert ENDED in right(micro_batch(seed)).trace


def test_the_end_of_a_real_time_epoch_is_in_its_last_snapshot(monkeypatch: Patch) -> None:
    """Until the commit it may be on one host only, whose standby was not there. The second line of defence, which asks
    whether what a snapshot depends on is known at all, is off: with it the query would begin the epoch anew."""
    plan = replace(real_time(64), faults=25, epoch=4, records=25)
    plan = plan.with_rates(HOST_LOST=0.04, SERVER_CRASH=0.02)
    right(plan)
    monkeypatch.setattr(incarnation, "check_resumable", lambda *given, **named: None)
    monkeypatch.setattr(incarnation, "check_dependencies", lambda *given, **named: None)
    right(plan)
    monkeypatch.setattr(Incarnation, "epoch_end", lambda self: self.live.snapshot())
    assert "does not hold all of it" in str(run(plan))


@pytest.mark.parametrize("seed", [239, 589])
def test_what_was_lost_of_others_logs_is_asked_for(seed: int, monkeypatch: Patch) -> None:
    right(real_time(seed))
    whatever_a_snapshot_depends_on(monkeypatch)
    assert "but does not hold all of it" in str(run(real_time(seed)))


def test_no_instance_goes_on_from_a_snapshot_that_depends_on_lost_logs() -> None:
    """What comes of it otherwise: `determinants_that_are_not_held_are_depended_on` of the planted bugs."""
    assert "cannot be resumed from" in right(real_time(15)).trace

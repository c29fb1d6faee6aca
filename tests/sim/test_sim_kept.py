"""Runs that once went wrong, each for a reason that has been mended since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from planted import CRASHES, SERVERS, STANDBYS, planted
from planted_beside_causal import what_a_lost_process_has_stored_is_sent_at_once
from planted_standbys import whatever_a_snapshot_depends_on

from clonos.protocol.roles.incarnation import Incarnation
from clonos.sim.command import run_storm, wide_plan, wide_storm
from clonos.sim.plan import Fault, draw_plan, draw_storm
from clonos.sim.rollback_plan import mixed_with_causal
from clonos.sim.run import run

BREAKING = {Fault.REPLICA_CRASH: 0.01, Fault.LINK_BREAK: 0.06, Fault.REPLICA_STOP: 0.01}
STORMY = {**STANDBYS, "snapshot_rate": 0.8, "faults": 40, "realtime": True}


@pytest.mark.parametrize(
    ("seed", "rates", "changes"),
    [
        pytest.param(
            179,
            CRASHES,
            {**STANDBYS, "snapshot_rate": 0.3},
            id="a snapshot inside an epoch covered log that neither conduit nor standby had been shown",
        ),
        pytest.param(
            95,
            {Fault.REPLICA_CRASH: 0.05},
            STORMY,
            id="a standby that was fresh did not look at what its conduit kept of the log",
        ),
        pytest.param(
            75,
            BREAKING,
            STORMY,
            id="a failover that no replica lived to write down was not held against the stores of others",
        ),
        pytest.param(
            83,
            CRASHES | SERVERS,
            STANDBYS,
            id="a history that no other instance has received may come back when the newer one is lost",
        ),
        pytest.param(
            101,
            CRASHES,
            {**STANDBYS, "snapshot_rate": 0.3},
            id="a server may promote for a task that another server knows to be over",
        ),
    ],
)
def test_a_run_that_once_went_wrong_is_right(
    seed: int, rates: Mapping[Fault, float], changes: Mapping[str, Any]
) -> None:
    report = run(planted(lambda patch: None, rates=rates, **changes).plan(draw_plan(seed)))
    assert report.right, str(report)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            2475,
            id="an overtaken history was believed again, with more of it than other instances had received",
        ),
        pytest.param(10288, id="a server came back with a log that was truncated elsewhere and left behind"),
        pytest.param(
            10648, id="an epoch was begun in memory after an attempt on another server that left no trace"
        ),
        pytest.param(
            31644,
            id="a log that effects depended on was cut, and a full disk kept it from being written anew",
        ),
    ],
)
def test_a_storm_that_once_went_wrong_is_right(seed: int) -> None:
    report = run(replace(draw_storm(seed), passive=False, executors=False))
    assert report.right, str(report)


def test_a_bundle_that_is_run_record_by_record_leaves_the_state_that_it_left_as_a_whole() -> None:
    """What was one object under two names in the recorded step was two where it was repeated in quarantine."""
    report = run(replace(draw_plan(13), real_values=True, state_cache=6))
    assert report.right, str(report)


@pytest.mark.parametrize("seed", [134, 328])
def test_what_was_recovered_before_a_move_is_not_given_up(seed: int) -> None:
    """After a restart, what is visible may depend on log that this attempt has recovered and not handed on yet."""
    changes = {"standbys": 1, "passive": False, "executors": False, "realtime": True, "effects": False}
    busy = replace(draw_plan(seed), faults=60, records=60, epoch=12, bundle=3, snapshot_rate=0.8, **changes)
    report = run(busy.with_rates(REPLICA_CRASH=0.02, LINK_BREAK=0.03))
    assert report.right, str(report)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            100297, id="a store from before the settled epochs came back, which had been lost since"
        ),
        pytest.param(
            101497, id="what came into an epoch behind its recorded end was gathered, and never processed"
        ),
        pytest.param(
            111579, id="a promoted standby was lost before it was sent again what the snapshot depends on"
        ),
        pytest.param(
            207610, id="the conduit forgot what snapshots of a standby that was promoted behind still needed"
        ),
        pytest.param(
            303618, id="epochs that the start began behind were not settled before their commit was recorded"
        ),
        pytest.param(602122, id="the simulated user had not kept a version that the logs still spoke of"),
        pytest.param(603016, id="the end of a driver that was taken over was the end of the run"),
        pytest.param(
            600692, id="an older copy of a checkpoint had no plan of an epoch that logs elsewhere spoke of"
        ),
        pytest.param(
            504194, id="the checker kept how an epoch had ended for a start that came to it another way"
        ),
        pytest.param(
            506301, id="the checker had not looked how an epoch had ended before its snapshots went"
        ),
        pytest.param(
            806449, id="an old copy of a disk went on in a history that the snapshot was not taken in"
        ),
        pytest.param(
            900533, id="effects of a host that had been given up were depended on when it was there again"
        ),
        pytest.param(
            901018, id="an attempt that could not end as the one before had begun, and only then said so"
        ),
        pytest.param(1100627, id="an old copy of a disk brought back a log whose input had gone another way"),
        pytest.param(
            4001752, id="a new instance, whose log store is damaged, was taken for one that has run"
        ),
        pytest.param(3008043, id="a full disk kept who was to copy a log, and not the copy"),
        pytest.param(3008618, id="a disk forgot deltas that it had kept when the host went down before"),
        pytest.param(3003246, id="an older copy of the checkpoint did not say that there had been effects"),
        pytest.param(2000171, id="an old copy of a disk held what an instance did before it did otherwise"),
        pytest.param(2008866, id="a conduit had heard that a snapshot was durable, and then it was removed"),
        pytest.param(2010362, id="no driver recorded an epoch of which Spark had lost the commit"),
        pytest.param(2003945, id="both hosts lost what they had not synced, and an effect had been seen"),
        pytest.param(
            6003601, id="what others would resume with was done anew, since its log had not been synced"
        ),
        pytest.param(
            8000545, id="damage upstream kept a copied log whose input was lost from being done anew"
        ),
        pytest.param(
            8006819, id="a replica went on from memory where the one before had begun the epoch elsewhere"
        ),
        pytest.param(
            9009257, id="the checker took the log that an old disk brought back for what had happened"
        ),
        pytest.param(8007811, id="a standby that was ready took the place of each victim of a deadly record"),
        pytest.param(
            8007908,
            id="an older copy of the checkpoint had snapshots inside an epoch that was run anew since",
        ),
        pytest.param(6004743, id="the checker took it that an instance returns to a snapshot that was gone"),
        pytest.param(
            305058, id="an instance kept its log and no holder what it depends on: the state is another one"
        ),
    ],
)
def test_a_storm_in_all_dimensions_that_once_went_wrong_is_right(seed: int) -> None:
    report = run_storm(seed)
    assert report.right, str(report)


def test_a_promoted_standby_is_not_taken_to_hold_what_a_snapshot_depends_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A storm, without the rule."""
    whatever_a_snapshot_depends_on(monkeypatch)
    report = run(replace(wide_storm(110866), archive_size=None))
    assert str(report.violation).startswith("I1: 5/1 emits, which depends on the log of 5/1"), str(report)


def test_a_replacement_sends_what_it_begins_with_when_it_has_a_checkpoint_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process, lost before, was still storing one, which came later and would have been begun with."""
    plan = mixed_with_causal(wide_plan(1201))
    report = run(plan)
    assert report.right, str(report)
    what_a_lost_process_has_stored_is_sent_at_once(monkeypatch)
    assert not run(plan).right, "the seed shows nothing any more"


def test_a_standby_that_takes_over_has_not_run_what_its_log_has_beyond_what_the_conduit_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is repeated, so the archive must not say that this process ran it."""
    plan = mixed_with_causal(replace(wide_plan(9500128), archive_size=None))
    report = run(plan)
    assert report.right, str(report)
    monkeypatch.setattr(Incarnation, "own_from", property(attrgetter("_since")))
    assert not run(plan).right, "the seed shows nothing any more"

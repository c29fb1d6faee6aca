"""Bugs of how an incarnation begins, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from planted import CRASHES, SERVERS, STANDBYS, Planted, planted

from clonos.protocol.engine.bundle_gap_detector import BundleGapDetector
from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.causal import retrieval
from clonos.protocol.recovery.causal.own_log import OwnLog
from clonos.protocol.roles.incarnation import Incarnation
from clonos.protocol.roles.snapshot_candidate import Candidate
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch
TASKS = {Fault.TASK_ZOMBIE: 0.02, Fault.QUERY_RESTART: 0.01}


def process_goes_on_although_another_attempt_ran(patch: Patch) -> None:
    """In memory it has an epoch's beginning that another server has gone on from."""
    patch.setattr(Incarnation, "_check_newest", lambda self: None)


def replacement_does_not_claim_its_snapshots(patch: Patch) -> None:
    """A slow replacement does not see that it was overtaken."""
    patch.setattr(Incarnation, "_claim", lambda self: None)


def snapshot_counts_as_taken_live_since_its_log_begins(patch: Patch) -> None:
    """What the instance had still to repeat, which an earlier incarnation had written, is not believed. The rule that
    log which no other instance depends on is done anew would hide the bug."""
    patch.setattr(retrieval, "needed_end", lambda start, recorded, replies: start + len(recorded))
    real = Candidate.own_log.fget
    assert real is not None

    def own_log(self: Candidate) -> OwnLog:
        return real(replace(self, live_since=0))

    patch.setattr(Candidate, "own_log", property(own_log))


def bundles_taken_together_lose_what_rode_along(patch: Patch) -> None:
    """All but the last of them: what came with their records is held by no instance any more."""
    real = Bundle.joined.__func__

    def joined(cls: type[Bundle], bundles: Sequence[Bundle]) -> Bundle:
        return replace(real(cls, bundles), deltas=bundles[-1].deltas)

    patch.setattr(Bundle, "joined", classmethod(joined))


def bundles_taken_together_count_as_a_hole(patch: Patch) -> None:
    """Only the last of them is counted: the attempt is given up, and nothing wrong is seen."""
    real = BundleGapDetector.take
    patch.setattr(BundleGapDetector, "take", lambda self, seq, where, *, first=None: real(self, seq, where))


STARTING: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(
            process_goes_on_although_another_attempt_ran,
            first=837,
            rates=CRASHES | SERVERS | TASKS,
            **{**STANDBYS, "executors": True},
        ),
        planted(
            replacement_does_not_claim_its_snapshots,
            first=22,
            rates={Fault.TASK_ZOMBIE: 0.05, Fault.REPLICA_STOP: 0.02},
            **{**STANDBYS, "effects": True, "executors": True, "realtime": False},
        ),
        planted(
            snapshot_counts_as_taken_live_since_its_log_begins,
            first=2231,
            rates={
                Fault.QUERY_RESTART: 0.02,
                Fault.HOST_LOST: 0.02,
                Fault.REPLICA_CRASH: 0.01,
                Fault.SERVER_CRASH: 0.01,
            },
            **{**STANDBYS, "executors": True, "realtime": True, "faults": 60},
        ),
        planted(
            bundles_taken_together_lose_what_rode_along,
            first=41,
            rates=CRASHES,
            **{**STANDBYS, "executors": True, "bundle": 1, "records": 100, "epoch": 60, "faults": 40},
        ),
        planted(bundles_taken_together_count_as_a_hole, rates=CRASHES),
    )
}

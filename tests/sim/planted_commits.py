"""Bugs of what is kept of commits, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from typing import Any

import pytest
from planted import OTHERS, Planted, planted

from clonos.protocol.fence import LOWEST_FENCE
from clonos.protocol.line import commit_reconciliation, final_snapshot
from clonos.protocol.line.commit_reconciliation import Course
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.roles import commit_records, incarnation
from clonos.protocol.roles.commit_records import CommitRecords
from clonos.protocol.roles.incarnation import Incarnation
from clonos.sim.checkpoint import Checkpoint
from clonos.sim.plan import Fault
from clonos.sim.sinks import SinkStore

Patch = pytest.MonkeyPatch


def nothing_is_recorded_before_it_is_forgotten(patch: Patch) -> None:
    patch.setattr(CommitRecords, "keep", lambda self, record: None)


def commits_are_recorded_in_the_checkpoint_alone(patch: Patch) -> None:
    def keep(self: CommitRecords, record: CommitRecord) -> None:
        self._store.keep_in_checkpoint(record)
        self.newest = record

    patch.setattr(CommitRecords, "keep", keep)


def checkpoint_is_believed_before_the_sink(patch: Patch) -> None:
    """Its record is as old as it is itself."""
    patch.setattr(commit_reconciliation, "newest_of", lambda kept, shown: kept or next(iter(shown), None))


def commit_is_repaired_whatever_snapshots_there_are(patch: Patch) -> None:
    patch.setattr(commit_reconciliation, "_check_snapshots", lambda found, newest: None)
    patch.setattr(commit_reconciliation, "_check_offsets", lambda found, newest: None)


def older_copy_is_accepted(patch: Patch) -> None:
    patch.setattr(commit_records, "reconcile", lambda found: Course(found.committed))


def instance_without_a_snapshot_begins_from_nothing(patch: Patch) -> None:
    patch.setattr(Incarnation, "_check_beginning", lambda self, line, found: iter(()))
    patch.setattr(commit_reconciliation, "_check_snapshots", lambda found, newest: None)


def start_that_the_checkpoint_has_not_heard_of_is_given_again(patch: Patch) -> None:
    """Before an epoch has committed only the sinks' fences tell of it."""
    patch.setattr(SinkStore, "standing_fence", lambda self: LOWEST_FENCE)


def start_does_not_make_durable_what_it_begins_behind(patch: Patch) -> None:
    patch.setattr(Checkpoint, "sync_spark_files", lambda self: None)


def start_goes_back_behind_the_one_before(patch: Patch) -> None:
    """The line of that one says what counts of epochs that this one has not run."""
    start_does_not_make_durable_what_it_begins_behind(patch)
    patch.setattr(commit_records, "reconcile", commit_reconciliation._course)


def an_instance_of_which_no_snapshot_is_there_is_new(patch: Patch) -> None:
    """Whatever its receivers have of it, as long as no record names it."""
    patch.setattr(final_snapshot, "check_no_end_is_missing", lambda *given, **named: None)
    the_log_of_an_earlier_epoch_is_no_proof(patch)  # which would tell, too


def the_log_of_an_earlier_epoch_is_no_proof(patch: Patch) -> None:
    """In micro-batch, of an instance whose rows only a sink has."""
    patch.setattr(incarnation, "check_log_has_no_earlier_epoch", lambda *given, **named: None)


WORLD: dict[str, Any] = {**OTHERS, "depth": FULL, "standbys": 0, "effects": False, "faults": 30}
LOST = {Fault.DRIVER_LOSS: 0.01, Fault.COMMIT_LOST: 0.9}
LOST_AT_ONCE = {Fault.DRIVER_LOSS: 0.1, Fault.COMMIT_LOST: 0.7}
OLDER = {Fault.DRIVER_LOSS: 0.01, Fault.CHECKPOINT_OLDER: 0.8}
GONE = {Fault.REPLICA_CRASH: 0.01, Fault.SNAPSHOTS_GONE: 0.2}

COMMITS: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(nothing_is_recorded_before_it_is_forgotten, rates=LOST, **WORLD),
        planted(start_does_not_make_durable_what_it_begins_behind, first=245, rates=LOST_AT_ONCE, **WORLD),
        planted(start_goes_back_behind_the_one_before, first=284, rates=LOST_AT_ONCE, **WORLD),
        planted(commits_are_recorded_in_the_checkpoint_alone, rates=OLDER, **WORLD),
        planted(checkpoint_is_believed_before_the_sink, first=9, rates=OLDER, **WORLD),
        planted(commit_is_repaired_whatever_snapshots_there_are, first=13, rates=OLDER, **WORLD),
        planted(older_copy_is_accepted, rates=OLDER, **WORLD),
        planted(instance_without_a_snapshot_begins_from_nothing, first=7, rates=GONE, **WORLD),
        planted(
            an_instance_of_which_no_snapshot_is_there_is_new,
            first=34,
            rates={**GONE, Fault.QUERY_RESTART: 0.02},
            **{**WORLD, "realtime": True},
        ),
        planted(
            the_log_of_an_earlier_epoch_is_no_proof,
            first=14,
            rates={**GONE, Fault.QUERY_RESTART: 0.02},
            **{**WORLD, "realtime": False},
        ),
        planted(start_that_the_checkpoint_has_not_heard_of_is_given_again, first=15, rates=OLDER, **WORLD),
    )
}

"""Planted bugs about coordinated checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from planted import CRASHES, RESTARTS, Planted
from planted_recovery import planted_under

from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.line import rollback_line
from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.coordinated import round_coordinator
from clonos.protocol.recovery.coordinated.alignment import Alignment
from clonos.protocol.recovery.coordinated.round_coordinator import RoundCoordinator
from clonos.protocol.recovery.marker import Marker
from clonos.protocol.recovery.policy import Checkpoint, Decision
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.recovery.rollback.held_output import HeldOutput, HeldWrite, SinkCheckpoint
from clonos.protocol.recovery.rollback.rounds import StoredRound
from clonos.protocol.roles import holding_sink_session, operator_session, query_coordinator
from clonos.protocol.roles.holding_sink_session import HoldingSinkSession
from clonos.sim.checkpoint import SnapshotStore
from clonos.sim.commits import Commits
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch


def marked_channels_are_not_held(patch: Patch) -> None:
    def records(self: Alignment, bundle: Bundle, span: Any) -> Iterator[Bundle]:
        marked, self._marked = self._marked, set()
        yield from real(self, bundle, span)
        self._marked = marked

    real = Alignment._records
    patch.setattr(Alignment, "_records", records)


def first_marker_is_enough(patch: Patch) -> None:
    def mark(self: Alignment, marker: Marker) -> Iterator[Decision]:
        if marker.round > self._last:
            self._last = marker.round
            yield Checkpoint(marker.round)

    patch.setattr(Alignment, "_mark", mark)


def what_is_held_when_an_epoch_ends_is_lost(patch: Patch) -> None:
    def end_input(self: Alignment) -> Iterator[Decision]:
        self._forget()
        yield from ()

    patch.setattr(Alignment, "end_input", end_input)


def output_is_seen_at_once(patch: Patch) -> None:
    patch.setattr(HeldWrite, "may_be_seen", lambda self, committed, safe: True)


def rounds_are_told_from_each_other_by_their_number_alone(patch: Patch) -> None:
    def may_be_seen(self: HeldWrite, committed: Epoch, safe: StoredRound) -> bool:
        known = self.before is not None and self.before.round <= safe.round
        return self.epoch <= committed or known

    patch.setattr(HeldWrite, "may_be_seen", may_be_seen)


def what_is_held_is_not_in_the_checkpoint(patch: Patch) -> None:
    patch.setattr(HeldOutput, "writes", ())


def what_is_visible_is_shown_again(patch: Patch) -> None:
    patch.setattr(HeldOutput, "seen", lambda self, cursors: None)


def round_is_complete_without_the_sinks(patch: Patch) -> None:
    class Hasty(RoundCoordinator):
        def __init__(self, instances: list[Origin], *, interval: float) -> None:
            super().__init__(instances, interval=interval)
            self._instances = frozenset(sorted(self._instances)[: len(instances) // 2])

    patch.setattr(query_coordinator, "RoundCoordinator", Hasty)


def round_is_complete_before_the_epoch_before_it_has_committed(patch: Patch) -> None:
    patch.setattr(round_coordinator, "epoch_before", lambda epoch: -1)


def round_is_complete_although_an_epoch_ended_in_it(patch: Patch) -> None:
    def close(self: RoundCoordinator) -> None:
        if self._stored.keys() == self._instances:
            self._closed = self.said.begun
            inside = max(self._stored.values())
            self.said = replace(self.said, complete=StoredRound(inside, self._closed))

    patch.setattr(RoundCoordinator, "_close_if_due", close)


def instance_that_has_received_what_was_not_sent_is_in_the_line(patch: Patch) -> None:
    real = rollback_line.recovery_line

    def recovery_line(*given: Any, **named: Any) -> Any:
        return real(*given, **{**named, "recoveries": None})

    patch.setattr(rollback_line, "recovery_line", recovery_line)


def lost_process_is_replaced(patch: Patch) -> None:
    for session in (operator_session, holding_sink_session):
        patch.setattr(session, "check_replaceable", lambda policy, request, name: None)


def checkpoints_count_of_the_newest_attempt_alone(patch: Patch) -> None:
    patch.setattr(SnapshotStore, "inside_of_all_attempts", SnapshotStore.inside)


def sink_that_has_begun_is_looked_for_under_its_old_name(patch: Patch) -> None:
    class Forgetful:
        def __init__(self, snapshots: Any) -> None:
            self._snapshots = snapshots

        def resumed(self, *given: Any) -> None:
            return None

        def __getattr__(self, name: str) -> Any:
            return getattr(self._snapshots, name)

    real = HoldingSinkSession._restore

    def restore(self: Any, request: Any) -> Any:
        host = self._holding
        kept, host._kept = host._kept, Forgetful(host._kept)
        yield from real(self, request)
        host._kept = kept

    patch.setattr(HoldingSinkSession, "_restore", restore)


def held_output_of_a_commit_that_spark_has_lost_counts_as_lost(patch: Patch) -> None:
    real = Commits._cursors

    def cursors(self: Commits, epoch: int) -> Any:
        return real(self, self._checkpoint.passed)

    patch.setattr(Commits, "_cursors", cursors)


def line_may_lie_before_what_is_visible(patch: Patch) -> None:
    """Every start is taken for that of another program, which begins where the epoch does."""
    patch.setattr(rollback_line, "_visible_behind", lambda *given: None)
    patch.setattr(query_coordinator, "program_at", lambda programs, epoch: object())


def program_before_counts_in_an_epoch_that_another_begins(patch: Patch) -> None:
    patch.setattr(query_coordinator, "program_at", lambda programs, epoch: None)


def what_sinks_hold_does_not_count(patch: Patch) -> None:
    """For the sink's begin; the operators' checkpoints do."""
    patch.setattr(SinkCheckpoint, "reached", lambda self, cursors: dict(cursors))


of = planted_under(RecoveryKind.COORDINATED)


LOST_COMMITS = {**RESTARTS, Fault.DRIVER_LOSS: 0.01, Fault.COMMIT_LOST: 0.8}

COORDINATED: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        of(marked_channels_are_not_held),
        of(first_marker_is_enough),
        of(what_is_held_when_an_epoch_ends_is_lost),
        of(output_is_seen_at_once),
        of(
            rounds_are_told_from_each_other_by_their_number_alone,
            first=98,
            rates={Fault.REPLICA_CRASH: 0.01},
            first_replacement=65_523,  # so that processes are not taken over into the next epoch
        ),
        of(what_is_held_is_not_in_the_checkpoint),
        of(what_is_visible_is_shown_again),
        of(round_is_complete_without_the_sinks),
        of(round_is_complete_before_the_epoch_before_it_has_committed),
        of(round_is_complete_although_an_epoch_ended_in_it),
        of(instance_that_has_received_what_was_not_sent_is_in_the_line),
        of(lost_process_is_replaced),
        of(checkpoints_count_of_the_newest_attempt_alone),
        of(sink_that_has_begun_is_looked_for_under_its_old_name),
        of(held_output_of_a_commit_that_spark_has_lost_counts_as_lost, first=308, rates=LOST_COMMITS),
        of(line_may_lie_before_what_is_visible),
        of(
            program_before_counts_in_an_epoch_that_another_begins,
            rates={**CRASHES, Fault.PROGRAM_CHANGED: 0.02},
        ),
        of(what_sinks_hold_does_not_count),
    )
}

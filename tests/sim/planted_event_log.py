"""Planted bugs about logs of events: which checkpoints are in them, and which logs may go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from planted import RESTARTS, Planted
from planted_eager import (
    a_replacement_begins_where_the_epoch_does,
    a_replacement_sends_nothing_again,
    rows_leave_before_they_are_stored,
)
from planted_recovery import planted_under

from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.recovery.event_log import logged_checkpoints
from clonos.protocol.recovery.event_log.logged_checkpoints import LoggedCheckpoints, LogName
from clonos.protocol.recovery.recovery_kind import RecoveryKind

Patch = pytest.MonkeyPatch


def a_log_goes_with_the_first_that_is_passed_over(patch: Patch) -> None:
    def drop(self: LoggedCheckpoints, names: Iterable[SnapshotName]) -> list[LogName]:
        gone = set(names)
        return [log for log, known in self._logs.items() if gone.intersection(known)]

    patch.setattr(LoggedCheckpoints, "drop", drop)


def a_log_goes_when_a_whole_checkpoint_follows_it(patch: Patch) -> None:
    """One that the line may still begin with, of another instance that is behind."""

    def drop(self: LoggedCheckpoints, names: Iterable[SnapshotName]) -> list[LogName]:
        return list(self._logs)

    patch.setattr(LoggedCheckpoints, "drop", drop)


def the_last_transaction_does_not_count(patch: Patch) -> None:
    """Others have its rows."""
    real = logged_checkpoints.counting
    patch.setattr(logged_checkpoints, "counting", lambda log: real(log)[:-1])


def the_newest_alone_counts(patch: Patch) -> None:
    def counting(log: Sequence[SnapshotName]) -> list[SnapshotName]:
        return list(log[-1:])

    patch.setattr(logged_checkpoints, "counting", counting)


logged = planted_under(RecoveryKind.EVENT_LOG)


EVENT_LOG: dict[str, Planted] = {
    f"{bug.plant.__name__}_in_a_log": bug
    for bug in (
        logged(a_log_goes_with_the_first_that_is_passed_over),
        logged(a_log_goes_when_a_whole_checkpoint_follows_it),
        logged(the_last_transaction_does_not_count),
        logged(the_newest_alone_counts, first=520, rates=RESTARTS),
        logged(rows_leave_before_they_are_stored),
        logged(a_replacement_sends_nothing_again),
        logged(a_replacement_begins_where_the_epoch_does),
    )
}

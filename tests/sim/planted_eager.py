"""Planted bugs about eager checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
from planted import RESTARTS, Planted
from planted_recovery import planted_under

from clonos.protocol.fence import of_same_attempt
from clonos.protocol.ids import OutputNumber, output_after
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.roles.incarnation import Incarnation
from clonos.protocol.roles.operator_session import OperatorSession
from clonos.sim.sent_frames import SentFrames

Patch = pytest.MonkeyPatch
Session = OperatorSession[Any, Any, Any]


def rows_leave_before_they_are_stored(patch: Patch) -> None:
    patch.setattr(RecoveryKind, "sends_late", False)


def rows_leave_when_their_snapshot_begins(patch: Patch) -> None:
    real = OperatorSession._fix_state

    def fix_state(self: Session, round: Any = None, **how: Any) -> Any:
        pending = yield from real(self, round, **how)
        self._frames_stored = self._frames_made
        self._release()
        return pending

    patch.setattr(OperatorSession, "_fix_state", fix_state)


def rows_leave_before_the_epoch_before_has_committed(patch: Patch) -> None:
    patch.setattr(Incarnation, "has_begun_behind", lambda self, epoch: True)


def rows_behind_the_last_checkpoint_leave_with_the_end_of_the_epoch(patch: Patch) -> None:
    """That checkpoint does not count before the commit."""
    real = OperatorSession.end

    def end(self: Session, last: int) -> Any:
        made, self._frames_stored = self._frames_stored, 1 << 40
        yield from real(self, last)
        self._frames_stored = made
        return self.live.emitted_output

    patch.setattr(OperatorSession, "end", end)


def frames_that_wait_are_counted_from_those_that_have_left(patch: Patch) -> None:
    real = OperatorSession.snapshot_stored

    def snapshot_stored(self: Session, stored: Any) -> None:
        if self._storing is not None:
            self._storing = self._storing._replace(frames=self._storing.frames + 1)
        real(self, stored)

    patch.setattr(OperatorSession, "snapshot_stored", snapshot_stored)


def a_replacement_sends_nothing_again(patch: Patch) -> None:
    def first_unread(self: Incarnation[Any], found: Any, resume: Any) -> Any:
        return resume.unread if resume is not None else None

    patch.setattr(Incarnation, "_first_unread", first_unread)


def a_replacement_sends_again_in_the_next_epoch(patch: Patch) -> None:
    def first_unread(self: Incarnation[Any], found: Any, resume: Any) -> Any:
        if resume is not None:
            return resume.unread
        return None if found is None else output_after(self.request.emitted_output, 1)

    patch.setattr(Incarnation, "_first_unread", first_unread)


def a_replacement_forgets_what_its_conduit_has(patch: Patch) -> None:
    """Its readers may have to begin before that."""
    real = SentFrames.frames

    def frames(self: SentFrames, since: OutputNumber) -> Any:
        self.forget(since)
        yield from real(self, since)

    patch.setattr(SentFrames, "frames", frames)


def a_replacement_begins_where_the_epoch_does(patch: Patch) -> None:
    """As if what its conduit has was made again alike."""
    real = Incarnation._choose

    def choose(self: Incarnation[Any], resume: Any) -> Any:
        found = real(self, resume)
        is_mid = found is not None and not self._ports.candidate(found).name.final
        if (
            resume is None
            and is_mid
            and of_same_attempt(self._ports.candidate(found).name.fence, self.request.fence)
        ):
            return self._ports.snapshots.beginning(self.request.epoch, self.request.fence, self.begun)
        return found

    patch.setattr(Incarnation, "_choose", choose)


of = planted_under(RecoveryKind.EAGER)


EAGER: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        of(rows_leave_before_they_are_stored),
        of(rows_leave_when_their_snapshot_begins),
        of(rows_leave_before_the_epoch_before_has_committed),
        of(rows_behind_the_last_checkpoint_leave_with_the_end_of_the_epoch),
        of(frames_that_wait_are_counted_from_those_that_have_left),
        of(a_replacement_sends_nothing_again),
        of(a_replacement_sends_again_in_the_next_epoch, first=86),
        of(a_replacement_forgets_what_its_conduit_has, rates=RESTARTS),
        of(a_replacement_begins_where_the_epoch_does),
    )
}

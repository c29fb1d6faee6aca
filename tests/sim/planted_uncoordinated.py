"""Planted bugs about uncoordinated checkpoints and the logs of senders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from planted import Planted
from planted_recovery import planted_under

from clonos.protocol.engine.output_watermarks import OutputWatermarks
from clonos.protocol.ids import OutputNumber
from clonos.protocol.line import recovery_line, rollback_line, snapshot_name
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.recovery.rollback.held_output import HeldWrite
from clonos.protocol.recovery.rollback.rounds import Rounds
from clonos.protocol.recovery.uncoordinated import safe_line
from clonos.protocol.recovery.uncoordinated.sent_log_truncation import SentLogTruncation
from clonos.protocol.roles.holding_sink_session import HoldingSinkSession
from clonos.protocol.roles.operator_session import OperatorSession
from clonos.sim.frames import OutputFrame
from clonos.sim.sent_frames import SentFrames

Patch = pytest.MonkeyPatch


def nothing_is_sent_again(patch: Patch) -> None:
    def send_again(self: OperatorSession[Any, Any, Any]) -> Any:
        yield from ()

    patch.setattr(OperatorSession, "_send_again", send_again)


def what_was_sent_is_not_in_the_checkpoint(patch: Patch) -> None:
    real = SentFrames.__init__
    patch.setattr(SentFrames, "__init__", lambda self, acked_input, kept=(): real(self, acked_input))


def what_is_new_is_sent_before_what_is_sent_again(patch: Patch) -> None:
    real, again = OperatorSession.open_epoch, OperatorSession._send_again

    def open_epoch(self: OperatorSession[Any, Any, Any]) -> Any:
        yield from real(self)
        yield from again(self)

    def nothing(self: OperatorSession[Any, Any, Any]) -> Any:
        yield from ()

    patch.setattr(OperatorSession, "_send_again", nothing)
    patch.setattr(OperatorSession, "open_epoch", open_epoch)


def what_one_reader_lacks_is_sent_again_and_not_what_another_does(patch: Patch) -> None:
    def first_unread(sent: Mapping[int, OutputNumber], reached: list[int]) -> int:
        lacking = [reached[to] + 1 for to, number in sent.items() if reached[to] < number]
        return max(lacking, default=max(sent.values(), default=0) + 1)

    patch.setattr(recovery_line, "first_unread", first_unread)


def what_was_sent_is_forgotten_with_the_own_checkpoint(patch: Patch) -> None:
    real = OperatorSession._fix_state

    def fix_state(self: OperatorSession[Any, Any, Any], round: Any = None, **how: Any) -> Any:
        pending = yield from real(self, round, **how)
        self._ports.sent_log.clear()
        return pending

    patch.setattr(OperatorSession, "_fix_state", fix_state)


def frames_are_sent_again_as_the_earlier_attempt_acknowledged(patch: Patch) -> None:
    def frames(self: SentFrames, since: OutputNumber) -> Iterator[tuple[OutputNumber, OutputFrame]]:
        sent = [(frame.output.emitted_output, frame) for frame in self.kept]
        yield from [(last, frame) for last, frame in sent if last >= since]

    patch.setattr(SentFrames, "frames", frames)


def receivers_may_have_what_was_not_sent(patch: Patch) -> None:
    """As with causal logging, where the sender repeats it."""

    class Repeating(Recoveries):
        def repeats(self, node: int) -> bool:
            return True

    real = rollback_line.recovery_line

    def line(*given: Any, recoveries: Recoveries, **named: Any) -> Any:
        of = Repeating(recoveries.default, recoveries.by_node, recoveries.goes_back)
        return real(*given, recoveries=of, **named)

    patch.setattr(rollback_line, "recovery_line", line)


def checkpoints_of_the_safe_line_are_dropped_for_newer_ones(patch: Patch) -> None:
    real = snapshot_name.superseded
    patch.setattr(snapshot_name, "superseded", lambda names, newest, kept_from=None: real(names, newest))


def checkpoints_are_dropped_up_to_the_newest(patch: Patch) -> None:
    real = snapshot_name.superseded
    patch.setattr(
        snapshot_name,
        "superseded",
        lambda names, newest, kept_from=None: real(names, newest, newest.sequence),
    )


def output_is_seen_with_the_checkpoint_of_its_sink(patch: Patch) -> None:
    patch.setattr(HeldWrite, "may_be_seen", lambda self, committed, safe: self.before is not None)


def safe_line_is_that_of_the_newest_checkpoints(patch: Patch) -> None:
    """Whether they fit together or not."""
    real = safe_line.SafeLine.look

    def look(self: safe_line.SafeLine, now: float, committed: int) -> Rounds:
        draw = self._draw
        self._draw = lambda stored: {
            origin: safe_line.SafePoint(last, OutputNumber(0)) for origin, last in stored.items()
        }
        said = real(self, now, committed)
        self._draw = draw
        return said

    patch.setattr(safe_line.SafeLine, "look", look)


def log_of_what_was_sent_is_cut_where_its_writer_stands(patch: Patch) -> None:
    real = OperatorSession._forget_before_safe_line

    def forget(self: OperatorSession[Any, Any, Any]) -> None:
        real(self)
        self._ports.sent_log.forget(self.live.emitted_output)

    patch.setattr(OperatorSession, "_forget_before_safe_line", forget)


def sink_takes_no_checkpoint_of_what_came_before_its_last(patch: Patch) -> None:
    """What it holds is marked as older than a checkpoint that does not have it."""
    real = HoldingSinkSession._checkpoint

    def checkpoint(self: HoldingSinkSession[Any], round: Any) -> Any:
        held = list(self._held._held)
        self._held._held = []
        yield from real(self, round)
        self._held._held = held
        self._held.mark(safe_line.StoredRound(self.request.epoch, round))

    patch.setattr(HoldingSinkSession, "_checkpoint", checkpoint)


def checkpoints_do_not_say_where_the_log_was_cut(patch: Patch) -> None:
    nowhere = property(lambda self: {}, lambda self, unkept: None)
    patch.setattr(SentLogTruncation, "unkept", nowhere, raising=False)


def event_time_that_was_told_without_rows_is_forgotten(patch: Patch) -> None:
    patch.setattr(OutputWatermarks, "restore", lambda self, kept: None)


of = planted_under(RecoveryKind.UNCOORDINATED)


UNCOORDINATED: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        of(nothing_is_sent_again),
        of(what_was_sent_is_not_in_the_checkpoint),
        of(what_is_new_is_sent_before_what_is_sent_again),
        of(what_one_reader_lacks_is_sent_again_and_not_what_another_does),
        of(what_was_sent_is_forgotten_with_the_own_checkpoint),
        of(frames_are_sent_again_as_the_earlier_attempt_acknowledged),
        of(receivers_may_have_what_was_not_sent),
        of(checkpoints_of_the_safe_line_are_dropped_for_newer_ones),
        of(checkpoints_are_dropped_up_to_the_newest),
        of(output_is_seen_with_the_checkpoint_of_its_sink),
        of(safe_line_is_that_of_the_newest_checkpoints),
        of(log_of_what_was_sent_is_cut_where_its_writer_stands),
        of(sink_takes_no_checkpoint_of_what_came_before_its_last),
        of(checkpoints_do_not_say_where_the_log_was_cut),
        of(event_time_that_was_told_without_rows_is_forgotten, event_time=True),
    )
}

"""Planted bugs about what instances leave in the archive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planted import CRASHES, LOSSES, OTHERS, STANDBYS, Planted, planted

from clonos.protocol.archive import dropping, episode, retention
from clonos.protocol.archive.archive_segment import ArchiveSegment
from clonos.protocol.archive.archived_state import ArchivedState
from clonos.protocol.archive.segment_cutter import SegmentCutter
from clonos.protocol.engine.step_executor import StepExecutor
from clonos.protocol.ids import LOG_BEGIN, NO_EPOCH, Epoch, LogOffset
from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.causal.causal_log import CausalLog
from clonos.protocol.recovery.causal.determinant import Kind, Outcome, Step
from clonos.protocol.recovery.causal.recorder import Perform
from clonos.protocol.recovery.causal.replayer import StepReplayer
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.incarnation import Incarnation
from clonos.sim.archive import Archivist
from clonos.sim.archive_storage import ArchiveStorage
from clonos.storage.segment_files import SegmentFiles

Patch = pytest.MonkeyPatch


def a_segment_is_written_behind_the_checkpoint_that_it_is_cut_for(patch: Patch) -> None:
    """With the next one: a process that is lost in between has written it to nowhere."""
    real = Archivist.write_due

    def write_due(self: Archivist) -> None:
        late: list[ArchiveSegment] = self.__dict__.setdefault("late", [])
        due, self._due = self._due, late
        self.__dict__["late"] = due
        real(self)

    patch.setattr(Archivist, "write_due", write_due)


def log_that_is_to_be_repeated_is_forgotten_at_a_checkpoint(patch: Patch) -> None:
    """It is saved, and not saved again when it has been repeated."""
    real = SegmentCutter.cut

    def cut(self: SegmentCutter, *args: Any, **more: Any) -> list[ArchiveSegment]:
        found = real(self, *args, **more)
        self._log = CausalLog()
        return found

    patch.setattr(SegmentCutter, "cut", cut)


def a_process_that_takes_another_s_place_begins_with_the_epoch(patch: Patch) -> None:
    """It has not seen what was before its checkpoint, and its log does not have it."""
    real = SegmentCutter.restored

    def restored(self: SegmentCutter, log_offset: LogOffset, epoch: Epoch) -> None:
        real(self, LOG_BEGIN, NO_EPOCH)

    patch.setattr(SegmentCutter, "restored", restored)


def a_standby_does_not_take_input(patch: Patch) -> None:
    """What it leaves when it has taken over begins with the log that it followed."""
    real = Archivist.take

    def take(self: Archivist, request: AttachRequest, records: Bundle) -> None:
        if not request.standby:
            real(self, request, records)

    patch.setattr(Archivist, "take", take)


def only_the_last_segment_of_a_checkpoint_is_written(patch: Patch) -> None:
    real = SegmentCutter.cut

    def cut(self: SegmentCutter, *args: Any, **more: Any) -> list[ArchiveSegment]:
        return real(self, *args, **more)[-1:]

    patch.setattr(SegmentCutter, "cut", cut)


def lineage_of_steps_that_are_repeated_is_not_noted(patch: Patch) -> None:
    """What repeats them has it in no segment, and what ran them first was lost before it wrote one."""
    real = StepExecutor.repeat

    def repeat(self: StepExecutor, step: Step) -> None:
        lineage = self.lineage
        if step.kind is not Kind.BOUNDARY:
            self.lineage = None
        real(self, step)
        self.lineage = lineage

    patch.setattr(StepExecutor, "repeat", repeat)


def how_long_a_call_took_is_measured_again(patch: Patch) -> None:
    """Where it is repeated, and not made."""
    real = StepReplayer._outcome_of_call

    def again(self: StepReplayer, name: str, perform: Perform) -> Outcome:
        found = real(self, name, perform)
        return replace(found, took=None if found.took is None else found.took + 1)

    patch.setattr(StepReplayer, "_outcome_of_call", again)


def what_was_repeated_counts_as_run(patch: Patch) -> None:
    """The process that takes another's place is said to have done what that did."""
    patch.setattr(Incarnation, "own_from", LOG_BEGIN)


def input_of_a_history_that_was_given_up_counts(patch: Patch) -> None:
    """A record of the same position may have been another one."""
    patch.setattr(
        episode, "counting", lambda segments, _: sorted(segments, key=lambda each: (each.fence, each.number))
    )


def input_before_the_checkpoint_at_which_an_attempt_resumed_does_not_count(patch: Patch) -> None:
    """It was not sent again."""
    real = SegmentCutter.restored
    patch.setattr(SegmentCutter, "restored", lambda self, log_offset, _: real(self, log_offset, NO_EPOCH))


def a_state_of_a_history_that_was_given_up_stays_alone(patch: Patch) -> None:
    """All before it has gone, and what is behind does not go on from it."""
    patch.setattr(dropping, "_counts", lambda *_: True)


def a_state_of_a_history_that_was_given_up_is_begun_from(patch: Patch) -> None:
    """The log that would tell has gone."""
    patch.setattr(ArchivedState, "_is_older_than", lambda *_: False)


def the_state_before_what_is_kept_goes(patch: Patch) -> None:
    real = ArchiveStorage.forget
    patch.setattr(ArchiveStorage, "forget", lambda self, before: real(self, Epoch(before + 1)))


def segments_behind_the_state_that_stays_go(patch: Patch) -> None:
    real = SegmentFiles.drop_upto
    patch.setattr(SegmentFiles, "drop_upto", lambda self, epoch: real(self, Epoch(epoch + 1)))


def what_there_is_room_for_goes(patch: Patch) -> None:
    real = retention.kept_behind
    patch.setattr(dropping, "kept_behind", lambda *args, **more: real(*args[:-1], args[-1] // 2, **more))


def a_state_is_stored_before_the_segments_up_to_it(patch: Patch) -> None:
    """If the process is lost in between, nothing says that another one has ended the epoch otherwise."""
    real = Archivist._store_state

    def store(self: Archivist, *of: Any) -> None:
        due, self._due = self._due, []
        real(self, *of)
        self._due = due + self._due

    patch.setattr(Archivist, "_store_state", store)


ARCHIVES = {"archives": True}
DROPS = {**ARCHIVES, "archive_size": 1_000}
RESUMES = {**DROPS, "realtime": True, "resumes": True, "snapshot_rate": 0.4}

ARCHIVE: dict[str, Planted] = (
    {
        bug.__name__: planted(bug, rates=CRASHES, **{**ARCHIVES, **changes})
        for bug, changes in (
            (a_segment_is_written_behind_the_checkpoint_that_it_is_cut_for, {}),
            (log_that_is_to_be_repeated_is_forgotten_at_a_checkpoint, {}),
            (a_process_that_takes_another_s_place_begins_with_the_epoch, {}),
            (a_standby_does_not_take_input, STANDBYS),
            (only_the_last_segment_of_a_checkpoint_is_written, {}),
            (lineage_of_steps_that_are_repeated_is_not_noted, {}),
            (how_long_a_call_took_is_measured_again, {"calls": True}),
            (what_was_repeated_counts_as_run, {}),
            (the_state_before_what_is_kept_goes, DROPS),
            (segments_behind_the_state_that_stays_go, DROPS),
            (what_there_is_room_for_goes, DROPS),
        )
    }
    | {
        bug.__name__: planted(bug, rates=LOSSES, **{**OTHERS, **changes, "realtime": True})
        for bug, changes in (
            (input_of_a_history_that_was_given_up_counts, ARCHIVES),
            (input_before_the_checkpoint_at_which_an_attempt_resumed_does_not_count, RESUMES),
            (a_state_of_a_history_that_was_given_up_stays_alone, DROPS),
            (a_state_of_a_history_that_was_given_up_is_begun_from, DROPS),
        )
    }
    | {
        bug.__name__: planted(
            bug,
            first=first,
            rates=LOSSES | CRASHES,
            **{**OTHERS, **DROPS, "archive_size": 100_000, "realtime": True, "faults": 40},
        )
        for bug, first in ((a_state_is_stored_before_the_segments_up_to_it, 229),)
    }
)

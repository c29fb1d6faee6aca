"""Planted bugs about what rides along with rows for communication-induced checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from planted import CRASHES, RESTARTS, Planted
from planted_recovery import planted_under

from clonos.protocol.ids import OutputNumber
from clonos.protocol.recovery.communication_induced.forced_checkpoints import ForcedCheckpoints
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.sim.frames import OutputFrame
from clonos.sim.sent_frames import SentFrames

Patch = pytest.MonkeyPatch


def vectors_begin_anew_behind_a_failure(patch: Patch) -> None:
    patch.setattr(ForcedCheckpoints, "resume", lambda self, kept, generation: None)


def checkpoint_has_the_vector_of_before_it(patch: Patch) -> None:
    def take_checkpoint(self: ForcedCheckpoints, *, counts: bool) -> bytes:
        before = self._vector.to_bytes()
        self._take()
        return before

    patch.setattr(ForcedCheckpoints, "take_checkpoint", take_checkpoint)


def checkpoints_by_time_are_not_counted(patch: Patch) -> None:
    patch.setattr(ForcedCheckpoints, "take_checkpoint", lambda self, *, counts: self._vector.to_bytes())


def vectors_that_come_are_not_heeded(patch: Patch) -> None:
    patch.setattr(ForcedCheckpoints, "_depend_on", lambda self, vector: None)


def one_vector_of_a_bundle_is_heeded(patch: Patch) -> None:
    real = ForcedCheckpoints.arrive

    def arrive(self: ForcedCheckpoints, bundle: Any) -> Iterator[Any]:
        return real(self, replace(bundle, deltas=bundle.deltas[:1]))

    patch.setattr(ForcedCheckpoints, "arrive", arrive)


def vector_goes_to_one_reader(patch: Patch) -> None:
    real = ForcedCheckpoints.send

    def send(self: ForcedCheckpoints, emit: Any) -> Any:
        made = real(self, emit)
        return replace(made, deltas=dict(list(made.deltas.items())[:1]))

    patch.setattr(ForcedCheckpoints, "send", send)


def what_is_sent_again_says_nothing(patch: Patch) -> None:
    real = SentFrames.frames

    def frames(self: SentFrames, since: OutputNumber) -> Iterator[tuple[OutputNumber, OutputFrame]]:
        for last, frame in real(self, since):
            records = tuple((to, replace(record, delta=None)) for to, record in frame.records)
            yield last, replace(frame, records=records)

    patch.setattr(SentFrames, "frames", frames)


of = planted_under(RecoveryKind.COMMUNICATION_INDUCED)

INDUCED: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        of(vectors_begin_anew_behind_a_failure),
        of(checkpoint_has_the_vector_of_before_it),
        of(checkpoints_by_time_are_not_counted),
        of(vectors_that_come_are_not_heeded),
        of(one_vector_of_a_bundle_is_heeded),
        of(vector_goes_to_one_reader),
        of(what_is_sent_again_says_nothing, rates={**CRASHES, **RESTARTS}),
    )
}

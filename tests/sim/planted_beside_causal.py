"""Planted bugs about eager checkpoints and causal logging in one query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from planted import RESTARTS, Planted
from planted_recovery import planted_in

from clonos.protocol.engine.instance import Instance
from clonos.protocol.engine.instance_log import InstanceLog
from clonos.protocol.line import recovery_line
from clonos.protocol.recovery.causal.kept_deltas import KeptDeltas
from clonos.protocol.roles import incarnation
from clonos.protocol.roles.incarnation import Incarnation
from clonos.protocol.roles.operator_session import OperatorSession
from clonos.sim.plan import Fault
from clonos.sim.rollback_plan import mixed_with_causal

Patch = pytest.MonkeyPatch
OLDER: Mapping[Fault, float] = {Fault.DRIVER_LOSS: 0.01, Fault.CHECKPOINT_OLDER: 0.8}
POWER: Mapping[Fault, float] = {**RESTARTS, Fault.POWER_LOSS: 0.01}


def checkpoints_do_not_have_others_logs(patch: Patch) -> None:
    """They are in the log store alone, which is not as durable."""
    patch.setattr(KeptDeltas, "keep", lambda self, raw: None)


def others_logs_are_forgotten_with_the_epoch(patch: Patch) -> None:
    """Some of what came in it may have to be repeated in the next."""

    def forget(self: KeptDeltas, truncation_points: Any) -> None:
        self.write(dict.fromkeys(number for number, _ in self.rows()))

    patch.setattr(KeptDeltas, "forget", forget)


def what_came_behind_the_checkpoint_counts_as_held(patch: Patch) -> None:
    """It is in the log store, and in no checkpoint."""
    real = Instance.restore

    def restore(self: Instance, snapshot: Any, **how: Any) -> None:
        held = [raw for batch in self._ports._ports.store.batches for raw in batch.deltas]
        real(self, snapshot, **(how if self._recording else {**how, "held": held}))

    patch.setattr(Instance, "restore", restore)


def rows_carry_no_mark_of_their_checkpoint(patch: Patch) -> None:
    """So it is not noticed that the checkpoint is gone."""
    patch.setattr(InstanceLog, "mark_checkpoint", lambda self: None)


def later_marks_are_ignored(patch: Patch) -> None:
    real = Incarnation._recover

    def recover(self: Incarnation[Any], snapshot: Any, opened: Any, found: Any) -> Any:
        repeats, self._repeats = self._repeats, True
        recovered = yield from real(self, snapshot, opened, found)
        self._repeats = repeats
        if not repeats:
            recovered = incarnation.replace(recovered, recorded=b"")
        return recovered

    patch.setattr(Incarnation, "_recover", recover)


def marks_are_not_written_down_again(patch: Patch) -> None:
    """Readers that begin anew lack them."""
    patch.setattr(incarnation, "marks_between", lambda start, end: [])


def a_log_that_only_a_checkpoint_has_is_not_awaited(patch: Patch) -> None:
    """The instance goes on as if nothing depended on it."""
    patch.setattr(recovery_line, "_needs", lambda points: {})


def what_a_lost_process_has_stored_is_sent_at_once(patch: Patch) -> None:
    """Another one, lost before it, may still be storing what lies behind another beginning."""
    real = OperatorSession._send_again

    def send_again(self: OperatorSession[Any, Any, Any]) -> Any:
        fresh = self.request
        self.incarnation.request = incarnation.replace(fresh, fresh=True)
        yield from real(self)
        self.incarnation.request = fresh

    patch.setattr(OperatorSession, "_send_again", send_again)


of = planted_in(mixed_with_causal)


BESIDE_CAUSAL: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        of(checkpoints_do_not_have_others_logs),
        of(others_logs_are_forgotten_with_the_epoch, rates=RESTARTS),
        of(what_came_behind_the_checkpoint_counts_as_held),
        of(rows_carry_no_mark_of_their_checkpoint, rates=OLDER),
        of(later_marks_are_ignored, rates=OLDER),
        of(marks_are_not_written_down_again, rates=RESTARTS),
        of(a_log_that_only_a_checkpoint_has_is_not_awaited, rates=POWER),
    )
}

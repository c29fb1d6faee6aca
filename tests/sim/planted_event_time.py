"""Bugs of how event time passes, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planted import CRASHES, Planted, blind, planted

from clonos.protocol.engine.instance import Instance
from clonos.protocol.engine.step_executor import StepExecutor
from clonos.protocol.recovery.causal.determinant import Kind

Patch = pytest.MonkeyPatch


def a_replay_goes_by_what_senders_say_now(patch: Patch) -> None:
    """They say it again when they like, and channels are idle or not by another clock."""
    blind(patch)
    real = StepExecutor.repeat

    def repeat(self: StepExecutor, step: Any) -> None:
        if step.kind is Kind.TIMER and step.watermark is not None:
            step.watermark = self._gate.watermarks.reached(step.fired_at, realtime=True)
        real(self, step)

    patch.setattr(StepExecutor, "repeat", repeat)


def a_snapshot_forgets_that_the_epochs_steps_say_how_the_watermark_moves(patch: Patch) -> None:
    """What is restored from it goes by the records, as older versions did."""
    blind(patch)
    real = Instance.snapshot
    patch.setattr(
        Instance, "snapshot", lambda self, **more: replace(real(self, **more), records_watermarks=False)
    )


EVENTS = {"event_time": True, "timers": True, "standbys": 0}

EVENT_TIME: dict[str, Planted] = {
    bug.__name__: planted(bug, rates=CRASHES, **changes)
    for bug, changes in (
        (a_replay_goes_by_what_senders_say_now, {**EVENTS, "realtime": True}),
        (
            a_snapshot_forgets_that_the_epochs_steps_say_how_the_watermark_moves,
            {**EVENTS, "snapshot_rate": 0.4, "first": 3},
        ),
    )
}

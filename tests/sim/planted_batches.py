"""Bugs around what an epoch's beginning and end mean to functions, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planted import CRASHES, Planted, planted

from clonos.protocol.engine.instance import Instance
from clonos.protocol.engine.operator_runner import OperatorRunner
from clonos.protocol.engine.step_executor import StepExecutor
from clonos.protocol.recovery.causal.replayer import StepReplayer
from clonos.sim.checkpoint import Checkpoint
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch


def snapshot_forgets_the_watermark_of_the_epochs_beginning(patch: Patch) -> None:
    """A replica that is restored inside the epoch tells late records by the watermark that the snapshot has."""
    real = Instance.snapshot

    def snapshot(self: Instance, **more: Any) -> Any:
        taken = real(self, **more)
        return replace(taken, epoch_watermark=taken.watermark)

    patch.setattr(Instance, "snapshot", snapshot)


def late_is_told_by_the_watermark_of_now(patch: Patch) -> None:
    """A replay begins its epoch where it stands, and not with the recorded step."""
    real = StepExecutor.repeat

    def repeat(self: StepExecutor, step: Any) -> None:
        before = self._services.epoch_watermark
        real(self, step)
        self._services.epoch_watermark = before

    patch.setattr(StepExecutor, "repeat", repeat)


def snapshot_while_records_are_gathered(patch: Patch) -> None:
    """The function's state does not have the gathered records yet."""
    patch.setattr(
        OperatorRunner, "holds", property(lambda self: False, lambda self, holds: None), raising=False
    )


def replay_of_an_epochs_end_fires_timers_alone(patch: Patch) -> None:
    """What was gathered is not processed."""
    real = OperatorRunner._end_gathering

    def end(self: OperatorRunner) -> Any:
        replaying = isinstance(self._services.step, StepReplayer)
        return [] if replaying else real(self)

    patch.setattr(OperatorRunner, "_end_gathering", end)


def what_comes_after_a_repeated_end_is_not_processed(patch: Patch) -> None:
    """Spark has lost the epoch's offsets, and takes more into it than it had the first time."""
    plan_of_an_epoch_is_not_kept(patch)
    real = Instance.end_epoch

    def end(self: Instance) -> Any:
        self._runner.holds = self._runner.holds and not self._runner.gathered
        return real(self)

    patch.setattr(Instance, "end_epoch", end)


def plan_of_an_epoch_is_not_kept(patch: Patch) -> None:
    patch.setattr(Checkpoint, "keep_offsets", lambda self, epoch: None)


LATE = {"lateness": True, "event_time": True}
GATHERED = {"per_epoch": True, "realtime": False, "poison": 0, "timers": True}

ANEW = {**GATHERED, "skips_idle": False, "faults": 20, "first": 84}
BEGUN_ANEW = {Fault.OFFSETS_LOST: 0.7, Fault.DRIVER_LOSS: 0.02}

BATCHES: dict[str, Planted] = {
    bug.__name__: planted(bug, rates=rates, **changes)
    for bug, rates, changes in (
        (
            snapshot_forgets_the_watermark_of_the_epochs_beginning,
            CRASHES,
            {**LATE, "snapshot_rate": 0.3, "first": 427},
        ),
        (late_is_told_by_the_watermark_of_now, CRASHES, {**LATE, "first": 28}),
        (snapshot_while_records_are_gathered, CRASHES, {**GATHERED, "snapshot_rate": 0.3, "first": 3}),
        (replay_of_an_epochs_end_fires_timers_alone, CRASHES, GATHERED),
        (plan_of_an_epoch_is_not_kept, BEGUN_ANEW, {**ANEW, "first": 248}),
        (what_comes_after_a_repeated_end_is_not_processed, BEGUN_ANEW, ANEW),
    )
}

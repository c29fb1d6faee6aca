"""Planted bugs of counters near their ends, and of the numbers in sinks' logs (`planted` has the catalogue)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planted import CRASHES, LOSSES, OTHERS, RESTARTS, Planted, planted

from clonos.protocol.counters import LAST_LONG
from clonos.protocol.engine.instance import Instance
from clonos.protocol.fence import LAST_REPLACEMENT, Fence
from clonos.protocol.frontier import Frontier
from clonos.protocol.line.sink_trim import Entry, Page
from clonos.protocol.roles import admission
from clonos.sim import sinks
from clonos.sim.plan import Fault, SinkKind

Patch = pytest.MonkeyPatch
REPEATS = {Fault.CONTROL_DELAY: 0.3, Fault.CONTROL_REPEAT: 0.5, Fault.CONTROL_DROP: 0.0}
LATE = {**OTHERS, "late_trims": True}


def log_numbers_begin_again_after_a_trim(patch: Patch) -> None:
    """And entries are deleted by their numbers alone, as they were."""

    def removes(self: Page, entry: Entry) -> bool:
        return any(entry.number == one.number for one in self.entries)

    patch.setattr(Page, "removes", removes)
    patch.setattr(sinks, "next_number", lambda last, removed_upto: last + 1)


def truncation_is_not_fenced(patch: Patch) -> None:
    patch.setattr(sinks, "check_driver", lambda fence, *, floor: None)


def replacement_wraps_into_the_attempt(patch: Patch) -> None:
    patch.setattr(Fence, "is_last", False)
    patch.setattr(Fence, "next", lambda self: Fence(self + 1))


def replacement_begins_again(patch: Patch) -> None:
    patch.setattr(Fence, "is_last", False)
    patch.setattr(
        Fence,
        "next",
        lambda self: Fence.of(self.generation, self.attempt, (self.replacement + 1) & LAST_REPLACEMENT),
    )


def attempt_is_masked_to_32_bits(patch: Patch) -> None:
    def first(cls: type[Fence], generation: int, task_attempt: int) -> Fence:
        return cls.of(generation, (task_attempt + 1) & 0xFFFFFFFF)

    patch.setattr(Fence, "first", classmethod(first))


def fence_is_compared_without_its_generation(patch: Patch) -> None:
    def admits(fence: int, *, standby: bool, highest: int, generation: int) -> bool:
        within, before = fence & (1 << 64) - 1, max(highest, 0) & (1 << 64) - 1
        return within >= before if standby else within > before

    patch.setattr(admission, "admits", admits)


def generation_is_masked_to_16_bits(patch: Patch) -> None:
    real = Fence.of

    def of(cls: type[Fence], generation: int, attempt: int = 0, replacement: int = 0) -> Fence:
        return real(generation & 0xFFFF, attempt, replacement)

    patch.setattr(Fence, "of", classmethod(of))


def positions_are_doubles(patch: Patch) -> None:
    real = Frontier.cover

    def cover(self: Frontier, runs: Any, positions: Any) -> None:
        real(self, runs, positions)
        self.covered.update({channel: int(float(at)) for channel, at in self.covered.items()})

    patch.setattr(Frontier, "cover", cover)


def positions_in_snapshots_have_32_bits(patch: Patch) -> None:
    real = Instance.snapshot

    def snapshot(self: Instance, **how: Any) -> Any:
        taken = real(self, **how)
        return replace(taken, covered={channel: at & 0xFFFFFFFF for channel, at in taken.covered.items()})

    patch.setattr(Instance, "snapshot", snapshot)


COUNTERS: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(
            log_numbers_begin_again_after_a_trim,
            first=26,
            rates={Fault.CONTROL_REPEAT: 1.0},
            **{**LATE, "faults": 60, "sink": SinkKind.TRANSACTION, "realtime": False},
        ),
        planted(truncation_is_not_fenced, rates=RESTARTS | REPEATS, **LATE),
        planted(
            replacement_wraps_into_the_attempt,
            rates=CRASHES,
            **{**OTHERS, "first_replacement": LAST_REPLACEMENT - 1},
        ),
        planted(
            replacement_begins_again, rates=CRASHES, **{**OTHERS, "first_replacement": LAST_REPLACEMENT - 1}
        ),
        planted(attempt_is_masked_to_32_bits, rates=CRASHES, **{**OTHERS, "first_attempt": (1 << 32) - 8}),
        planted(fence_is_compared_without_its_generation, rates={Fault.DRIVER_LOSS: 0.01}, **OTHERS),
        planted(
            generation_is_masked_to_16_bits, rates=LOSSES, **{**OTHERS, "first_generation": (1 << 16) - 2}
        ),
        planted(positions_are_doubles, first=5, rates=CRASHES, **{**OTHERS, "first_position": LAST_LONG}),
        planted(
            positions_in_snapshots_have_32_bits, rates=CRASHES, **{**OTHERS, "first_position": (1 << 32) - 5}
        ),
    )
}

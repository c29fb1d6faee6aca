"""Bugs that only a world as bad as the real one finds, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from planted import OTHERS, Planted, planted

from clonos.core.admission import GENERATION
from clonos.core.sharing import FULL
from clonos.sim.disk import Disk, LogStore
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch

# ---------------------------------------------------------------------- power


def sync_does_not_reach_the_disk(patch: Patch) -> None:
    """An effect waits for it, and the disk has only taken note."""
    patch.setattr(LogStore, "_is_on_disk", lambda self: None)


def what_lies_behind_a_hole_is_believed(patch: Patch) -> None:
    """The newer write-ahead log is read although the older one has lost its end."""

    def lose_power(self: LogStore, rng: Random) -> None:
        before, after = sorted(rng.choices(range(len(self._not_synced) + 1), k=2))
        del self._not_synced[before:after]
        real(self, Whole())

    class Whole(Random):
        def randint(self, low: int, high: int) -> int:
            return high

    real = LogStore.lose_power
    patch.setattr(LogStore, "lose_power", lose_power)


def fences_are_not_synced(patch: Patch) -> None:
    """A host that comes back serves whoever is the first to connect."""
    real = Disk.lose_power

    def lose_power(self: Disk, rng: Random) -> None:
        kept = {GENERATION: self._fence_file.get(GENERATION, 0)}
        self._fence_file.clear()
        self._fence_file.update(kept)
        real(self, rng)

    patch.setattr(Disk, "lose_power", lose_power)


POWER: dict[str, Any] = {**OTHERS, "depth": FULL, "standbys": 0, "faults": 30}
POWER_RATES = {Fault.POWER_LOSS: 0.02, Fault.REPLICA_CRASH: 0.004}

WORLD: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(sync_does_not_reach_the_disk, rates=POWER_RATES, **{**POWER, "effects": True}),
        planted(what_lies_behind_a_hole_is_believed, rates=POWER_RATES, **{**POWER, "effects": False}),
    )
}

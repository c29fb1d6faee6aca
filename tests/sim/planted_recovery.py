"""Planted bugs about recoveries that repeat nothing: in runs that have one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from planted import CRASHES, OTHERS, Planted

from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.sim.plan import Fault, Plan
from clonos.sim.rollback_plan import rolled_back


@dataclass(frozen=True)
class PlantedRecovery(Planted):
    """Its runs have this recovery."""

    recovery: RecoveryKind = RecoveryKind.COORDINATED

    def plan(self, plan: Plan) -> Plan:
        return rolled_back(super().plan(plan), self.recovery)


def planted_under(recovery: RecoveryKind) -> Callable[..., Planted]:
    """What plants a bug in runs with this recovery."""
    return partial(_planted, recovery)


def _planted(
    recovery: RecoveryKind,
    plant: Any,
    *,
    first: int = 0,
    rates: Mapping[Fault, float] = CRASHES,
    **changes: Any,
) -> Planted:
    changed = tuple({**OTHERS, **changes}.items())
    return PlantedRecovery(plant, 300, first, changed, tuple(rates.items()), recovery)

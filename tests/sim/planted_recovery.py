"""Planted bugs about recoveries that repeat nothing: in runs that have one of them, or several."""

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
    """Its runs are changed so that they have the recoveries."""

    changed: Callable[[Plan], Plan] = lambda plan: plan

    def plan(self, plan: Plan) -> Plan:
        return self.changed(super().plan(plan))


def planted_under(recovery: RecoveryKind) -> Callable[..., Planted]:
    """What plants a bug in runs with this recovery."""
    return planted_in(partial(rolled_back, recovery=recovery))


def planted_in(changed: Callable[[Plan], Plan]) -> Callable[..., Planted]:
    """What plants a bug in runs that are changed like this."""
    return partial(_planted, changed)


def _planted(
    changed: Callable[[Plan], Plan],
    plant: Any,
    *,
    first: int = 0,
    rates: Mapping[Fault, float] = CRASHES,
    **changes: Any,
) -> Planted:
    changes = {**OTHERS, **changes}
    return PlantedRecovery(plant, 300, first, tuple(changes.items()), tuple(rates.items()), changed)

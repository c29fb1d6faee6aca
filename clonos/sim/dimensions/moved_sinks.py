"""A driver is stopped now and then, and a sink of its query given another place."""

from __future__ import annotations

from random import Random

from clonos.sim.dimensions.drivers import APART
from clonos.sim.dimensions.old_checkpoints import DRIVER_LOSS
from clonos.sim.plan import Fault, Plan, SinkKind

SHARE = 0.15


def moved_sinks(plan: Plan, rng: Random) -> Plan:
    """What runs on unseen, or goes back to an older record, is in other runs; and a called service has one log."""
    kinds = set(plan.sink_kinds.values())
    if rng.random() >= SHARE or kinds == {SinkKind.CALL}:
        return plan
    if plan.may(Fault.SECOND_DRIVER) or any(plan.may(kind) for kind in APART):
        return plan
    return plan.with_rates(DRIVER_LOSS=rng.choice(DRIVER_LOSS), SINK_MOVED=rng.choice((0.5, 0.9)))

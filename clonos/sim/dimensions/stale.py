"""Hosts come back with an old copy of their disk: logs that have been cut since, fences that have been raised since."""

from __future__ import annotations

from random import Random

from clonos.sim.plan import Fault, Plan

SHARE = 0.15
RATES = (0.001, 0.003)
LEAVES_OUT = (Fault.STORE_PAGE, Fault.SINK_LOG_PAGE)


def stale(plan: Plan, rng: Random) -> Plan:
    """Without effects, whose logs an old copy does not have, and without damage beside it."""
    if rng.random() >= SHARE or plan.effects or any(plan.may(kind) for kind in LEAVES_OUT):
        return plan
    return plan.with_rates(OLD_DISK=rng.choice(RATES))

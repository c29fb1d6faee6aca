"""Hosts lose power: every process on one dies at the same moment, and of what was not synced only a part is there when
it comes back. Faults that kill processes leave what the kernel had; here it is gone, too."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Fault, Plan

SHARE = 0.25
"""Of the runs; each has its own rate, at every look of the driver."""
RATES = (0.0005, 0.001, 0.003)


def power(plan: Plan, rng: Random) -> Plan:
    """Without damaged pages of stores beside it: that an owner has set its store aside, its successor does not know."""
    if rng.random() >= SHARE:
        return plan
    rates = tuple((kind, rate) for kind, rate in plan.rates if kind is not Fault.STORE_PAGE)
    return replace(plan, rates=rates).with_rates(POWER_LOSS=rng.choice(RATES))

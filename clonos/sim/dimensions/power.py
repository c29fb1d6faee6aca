"""Hosts lose power: every process on one dies at the same moment, and of what was not synced only a part is there when
it comes back, in some stores with zeros, or a hole, behind it. Faults that kill processes leave what the kernel had;
here that is gone, too."""

from __future__ import annotations

from random import Random

from clonos.sim.plan import Plan

SHARE = 0.25
"""The share of runs with power failures; each such run has its own rate, at every look of the driver."""
RATES = (0.0005, 0.001, 0.003)


TORN = (0.0, 0.3)
"""Rates of stores that come back with zeros, or a hole, in what was not synced."""


def power(plan: Plan, rng: Random) -> Plan:
    if rng.random() >= SHARE:
        return plan
    return plan.with_rates(POWER_LOSS=rng.choice(RATES), TORN_TAIL=rng.choice(TORN))

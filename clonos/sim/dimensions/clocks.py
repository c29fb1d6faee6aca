"""Every host has a clock of its own: the times of day differ, jump, go back and stand still, and deadlines are measured
by clocks that do not run equally fast. Whatever is decided by comparing two hosts' clocks goes wrong."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Plan

SHARE = 0.3
RATES = (0.0, 0.002, 0.01)


def clocks(plan: Plan, rng: Random) -> Plan:
    if rng.random() >= SHARE:
        return plan
    return replace(plan, clocks=True).with_rates(HOST_CLOCK=rng.choice(RATES))

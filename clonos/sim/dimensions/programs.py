"""Another program at a restart: new versions, rollbacks, and what a checkpoint does not take."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Fault, Plan

SHARE = 0.3
RATE = 0.004
"""Chance of another program, each time the driver is looked at, more often at a commit."""


def programs(plan: Plan, rng: Random) -> Plan:
    if rng.random() >= SHARE or plan.impure:
        return plan
    rates = {**dict(plan.rates), Fault.PROGRAM_CHANGED: RATE * rng.choice((0.3, 1.0, 3.0))}
    return replace(
        plan,
        rates=tuple(sorted(rates.items(), key=lambda item: item[0].name)),
        faults=max(plan.faults, 5),
    )

"""More than one driver: another one is started while one is at work, stands still or cannot reach the checkpoint.
Their clocks run at different speeds, and what they do in the checkpoint takes time."""

from __future__ import annotations

from random import Random

from clonos.sim.plan import Fault, Plan

SHARE = 0.25
"""The share of runs in which drivers meet."""
SECOND_DRIVER = 0.004
STANDSTILLS = (0.001, 0.003)
"""Rates of a driver that stands still, or is cut off, at every look of it."""
APART = (Fault.POWER_LOSS, Fault.PARTITION, Fault.CHECKPOINT_OLDER, Fault.PROGRAM_CHANGED)
"""What of other dimensions is told of one driver alone."""


def drivers(plan: Plan, rng: Random) -> Plan:
    if rng.random() >= SHARE or plan.clocks or any(plan.may(kind) for kind in APART):
        return plan
    return plan.with_rates(
        SECOND_DRIVER=SECOND_DRIVER,
        DRIVER_PAUSE=rng.choice(STANDSTILLS),
        DRIVER_CUT=rng.choice(STANDSTILLS),
        DRIVER_LOSS=rng.choice((0.0, 0.004)),
    )

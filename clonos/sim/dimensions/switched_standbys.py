"""Standbys on the driver's host are switched on or off between two starts of the driver, at any moment."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Fault, Plan

SHARE = 0.2


def switched_standbys(plan: Plan, rng: Random) -> Plan:
    """Also where no standbys are drawn. A second server must be on the driver's host: the logs of one on another host
    are not asked for once it is switched off."""
    if rng.random() >= SHARE or plan.executors or plan.partitions or plan.may(Fault.SECOND_DRIVER):
        return plan
    return replace(plan, standbys=1, switches=rng.randint(1, 4), faults=max(plan.faults, 5))

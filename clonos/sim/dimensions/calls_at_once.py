"""The functions of a query are async: they wait for calls, those of several records at the same time.

Not where records end processes or are gathered until the epoch ends: such a step is not run record by record.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Plan

SHARE = 0.25


def calls_at_once(plan: Plan, rng: Random) -> Plan:
    if rng.random() >= SHARE or not plan.calls or plan.poison or plan.per_epoch:
        return plan
    return replace(plan, calls_at_once=True)

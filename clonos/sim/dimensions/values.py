"""Keys, rows and state of users' types, through the real codecs and a state cache that is too small."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Plan


def values(plan: Plan, rng: Random) -> Plan:
    """In a third of the runs. The simulated function of these takes bundles, not whole epochs."""
    if rng.random() >= 0.35 or plan.per_epoch:
        return plan
    return replace(plan, real_values=True, state_cache=rng.choice((4, 4, 6, 1000)))

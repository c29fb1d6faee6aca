"""Keys, rows and state of users' types, through the real codecs and a state cache that is too small."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Plan


def values(plan: Plan, rng: Random) -> Plan:
    """In a third of the runs."""
    if rng.random() >= 0.35:
        return plan
    return replace(plan, real_values=True, state_cache=rng.choice((4, 4, 6, 1000)))

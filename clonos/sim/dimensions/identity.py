"""What a source's records are known by: bare partition numbers, or names that the checkpoint numbers."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Plan


def identity(plan: Plan, rng: Random) -> Plan:
    """In half of the runs names, often of several topics; a few of these break the rule that positions go on."""
    if rng.random() < 0.5:
        return plan
    return replace(
        plan,
        topics=rng.choice((1, 2, 3)),
        late_partitions=rng.random() < 0.5,
        recreated=rng.random() < 0.06,
    )

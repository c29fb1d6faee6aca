"""Counters begin near where narrower ones would begin again, and near their ends; and pages of a sink's log that are to
be removed come late, twice, or not at all."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.protocol.counters import LAST_LONG
from clonos.protocol.fence import LAST_REPLACEMENT
from clonos.sim.plan import Plan

SHARE = 0.3
"""The share of runs with such counters."""


def counters(plan: Plan, rng: Random) -> Plan:
    if rng.random() >= SHARE:
        return plan
    return replace(
        plan,
        first_generation=rng.choice((0, (1 << 15) - 2, (1 << 16) - 2, (1 << 32) - 2)),
        first_attempt=rng.choice((0, (1 << 31) - 5, (1 << 32) - 5, 1 << 40)),
        first_replacement=rng.choice((0, 0, LAST_REPLACEMENT - 12)),
        late_trims=rng.random() < 0.5,
        first_position=rng.choice((0, (1 << 31) - 5, (1 << 32) - 5, (1 << 53) - 5, LAST_LONG)),
    )

"""Instances leave what they did in an archive, in some runs with states, and only as much as it may take."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Plan

SHARE = 0.25
SIZES = (None, 1, 1_000, 3_000, 100_000)
"""A segment has some 200 bytes and more."""


def archives(plan: Plan, rng: Random) -> Plan:
    if rng.random() >= SHARE:
        return plan
    return replace(plan, archives=True, archive_size=rng.choice(SIZES))

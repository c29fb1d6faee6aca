"""Instances leave what they did in an archive."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Plan

SHARE = 0.25


def archives(plan: Plan, rng: Random) -> Plan:
    return replace(plan, archives=True) if rng.random() < SHARE else plan

"""Tasks run on both hosts, whether hosts are lost or not: what an attempt that was overtaken still does on another host
is not what happened."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Plan


def hosts(plan: Plan, rng: Random) -> Plan:
    return replace(plan, spreads=plan.executors and plan.standbys > 0 and not plan.effects)

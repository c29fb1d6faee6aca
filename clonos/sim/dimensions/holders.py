"""Holders that cannot read, for a while or for ever, break off, or have too much to do; stores of instances that act on
the outside, damaged."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from clonos.sim.plan import FORGETTING, Fault, Plan

RATES: Final = {
    Fault.DIRECTORY_UNREADABLE: 0.05,
    Fault.REPLY_CUT: 0.05,
    Fault.SERVICE_BUSY: 0.1,
    Fault.HOLDERS_UNKNOWN: 0.05,
    Fault.STORE_UNREADABLE: 0.03,
}
FOR_EVER: Final = 0.01
DAMAGE: Final = 0.05


def unreadable_holders(plan: Plan, rng: Random) -> Plan:
    """In three of ten runs, and of those in one of eight for ever; in one of eight effects and damaged stores."""
    if rng.random() >= 0.3:
        return plan
    rates = {kind.name: rate for kind, rate in RATES.items() if rng.random() < 0.7}
    if rng.random() < 0.125:
        rates[Fault.DIRECTORY_LOST.name] = FOR_EVER
    damaged = rng.random() < 0.125 and not any(kind in FORGETTING for kind, _ in plan.rates)
    if damaged:
        rates[Fault.STORE_PAGE.name] = DAMAGE
    plan = plan.with_rates(**rates)
    return replace(plan, effects=True) if damaged else plan

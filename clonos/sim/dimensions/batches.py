"""Functions that work as Spark's do: late records are told from others by the watermark with which the epoch began, and
in micro-batch the records of an epoch may be gathered and processed when it ends, timers behind them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Plan

LATE_SHARE, GATHERED_SHARE = 0.25, 0.25
"""The shares of all runs that have late records, and of runs in micro-batch that gather records."""


def batches(plan: Plan, rng: Random) -> Plan:
    """Runs that gather records have no poison: a record that kills the replica is not found among gathered ones."""
    if rng.random() < LATE_SHARE:
        plan = replace(plan, lateness=True, event_time=True)
    if rng.random() < GATHERED_SHARE and not plan.realtime and not plan.poison:
        plan = replace(plan, per_epoch=True)
    return plan

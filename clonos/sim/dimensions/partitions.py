"""Places cannot reach each other for a while: hosts, the checkpoint storage, the sinks; in one direction or both, so
that both sides are alive and each may take the other for dead. The second server has a lease then, and the driver goes
on without one that it cannot reach."""

from __future__ import annotations

from random import Random

from clonos.sim.plan import Plan

SHARE = 0.2
"""The share of runs with partitions; each such run has its own rate, at every look of the driver."""
RATES = (0.001, 0.003, 0.01)


def partitions(plan: Plan, rng: Random) -> Plan:
    """Without effects where tasks are on both hosts: cut off with its task, one is as lost as with its host."""
    if rng.random() >= SHARE or (plan.has_two_hosts and plan.effects):
        return plan
    return plan.with_rates(PARTITION=rng.choice(RATES))

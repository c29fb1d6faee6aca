"""A replica server lives but does nothing for a while: a signal has stopped it, or its disk does not answer. Its socket
still accepts connections, and the replicas that it has started go on."""

from __future__ import annotations

from random import Random

from clonos.sim.plan import Plan

SHARE = 0.2
"""The share of runs whose servers hang; each such run has its own rate, at every look of the driver."""
RATES = (0.001, 0.003, 0.01)


def hung_servers(plan: Plan, rng: Random) -> Plan:
    if rng.random() >= SHARE:
        return plan
    return plan.with_rates(SERVER_STOP=rng.choice(RATES))

"""What a run's world has beyond `clonos.sim.plan`, one dimension a module.

A dimension changes a plan with random numbers of its own stream, so a seed keeps its run in all other dimensions when
one is added. `draw_plan` alone gives the plan without them: kept runs and planted bugs are pinned to it, and switch on
the dimension that they are about.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

from clonos.sim.dimensions.archives import archives
from clonos.sim.dimensions.batches import batches
from clonos.sim.dimensions.calls_at_once import calls_at_once
from clonos.sim.dimensions.clocks import clocks
from clonos.sim.dimensions.counters import counters
from clonos.sim.dimensions.drivers import drivers
from clonos.sim.dimensions.fan_out import fan_out
from clonos.sim.dimensions.holders import unreadable_holders
from clonos.sim.dimensions.hosts import hosts
from clonos.sim.dimensions.hung_servers import hung_servers
from clonos.sim.dimensions.identity import identity
from clonos.sim.dimensions.moved_sinks import moved_sinks
from clonos.sim.dimensions.old_checkpoints import old_checkpoints
from clonos.sim.dimensions.partitions import partitions
from clonos.sim.dimensions.power import power
from clonos.sim.dimensions.programs import programs
from clonos.sim.dimensions.several_sinks import several_sinks
from clonos.sim.dimensions.side_outputs import side_outputs
from clonos.sim.dimensions.stale import stale
from clonos.sim.dimensions.switched_standbys import switched_standbys
from clonos.sim.dimensions.values import values
from clonos.sim.plan import Plan

Dimension: TypeAlias = Callable[[Plan, Random], Plan]
"""A plan with more in it, as the dimension's own stream says; the plan itself where this run leaves it out."""

DIMENSIONS: Final[dict[str, Dimension]] = {
    "power": power,
    "identity": identity,
    "hosts": hosts,
    "partitions": partitions,
    "clocks": clocks,
    "programs": programs,
    "holders": unreadable_holders,
    "stale": stale,
    "batches": batches,
    "old checkpoints": old_checkpoints,
    "drivers": drivers,
    "counters": counters,
    "values": values,
    "hung servers": hung_servers,
    "switched standbys": switched_standbys,
    "fan-out": fan_out,
    "side outputs": side_outputs,
    "several sinks": several_sinks,
    "moved sinks": moved_sinks,
    "calls at once": calls_at_once,
    "archives": archives,
}
"""By the name of its stream, in the order of application."""


def widened(plan: Plan) -> Plan:
    """The plan with every dimension that its seed draws."""
    for name, dimension in DIMENSIONS.items():
        plan = dimension(plan, Random(f"{plan.seed}/{name}"))
    return plan

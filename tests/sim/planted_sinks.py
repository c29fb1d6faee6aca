"""Bugs of sinks that are given another place, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from planted import OTHERS, Planted

from clonos.protocol.line import commit_reconciliation
from clonos.protocol.line.commit_reconciliation import Found
from clonos.protocol.line.commit_record import CommitRecord
from clonos.sim.dimensions.fan_out import with_another_sink
from clonos.sim.plan import Fault, Plan, SinkKind

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class SeveralSinks(Planted):
    """In runs with a second sink, of which one is given another place."""

    def plan(self, plan: Plan) -> Plan:
        plan = super().plan(plan)
        flow = with_another_sink(plan.dataflow, Random(f"{plan.seed}/second sink"))
        return replace(plan, dataflow=flow, sink=SinkKind.TRANSACTION, other_sinks=SinkKind.AHEAD)


def a_new_place_is_asked_for_what_the_old_one_showed(patch: Patch) -> None:
    """Once a start that died over it has left its record there."""
    patch.setattr(CommitRecord, "without_cursors_of", lambda self, sinks: self)


def a_place_is_taken_for_that_of_every_sink_of_the_query(patch: Patch) -> None:
    """One that was given the place of another is asked for rows that it has shown elsewhere."""

    def new_sinks(found: Found, newest: CommitRecord) -> frozenset[int]:
        known = {origin.node for origin, channels in found.cursors.items() if channels}
        return frozenset(at.node for at in newest.cursors if at.node not in known | set(found.shown))

    patch.setattr(commit_reconciliation, "new_sinks", new_sinks)


RATES = {Fault.DRIVER_LOSS: 0.01, Fault.SINK_MOVED: 0.8}


def moved(plant: Any, first: int) -> SeveralSinks:
    world = {**OTHERS, "standbys": 0, "effects": False, "faults": 30, "poison": 0, "real_values": False}
    return SeveralSinks(plant, 200, first, tuple(world.items()), tuple(RATES.items()))


SINKS: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        moved(a_new_place_is_asked_for_what_the_old_one_showed, first=25),
        moved(a_place_is_taken_for_that_of_every_sink_of_the_query, first=25),
    )
}

"""The sinks of a query are in one place, with one commit record, or in two. In some runs one does not take the record
of a commit that others have."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.sim.plan import Plan, SinkKind


def several_sinks(plan: Plan, rng: Random) -> Plan:
    if len(plan.dataflow.sinks) == 1:
        return plan
    plan = replace(plan, other_sinks=rng.choice((None, *SinkKind)))
    return plan.with_rates(SINK_COMMIT=0.3) if rng.random() < 0.5 else plan

"""Making a failing run smaller: fewer faults first, then a smaller world, as long as it still fails.

Faults are left out by delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE
TSE 2002) over the numbers of those that struck. Leaving one out changes what follows, so "still fails" means: with any
violation of the same invariant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from clonos.sim.plan import Plan
from clonos.sim.run import Report, run

Run = Callable[[Plan], Report]


def shrink(plan: Plan, *, tries: int = 400, play: Run = run) -> Report:
    """The smallest run found that breaks the same invariant; at most so many tries."""
    report = play(plan)
    if report.violation is None:
        return report
    invariant, left = report.violation.invariant, tries

    def still_fails(candidate: Plan) -> Report | None:
        nonlocal left
        if left <= 0:
            return None
        left -= 1
        found = play(candidate)
        return found if found.violation is not None and found.violation.invariant == invariant else None

    while True:
        smaller = _fewer_faults(report, still_fails) or _smaller_world(report, still_fails)
        if smaller is None:
            return report
        report = smaller


StillFails = Callable[[Plan], Report | None]


def _fewer_faults(report: Report, still_fails: StillFails) -> Report | None:
    """Halves, quarters, ... of the faults that struck, left out."""
    numbers = sorted(struck.number for struck in report.struck)
    size = max(len(numbers) // 2, 1)
    while numbers:
        for at in range(0, len(numbers), size):
            kept = frozenset(numbers[:at] + numbers[at + size :])
            found = still_fails(replace(report.plan, only=kept))
            if found is not None and len(found.struck) < len(report.struck):
                return found
        if size == 1:
            return None
        size //= 2
    return None


def _smaller_world(report: Report, still_fails: StillFails) -> Report | None:
    for candidate in _candidates(report.plan):
        found = still_fails(candidate)
        if found is not None:
            return found
    return None


def _candidates(plan: Plan) -> Iterator[Plan]:
    """One thing less each."""
    for dataflow in plan.dataflow.smaller():
        yield replace(plan, dataflow=dataflow)
    for records in (plan.records // 2, plan.records - 5, plan.records - 1):
        if 0 < records < plan.records:
            yield replace(plan, records=records)
    if plan.event_time:
        yield replace(plan, event_time=False)
    if plan.lateness:
        yield replace(plan, lateness=False)
    if plan.per_epoch:
        yield replace(plan, per_epoch=False)
    if plan.poison:
        yield replace(plan, poison=plan.poison - 1)
    if plan.effects:
        yield replace(plan, effects=False)
    if plan.calls_at_once:
        yield replace(plan, calls_at_once=False)
    if plan.calls:
        yield replace(plan, calls=False, calls_at_once=False)
    if plan.timers:
        yield replace(plan, timers=False)
    if plan.snapshot_rate:
        yield replace(plan, snapshot_rate=0.0)
    if plan.bundle > 1:
        yield replace(plan, bundle=1)

"""Strikes of a plan as a script for `clonos.testing.faults`, for those that need a precise point of execution.

Faults count what an instance has processed since its process began, so a script covers one driver process: up
to the next strike that takes the driver, with shares counted from the one that took the last.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from clonos.protocol.destination import destination
from clonos.testing import faults
from clonos.tools.demo.plan import Strike
from clonos.tools.flights.data import FlightEvent

__all__ = ["script_until"]


def script_until(due: Sequence[Strike], since: float, events: Sequence[FlightEvent], instances: int) -> str:
    """The script for the strikes that are `due` before the next driver's end; empty where there is none.

    `since`: the share of `events` that is visible when the driver starts.
    """
    chosen: list[faults.Fault] = []
    for strike in due:
        if strike.kind == "driver":
            break
        if strike.kind != "worker":
            chosen.append(_fault(strike, max(0.02, strike.at - since), events, instances))
    return faults.script(*chosen) if chosen else ""


def _fault(strike: Strike, share: float, events: Sequence[FlightEvent], instances: int) -> faults.Fault:
    if strike.role == "sink":
        after = strike.kind == "task" or strike.pick % 2
        return faults.Fault(
            point=faults.Point.AFTER_COMMIT if after else faults.Point.BEFORE_COMMIT,
            strike=faults.Strike.TASK if strike.kind == "task" else faults.Strike.REPLICA,
            operator="sink",
            after=round(len(events) * share),
        )
    instance, count = _busiest(events, instances)
    return faults.Fault(
        point=faults.Point.INPUT,
        strike=faults.Strike.TASK,
        operator=strike.role,
        instance=instance,
        after=round(count * share),
    )


def _busiest(events: Sequence[FlightEvent], instances: int) -> tuple[int, int]:
    """The instance of the second operator, keyed by carrier, that gets the most records, and how many."""
    carriers = Counter(json.loads(event.payload)["carrier"] for event in events)
    loads: Counter[int] = Counter()
    for carrier, count in carriers.items():
        loads[destination((carrier,), instances)] += count
    return loads.most_common(1)[0]

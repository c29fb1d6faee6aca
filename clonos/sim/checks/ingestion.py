"""What latency is measured by: the times that rows bring to a sink are those at which records entered the query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.protocol.engine.output_commit import Write
from clonos.protocol.ids import Origin
from clonos.protocol.ingestion import UNKNOWN
from clonos.sim.checks.violation import Violation

if TYPE_CHECKING:
    from clonos.sim.plan import Plan


class Ingestion:
    """No invariant of the protocol, which does not depend on these times."""

    def __init__(self, plan: Plan) -> None:
        self._holds_back = plan.timers
        self._is_held = not plan.recoveries.all_repeat
        self._entered: dict[int, int] = {}
        self._first = -1

    def entered(self, record: int, now: int) -> int:
        """A task hands the record on, perhaps again. When that was."""
        self._entered[record] = now
        self._first = now if self._first < 0 else self._first
        return now

    def visible(self, sink: Origin, write: Write, now: int) -> None:
        """A row of a record that was not held back has the time of the record, or an earlier one."""
        times = [each.time for each in write.ingested for _ in range(each.rows)]
        if len(times) != len(write.rows):
            raise Violation(
                "ingestion", f"sink {sink} knows the times of {len(times)} of {len(write.rows)} rows"
            )
        for time, row in zip(times, write.rows, strict=True):
            latest = now if self._holds_back else self._entered[row[1]]
            # What is held is not made again, so it keeps the time of the first reading.
            earliest = self._first if self._is_held else min(self._entered.values())
            if time != UNKNOWN and not earliest <= time <= latest:
                raise Violation(
                    "ingestion", f"record {row[1]} entered at {latest} at the latest, and its row says {time}"
                )

"""I4 where histories part: a recovered log that no other instance has received was once recorded, by one incarnation.

An instance that goes on on another server begins a history of its own, and what it had recorded beyond that point
stays behind in a store. If the newest history is lost before a downstream instance or a sink has received any of it,
an older one may be believed again: as it was recorded, never a mixture of two.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from clonos.protocol.ids import LogOffset, Origin
from clonos.sim.checks.truth import Truth
from clonos.sim.checks.violation import Violation

if TYPE_CHECKING:
    from clonos.sim.operator_host import OperatorHost


class Histories:
    """The log of each incarnation as that one had it."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._logs: dict[Origin, dict[OperatorHost, bytearray]] = defaultdict(dict)

    def begins(self, host: OperatorHost, start: LogOffset, recorded: bytes) -> None:
        self._logs[host.origin][host] = self._truth.logs[host.origin][:start] + recorded

    def writes(self, host: OperatorHost, start: LogOffset, data: bytes) -> None:
        self._logs[host.origin][host][start:] = data

    def believed(self, host: OperatorHost, start: LogOffset, recorded: bytes) -> None:
        others = [log for other, log in self._logs[host.origin].items() if other is not host]
        if not any(log[start : start + len(recorded)] == recorded for log in others):
            raise Violation(
                "I4", f"what was recovered of the log of {host.origin} from {start} on was never recorded"
            )

"""I4: what a recovery has put together is a piece of what the instance recorded, contiguous from where it begins.

Before the offset from which a recovery may still ask, any bytes will do: a server that was away when its store should
have been truncated comes back with what a later incarnation, of which it has not heard, had long left behind.
"""

from __future__ import annotations

from clonos.protocol.ids import LogOffset, Origin, log_after
from clonos.protocol.recovery.causal.retrieval import Recovered
from clonos.sim.checks.truncation import Truncation
from clonos.sim.checks.truth import Truth
from clonos.sim.checks.violation import Violation


class Prefix:
    """Compares with the true log."""

    def __init__(self, truth: Truth, truncation: Truncation) -> None:
        self._truth = truth
        self._truncation = truncation

    def parts(self, origin: Origin, start: LogOffset, recorded: bytes) -> LogOffset | None:
        """The offset at which something else, or more, was recovered than the true log; None where nothing was."""
        known = bytes(self._truth.logs[origin][start : start + len(recorded)])
        differs = (
            LogOffset(start + at) for at, (a, b) in enumerate(zip(known, recorded, strict=False)) if a != b
        )
        return next(differs, log_after(start, known) if len(known) < len(recorded) else None)

    def recovered(self, origin: Origin, start: LogOffset, recovered: Recovered) -> None:
        log = self._truth.logs[origin]
        needed = self._truncation.points().get(origin, 0)
        for at, data in [*recovered.before, (start, recovered.recorded)]:
            beyond = max(at, needed)
            if bytes(log[beyond : at + len(data)]) != data[beyond - at :]:
                raise Violation(
                    "I4", f"what was recovered of the log of {origin} from {at} on is not what was recorded"
                )

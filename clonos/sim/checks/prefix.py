"""I4: what a recovery has put together is a piece of what the instance recorded, contiguous from where it begins."""

from __future__ import annotations

from clonos.core.identity import Origin
from clonos.core.retrieval import Recovered
from clonos.sim.checks.truth import Truth
from clonos.sim.checks.violation import Violation


class Prefix:
    """Compares with the true log."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def parts(self, origin: Origin, start: int, recorded: bytes) -> int | None:
        """The offset at which something else, or more, was recovered than the true log; None where nothing was."""
        known = bytes(self._truth.logs[origin][start : start + len(recorded)])
        differs = (start + at for at, (a, b) in enumerate(zip(known, recorded, strict=False)) if a != b)
        return next(differs, start + len(known) if len(known) < len(recorded) else None)

    def recovered(self, origin: Origin, start: int, recovered: Recovered) -> None:
        log = self._truth.logs[origin]
        for at, data in [*recovered.before, (start, recovered.recorded)]:
            if bytes(log[at : at + len(data)]) != data:
                raise Violation(
                    "I4", f"what was recovered of the log of {origin} from {at} on is not what was recorded"
                )

"""What the incarnations of an instance wrote of its log themselves, and which of it is believed.

A replica saves its log before anything depends on it, so the end of its store may hold what nobody else ever heard
of. A replacement that reads the store goes on from there, but a standby takes over from where the conduit knew the log:
what the lost replica had saved beyond that never happened. Each store therefore says under which fences it was written,
and from which offset on each incarnation went its own way. What an older incarnation wrote is believed up to where a
newer one went its own way, and, should the newer one's store be gone, up to where it disagrees with what was handed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from clonos.protocol.recovery.causal.causal_log import Segment

Incarnation: TypeAlias = tuple[int, int]
"""Fence, and the log offset from which on it was live."""


@dataclass(frozen=True, slots=True)
class OwnLog:
    """One store: its pieces in order, the incarnations that wrote them, oldest first, and the deltas they received.

    An instance that goes on elsewhere depends on what it received here, and must hold it there. One that is `damaged`
    may have holes, and nobody need have heard of what lies behind one.
    """

    segments: list[Segment] = field(default_factory=list)
    incarnations: tuple[Incarnation, ...] = ()
    received: tuple[bytes, ...] = ()
    damaged: bool = False

    @property
    def fence(self) -> int:
        """Of the last incarnation that wrote it, -1 where none did: a standby's copy."""
        return max((fence for fence, _ in self.incarnations), default=-1)

    def before(self, newer: Iterable[Incarnation]) -> OwnLog:
        """Without what was written beyond the offset at which a newer incarnation went its own way."""
        limit = min((since for fence, since in newer if fence > self.fence), default=None)
        if limit is None or self.fence < 0:
            return self
        return replace(
            self, segments=[(start, data[: limit - start]) for start, data in self.segments if start < limit]
        )


def believed(logs: Sequence[OwnLog]) -> list[OwnLog]:
    """Each without what a newer incarnation has overtaken; the newest first."""
    everybody = [incarnation for log in logs for incarnation in log.incarnations]
    return sorted((log.before(everybody) for log in logs), key=lambda log: log.fence, reverse=True)

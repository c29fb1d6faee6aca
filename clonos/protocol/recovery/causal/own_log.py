"""What the incarnations of an instance wrote of its log themselves, and which of it is believed.

A replica saves its log before anything depends on it, so the end of its store may hold what no other process ever heard
of. A replacement that reads the store goes on from there, but a standby takes over from where the conduit knew the log:
what the lost replica had saved beyond that never happened. Each store therefore says under which fences it was written,
and from which offset on each incarnation went its own way. What an older incarnation wrote is believed up to where a
newer one went its own way, and, should the newer one's store be gone, up to where it disagrees with what was handed on.

A store also says from which offset on what it holds is a copy: of what a standby was sent, or of what a recovery has
put there from elsewhere. A copy need not have with it the deltas that it depends on (`needed_log`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from clonos.protocol.fence import NO_FENCE, Fence
from clonos.protocol.ids import LOG_BEGIN, LogOffset, log_after
from clonos.protocol.recovery.causal.causal_log import Segment, pieces_before
from clonos.protocol.recovery.causal.history_mark import HistoryMark
from clonos.protocol.recovery.causal.replacement import Failover


class Writer(NamedTuple):
    """The incarnation that wrote a store from a log offset on: under this fence, live or, where it is a `copy`, behind
    the one that was live."""

    fence: Fence
    since: LogOffset
    copy: bool = False


def begun(known: Sequence[Writer], one: Writer) -> tuple[Writer, ...]:
    """What a store says of its incarnations once another one begins. Where one has written nothing, the next one takes
    its place; a copy that begins takes the place of none."""
    kept = [other for other in known if not other.copy or other.since < one.since]
    if one.copy:
        while kept and kept[-1].copy:
            one = one._replace(since=kept.pop().since)
        return (*kept, one)
    return (*(other for other in kept if other.since != one.since), one)


def truncated(known: Sequence[Writer], offset: LogOffset) -> tuple[Writer, ...]:
    """Of those, the incarnations that may have written what a store still holds, from `offset` on, and the last one."""
    writing = [one for one in known if one.since <= offset][-1:]
    last = [one for one in known if not one.copy][-1:]
    return tuple(one for one in known if one.since > offset or one in [*writing, *last, known[-1]])


@dataclass(frozen=True, slots=True)
class OwnLog:
    """One store: its pieces in order, the incarnations that wrote them, oldest first, and the deltas they received.

    An instance that goes on elsewhere depends on what it received here, and must hold it there. One that is `damaged`
    may have holes, and no holder need have heard of what lies behind one.
    """

    segments: list[Segment] = field(default_factory=list)
    incarnations: tuple[Writer, ...] = ()
    received: tuple[bytes, ...] = ()
    damaged: bool = False

    @property
    def fence(self) -> Fence:
        """The fence of the last incarnation that wrote it live, -1 where none did."""
        return max((one.fence for one in self.incarnations if not one.copy), default=NO_FENCE)

    @property
    def history(self) -> Fence:
        """The fence of the incarnation that it is the log of, written by itself or copied, -1 if unknown."""
        return max((one.fence for one in self.incarnations), default=NO_FENCE)

    @property
    def end(self) -> LogOffset:
        return max((log_after(*piece) for piece in self.segments), default=LOG_BEGIN)

    @property
    def written_live(self) -> LogOffset:
        """The offset before which it lacks nothing that it depends on: what an incarnation writes live comes behind
        what it repeated, and it was sent all deltas of that meanwhile. What lies before the first incarnation that the
        store knows was written by a version that did not say so, and counts as live."""
        end = self.end
        for one in reversed(self.incarnations):
            if not one.copy and one.since < end:
                return end
            end = min(end, one.since)
        return end

    def of_history(self, mark: HistoryMark | None) -> OwnLog:
        """Without what it says from the epoch of a snapshot on, if that is another history than the snapshot's. Then
        it is an old copy of this host's disk that has come back, and as good as a store that is lost."""
        if mark is None or not mark.contradicts(self.segments):
            return self
        return replace(self, segments=pieces_before(self.segments, mark.begins))

    def before(self, newer: Iterable[Failover]) -> OwnLog:
        """Without what was written beyond the offset at which a newer incarnation went its own way; of each, fence
        and offset."""
        limit = min(
            (failover.known_upto for failover in newer if failover.fence > self.history), default=None
        )
        if limit is None or self.history < 0:
            return self
        return replace(self, segments=pieces_before(self.segments, limit))


def believed(logs: Sequence[OwnLog]) -> list[OwnLog]:
    """Each without what a newer incarnation has overtaken; the newest first."""
    lives = [Failover(one.fence, one.since) for log in logs for one in log.incarnations if not one.copy]
    return sorted((log.before(lives) for log in logs), key=lambda log: log.history, reverse=True)

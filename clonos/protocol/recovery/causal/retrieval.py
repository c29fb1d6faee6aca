"""The log that an instance returns with: what is at hand, whether that is enough, and what all together know.

At hand are the instance's own store and, behind a replica that was lost, the increments that the conduit keeps. That
is enough where the store is whole: it holds what the predecessor had recovered. Every other holder is asked where the
conduit keeps nothing (`fresh`), where the store is damaged, of which only what can be read counts, and where it lacks
what the conduit has seen: then it is not the one that the instance wrote. They are also asked by a standby, and by an
instance that has gone on on another server since it wrote this store.

Where an instance has standbys, what a store says is believed as `clonos.protocol.recovery.causal.own_log` has it.

Clonos, SIGMOD 2021, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from clonos.errors import StorageUnavailable, Where
from clonos.protocol.fence import of_same_attempt
from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin, log_after
from clonos.protocol.recovery.causal.causal_log import CausalLog, Segment, pieces_between, pieces_from
from clonos.protocol.recovery.causal.determinant_codec import whole_chunks
from clonos.protocol.recovery.causal.history_mark import HistoryMark
from clonos.protocol.recovery.causal.holding import Damage
from clonos.protocol.recovery.causal.longest_prefix import (
    HolderReply,
    check_complete,
    check_history,
    longest_prefix,
)
from clonos.protocol.recovery.causal.needed_log import needed_end
from clonos.protocol.recovery.causal.own_log import OwnLog, believed
from clonos.protocol.recovery.causal.replacement import ConduitProgress, Failover


@dataclass(frozen=True, slots=True)
class Recovered:
    """The instance's log, cut at the snapshot it returns to."""

    before: list[Segment]
    recorded: bytes
    base: LogOffset = LOG_BEGIN
    """What lies before is not needed."""
    received: list[bytes] = field(default_factory=list)
    """Deltas that it received elsewhere."""
    log: CausalLog = field(default_factory=CausalLog)

    def until(self, snapshot: LogOffset, end: LogOffset) -> Recovered:
        """Without what lies beyond `end`; the log was cut at `snapshot`."""
        if end >= snapshot + len(self.recorded):
            return self
        kept, log = self.recorded[: end - snapshot], CausalLog()
        for start, data in [*self.before, (snapshot, kept)]:
            log.merge(start, data)
        return replace(self, recorded=kept, log=log)

    def missing(self, own: OwnLog) -> tuple[LogOffset, list[Segment]]:
        """From which offset on a store does not hold this, and what is to be written there instead."""
        known = CausalLog()
        for start, data in own.segments:
            known.merge(start, data)
        at = self.base
        for start, data in self.log:
            at = LogOffset(start + known.agreement(start, data))
            if at < start + len(data):
                break
        return at, pieces_from(self.log, at)


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """An instance's store as this host has kept it: what can be read of the own log and of what was received, what
    cannot, and from which offset on the store lacks nothing that the instance wrote (None: not known)."""

    own: OwnLog = field(default_factory=OwnLog)
    held: list[bytes] = field(default_factory=list)
    damaged: tuple[Damage, ...] = ()
    whole_since: LogOffset | None = None


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What is at hand of the log of `origin`, from offset `base` on; whether to ask others, and because of a store that
    ends `too_early`. No receiver depends on more than lies before `bound`, as far as that is known, nor on more than is
    in a store that is `whole`."""

    origin: Origin
    snapshot: LogOffset
    base: LogOffset
    at_hand: tuple[HolderReply, ...]
    ask_others: bool
    too_early: bool
    failovers: tuple[Failover, ...] = ()
    bound: LogOffset | None = None
    whole: bool = False
    anew_from: LogOffset | None = None
    all_begin: bool = False
    history: HistoryMark | None = None

    def put_together(self, answers: Iterable[HolderReply], *, where: Where) -> Recovered:
        """The log from the snapshot on, and what is known of it before. Raises as `longest_prefix` does."""
        # A failover that the conduit made, and that no replica lived to write down, counts, too.
        answers = [
            replace(reply, own=tuple(own.before(self.failovers) for own in reply.own))
            for reply in (answer.of_history(self.history) for answer in answers)
        ]
        replies = [*self.at_hand, *answers]
        recovered = put_together(self.origin, self.base, self.snapshot, replies, where=where)
        check_history(self.origin, self.snapshot, recovered.log, self.history, replies, where=where)
        reached = log_after(self.snapshot, recovered.recorded)
        if not self.whole and (self.bound is None or reached < self.bound):
            check_complete(self.origin, reached, replies, where=where)
        if self.anew_from is not None and not self._may_be_depended_on(replies):
            needed = needed_end(self.snapshot, recovered.recorded, replies)
            recovered = recovered.until(self.snapshot, max(needed, self.anew_from))
        elsewhere = [raw for reply in answers for own in reply.own for raw in own.received]
        return replace(recovered, received=elsewhere)

    def _may_be_depended_on(self, replies: Iterable[HolderReply]) -> bool:
        """Whether more of the log may be needed than the replies can say, since a part of one is damaged. Where all
        instances begin with this one, they need what they have acted on alone: the rest of their own logs they do anew,
        too, as far as no reply says that it is needed."""
        damaged = [damage for reply in replies for damage in reply.damaged]
        may = Damage.may_say if self.all_begin else Damage.may_depend_on
        return any(may(damage, self.origin) for damage in damaged)


def retrieve(
    origin: Origin,
    snapshot: LogOffset,
    opened: OpenedLog,
    kept: bytes,
    *,
    known: ConduitProgress,
    fresh: bool,
    where: Where,
    may_have_moved: bool = False,
    since: LogOffset | None = None,
    recovered: LogOffset = LOG_BEGIN,
    settled: LogOffset = LOG_BEGIN,
    repeats_all: bool = False,
    history: HistoryMark | None = None,
    needed: LogOffset = LOG_BEGIN,
    all_begin: bool = False,
) -> Retrieval:
    """Begin, for an instance that returns to log offset `snapshot`.

    `kept` are the increments that the conduit keeps and `known` what else it says, `recovered` how far a replica of
    this attempt has recovered the log; an instance `may_have_moved` where there are, or were, other servers, also if
    it has no standby now. Inside an epoch, the log is wanted `since` the epoch began; with `repeats_all` nothing that
    is known of it is done anew, nor is what lies before `needed`. `all_begin`: every instance begins anew, as this one
    does (real time). What lies before `settled`, the end of the last epoch that is not run again, is not asked for any
    more: a store that comes back from long ago may say there what has been lost since, and was done anew. `history` is
    the snapshot's: a store of another history is not believed from that epoch on. Raises StorageUnavailable where the
    conduit has forgotten what the snapshot needs.
    """
    start = known.log_start
    if not fresh and snapshot < start:
        raise StorageUnavailable(
            f"the newest snapshot that can be read reaches log offset {snapshot}, but the conduit has forgotten what "
            f"lies before {start}",
            where=where,
            hint="A snapshot was damaged or removed; the epoch is run again from the end of the one before",
        )
    standing, damaged = opened.own.of_history(history).before(known.failovers), opened.damaged
    too_early = not damaged and not _suffices(standing, snapshot, known.log_end)
    anew = fresh and not repeats_all
    store = _told_by_own_store(standing, damaged, by_writers=may_have_moved or anew)
    return Retrieval(
        origin,
        snapshot,
        # Truncation bounds what the own store holds: all of it may still be asked for, also of epochs before this one,
        # which real-time mode commits late.
        # An instance that may have been elsewhere asks for all that some holder has not truncated.
        max(
            LOG_BEGIN
            if may_have_moved
            else min([snapshot if since is None else since, *(offset for offset, _ in standing.segments)]),
            min(settled, snapshot),
        ),
        (store, HolderReply("the conduit", [(start, kept)])) if kept else (store,),
        fresh or bool(damaged) or too_early or (may_have_moved and not _is_last_writer(standing, known)),
        too_early,
        known.failovers,
        # Every row goes through the conduit, and where there are standbys every effect is announced to it.
        bound=None
        if fresh or (not may_have_moved and any(one.acts for one in damaged))
        else max(known.log_end, recovered),
        # An instance that may have gone on elsewhere has written there, too.
        whole=not may_have_moved
        and opened.whole_since is not None
        and opened.whole_since <= snapshot
        and not damaged,
        anew_from=max(known.log_end, recovered, needed) if anew else None,
        all_begin=all_begin,
        history=history,
    )


def _is_last_writer(standing: OwnLog, known: ConduitProgress) -> bool:
    """Whether the instance has not gone on elsewhere in this attempt since the store was written."""
    return of_same_attempt(standing.fence, known.fence) and all(
        failover.fence <= standing.fence for failover in known.failovers
    )


def _told_by_own_store(standing: OwnLog, damaged: tuple[Damage, ...], *, by_writers: bool) -> HolderReply:
    """Where others may hold a newer history, or a copy may be done anew, the store says which incarnation has written
    what it holds."""
    name = "the instance's own log store"
    if by_writers or damaged:
        return HolderReply(name, damaged=damaged, own=(replace(standing, damaged=bool(damaged)),))
    return HolderReply(name, standing.segments)


def _suffices(own: OwnLog, start: LogOffset, upto: LogOffset) -> bool:
    """Whether the store alone knows the log from `start` to `upto`."""
    log = CausalLog()
    for offset, data in own.segments:
        log.merge(offset, data)
    return log.contiguous_end(start) >= upto


def put_together(
    origin: Origin, base: LogOffset, snapshot: LogOffset, replies: Sequence[HolderReply], *, where: Where
) -> Recovered:
    """The log from `snapshot` on, and what is known of it between `base` and `snapshot`."""
    recorded = longest_prefix(origin, snapshot, replies, where=where)
    if any(reply.damaged for reply in replies):
        recorded = whole_chunks(recorded)
    log = known_between(base, snapshot, replies)
    before = list(log)
    log.merge(snapshot, recorded)
    return Recovered(before, recorded, base, log=log)


def known_between(base: LogOffset, end: LogOffset, replies: Iterable[HolderReply]) -> CausalLog:
    """What there is of an instance's log from `base` to `end`."""
    log = CausalLog()
    stores: list[OwnLog] = []
    for reply in replies:
        stores += reply.own
        for at, data in pieces_between(reply.segments, base, end):
            log.merge(at, data)
    for store in believed(stores):
        log.merge_agreeing(pieces_between(store.segments, base, end))
    return log

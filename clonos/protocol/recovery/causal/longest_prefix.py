"""Recovery of one instance: its states, and what the holders' answers amount to.

    RESTORING -> FETCHING -> REPLAYING -> LIVE
         \\___________\\___________\\-> FAILED

An instance that returns to a snapshot needs its own log from the snapshot's offset on. Every holder says which pieces
it has and how far it knows the log to have reached (`required`). The longest contiguous prefix is taken; if an instance
or a sink knows of more than the prefix holds, it depends on determinants that no holder can hand back, and going live
would contradict what it has seen: `GapError`. By the user's own choice the query then gives up its history (`on_gap`).

Damage is a gap, too, unless something proves that nothing was forgotten with it (`check_complete`): the conduit that
lives, through which every row went, and, where there are standbys, which every effect was announced to; the instance's
own store, where it is whole; or, for a store whose owner has not acted on the outside, the sinks' logs, which have what
anything visible depends on.

Clonos, SIGMOD 2021, section 5: retrieve, replay, resume.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from clonos.errors import GapError, LogConflict, ReplicaLost, Where
from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.recovery.causal.causal_log import CausalLog, pieces_from
from clonos.protocol.recovery.causal.history_mark import HistoryMark
from clonos.protocol.recovery.causal.holding import HolderReply as HolderReply
from clonos.protocol.recovery.causal.own_log import OwnLog, believed

GAP_HINT = (
    "More was lost at once than the sharing depth covers. If a log of this query is only elsewhere (another data "
    "directory, a host or disk that is away), start again with it. spark.clonos.onGap=at_least_once goes on with "
    "possible contradictions. A greater spark.clonos.sharing.depth covers more losses from then on"
)


class RecoveryState(enum.Enum):
    RESTORING = "restoring"
    FETCHING = "fetching"
    REPLAYING = "replaying"
    LIVE = "live"
    FAILED = "failed"


def longest_prefix(
    origin: Origin,
    start: LogOffset,
    replies: Iterable[HolderReply],
    *,
    where: Where,
) -> bytes:
    """The instance's log from offset `start`, as far as the holders together know it.

    Raises LogConflict where holders disagree, GapError where one knows of more than can be put together.
    """
    log = CausalLog()
    required = start
    asked: list[str] = []
    own: list[OwnLog] = []
    for reply in replies:
        asked.append(reply.holder)
        required = max(required, reply.required)
        own += reply.own
        for offset, data in pieces_from(reply.segments, start):
            try:
                log.merge(offset, data)
            except LogConflict as error:
                raise LogConflict(
                    f"holder {reply.holder} disagrees with {', '.join(asked[:-1])} about the log of {origin}: "
                    f"{error.message}",
                    where=where,
                    hint="Two incarnations of the instance have written; the query cannot go on exactly",
                ) from error
    required = max(required, log.end)
    for store in believed(own):
        upto = log.merge_agreeing((at, data) for at, data in store.segments if at + len(data) > start)
        if not store.damaged:
            required = max(required, upto)
    reached = log.contiguous_end(start)
    if reached < required:
        raise GapError(
            f"log bytes {reached}..{required} of {origin} are needed but no holder has them (asked: "
            f"{', '.join(asked) or 'none'})",
            where=where,
            hint=GAP_HINT,
        )
    return log.prefix(start)


def check_complete(
    origin: Origin, reached: LogOffset, replies: Iterable[HolderReply], *, where: Where
) -> None:
    """Raises GapError where what is damaged may have said that the log goes on beyond what is known of it."""
    for reply in replies:
        for damage in reply.damaged:
            if damage.may_say(origin):
                raise GapError(
                    f"{reply.holder} is damaged ({damage.what}), and what cannot be read there may depend on the log "
                    f"of {origin} beyond offset {reached}, up to which it is known",
                    where=where,
                    hint="Restore what is damaged from a copy and start the query again, or choose "
                    "spark.clonos.onGap=at_least_once to go on with possible contradictions",
                )


def check_history(
    origin: Origin,
    snapshot_offset: LogOffset,
    log: CausalLog,
    snapshot: HistoryMark | None,
    replies: Iterable[HolderReply],
    *,
    where: Where,
) -> None:
    """Raises GapError where a holder depends on another history of the instance than the one that is known.

    A receiver that is not sent the bytes of a log, because the sharing depth is finite, knows its digest. It tells a
    log that an incarnation saved and never sent, because it died in between, from that of its standby.
    """
    for reply in replies:
        for mark in reply.marks:
            if mark.ends > snapshot_offset and mark.is_contradicted(log, snapshot):
                raise GapError(
                    f"{reply.holder} depends on log bytes {mark.begins}..{mark.ends} of {origin}, and what is known "
                    "there is another history: the log of the incarnation that went on is lost",
                    where=where,
                    hint=GAP_HINT,
                )


def cut_short(ends_at: LogOffset, log_end: LogOffset, where: Where) -> ReplicaLost:
    """An attempt that has to end where an earlier one has ended cannot repeat it up to there."""
    return ReplicaLost(
        f"an earlier attempt has ended the epoch at log offset {ends_at}, and no holder has its log beyond {log_end}",
        where=where,
        hint="Tasks that have read its output have ended: the whole query runs the epoch again",
    )

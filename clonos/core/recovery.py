"""Recovery of one instance: its states, and what the holders' answers amount to.

    RESTORING -> FETCHING -> REPLAYING -> LIVE
         \\___________\\___________\\-> FAILED

An instance that returns to a snapshot needs its own log from the snapshot's offset on. Every holder says which pieces
it has and how far it knows the log to have reached (`required`). The longest contiguous prefix is taken; if somebody
knows of more than the prefix holds, that somebody depends on determinants that nobody can hand back, and going live
would contradict what it has seen: `GapError`, or, by the user's own choice, at-least-once from there.

Clonos, SIGMOD 2021, section 5: retrieve, replay, resume.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from clonos.core.causal_log import CausalLog, Segment
from clonos.core.identity import Origin
from clonos.errors import GapError, LogConflict, Where

REPLACEMENT_BITS = 16


class RecoveryState(enum.Enum):
    RESTORING = "restoring"
    FETCHING = "fetching"
    REPLAYING = "replaying"
    LIVE = "live"
    FAILED = "failed"


class OnGap(enum.Enum):
    """What to do where somebody depends on determinants that nobody has."""

    FAIL = "fail"
    AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True, slots=True)
class HolderReply:
    """What one holder has of an instance's log."""

    holder: str
    segments: list[Segment] = field(default_factory=list)
    required: int = 0
    corrupt: tuple[str, ...] = ()


def longest_prefix(
    origin: Origin, start: int, replies: Iterable[HolderReply], *, where: Where, on_gap: OnGap = OnGap.FAIL
) -> bytes:
    """The instance's log from offset `start`, as far as the holders together know it.

    Raises LogConflict where holders disagree, GapError where somebody knows of more than can be put together.
    """
    log = CausalLog()
    required = start
    asked: list[str] = []
    for reply in replies:
        asked.append(reply.holder)
        required = max(required, reply.required)
        for offset, data in reply.segments:
            if offset + len(data) <= start:
                continue
            if offset < start:
                offset, data = start, data[start - offset :]
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
    reached = log.contiguous_end(start)
    if reached < required and on_gap is OnGap.FAIL:
        raise GapError(
            f"log bytes {reached}..{required} of {origin} are needed but nobody holds them (asked: "
            f"{', '.join(asked) or 'nobody'})",
            where=where,
            hint="More failed at once than the sharing depth covers. Raise spark.clonos.sharing.depth, or choose "
            "spark.clonos.onGap=at_least_once to go on with possible contradictions",
        )
    return log.prefix(start)


@dataclass(frozen=True, slots=True)
class Recovered:
    """The instance's log, cut at the snapshot it returns to."""

    before: list[Segment]
    recorded: bytes


def of_same_attempt(fence: int, other: int) -> bool:
    """Whether two fences (generation, task attempt, replacement: docs/wire.md) are of one task attempt.

    A snapshot inside an epoch is for replacements in the attempt that took it. A new attempt discards those of earlier
    ones, but one that a dead replica had sent to remote storage may appear later: its history need not be this one's.
    """
    return fence >> REPLACEMENT_BITS == other >> REPLACEMENT_BITS


def stands_for_known_output(emitted: int, *, passed: int, before: Callable[[], int]) -> bool:
    """Whether a replacement may start from a snapshot inside the epoch, taken when rows up to `emitted` had left.

    It will not make those rows again, so the conduit must have them: it took over rows up to `passed` in this task
    attempt, and those up to `before()`, the end of the epoch before, were taken over then. Rows that were under way
    when the conduit gave the connection up are lost, and a snapshot that became durable behind them is of no use.
    """
    return emitted <= passed or emitted <= before()


def joins_known_log(log_offset: int, *, known_upto: int) -> bool:
    """Whether what follows a snapshot joins what the conduit keeps of the log, `known_upto` (0: nothing yet).

    Increments without rows can be under way, too, when a connection is given up. Behind a snapshot that lies beyond
    them they would not be made again, and the conduit refuses a log with a hole.
    """
    return known_upto == 0 or log_offset <= known_upto


def suffices(replies: Iterable[HolderReply], start: int, upto: int) -> bool:
    """Whether these holders alone know the log from `start` to `upto`."""
    log = CausalLog()
    for reply in replies:
        for offset, data in reply.segments:
            log.merge(offset, data)
    return log.contiguous_end(start) >= upto


def put_together(
    origin: Origin, base: int, snapshot: int, replies: Sequence[HolderReply], *, where: Where
) -> Recovered:
    """The log from `snapshot` on, and what is known of it between `base` and `snapshot`."""
    recorded = longest_prefix(origin, snapshot, replies, where=where)
    log = CausalLog()
    for reply in replies:
        for offset, data in reply.segments:
            if offset < snapshot and offset + len(data) > base:
                log.merge(offset, data[: snapshot - offset])
    before = [(offset, data) for offset, data in log if offset + len(data) > base]
    return Recovered(before, recorded)

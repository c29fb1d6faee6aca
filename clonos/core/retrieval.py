"""The log that an instance returns with: what is at hand, whether that is enough, and what all together know.

At hand are the instance's own store and, behind a replica that was lost, the increments that the conduit keeps. That
is enough where the store is whole: it holds what the predecessor had recovered. Everybody else is asked where the
conduit keeps nothing (`fresh`), where the store is damaged, and where it lacks what the conduit has seen: then it is
not the one that the instance wrote.

Clonos, SIGMOD 2021, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clonos.core.causal_log import CausalLog, Segment
from clonos.core.identity import Origin
from clonos.core.recovery import HolderReply, longest_prefix
from clonos.errors import StorageUnavailable, Where


@dataclass(frozen=True, slots=True)
class Recovered:
    """The instance's log, cut at the snapshot it returns to."""

    before: list[Segment]
    recorded: bytes


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What is at hand of the log of `origin`, from offset `base` on; whether to ask others, and because of a store that
    ends `too_early`."""

    origin: Origin
    snapshot: int
    base: int
    at_hand: tuple[HolderReply, ...]
    ask_others: bool
    too_early: bool

    def put_together(self, answers: Iterable[HolderReply], *, where: Where) -> Recovered:
        """The log from the snapshot on, and what is known of it before. Raises as `longest_prefix` does."""
        return put_together(self.origin, self.base, self.snapshot, [*self.at_hand, *answers], where=where)


def retrieve(
    origin: Origin, snapshot: int, own: list[Segment] | None, kept: Segment, *, fresh: bool, where: Where
) -> Retrieval:
    """Begin, for an instance that returns to log offset `snapshot`.

    `own` is what its store holds, None for one that is damaged; `kept` the conduit's increments, from where it starts.
    Raises StorageUnavailable where the conduit has forgotten what the snapshot needs.
    """
    start, increments = kept
    if not fresh and snapshot < start:
        raise StorageUnavailable(
            f"the newest snapshot that can be read reaches log offset {snapshot}, but the conduit has forgotten what "
            f"lies before {start}",
            where=where,
            hint="A snapshot was damaged or removed; the epoch is run again from the end of the one before",
        )
    store = HolderReply("the instance's own log store", own or [])
    too_early = not (own is None or _suffices(store, snapshot, start + len(increments)))
    return Retrieval(
        origin,
        snapshot,
        # Truncation bounds what the own store holds: all of it may still be asked for, also of epochs before this one,
        # which real-time mode commits late.
        min([snapshot, *(offset for offset, _ in own or [])]),
        (store,) if fresh else (store, HolderReply("the conduit", [kept])),
        fresh or own is None or too_early,
        too_early,
    )


def _suffices(reply: HolderReply, start: int, upto: int) -> bool:
    """Whether this holder alone knows the log from `start` to `upto`."""
    log = CausalLog()
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

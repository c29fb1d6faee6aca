"""An episode: what one instance did in one epoch, put together from the segments that its processes left.

The log says how many records of each channel were consumed, so it also says whether the archive has all of them. What
is lacking is said, and never made up.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from clonos.errors import ClonosError
from clonos.protocol.archive.archive_segment import ArchiveSegment, EpochEnded, RanOn
from clonos.protocol.archive.counting_segments import counting
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin
from clonos.protocol.recovery.causal.causal_log import CausalLog
from clonos.protocol.recovery.causal.determinant import Kind, Step
from clonos.protocol.recovery.causal.determinant_codec import decode_steps

_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LineagePiece:
    """Entries (`step_lineage`) of the steps between two offsets of the log. `before` is the part of the log that is of
    the epoch before: a standby of an earlier version left it, too, when it took over."""

    start: LogOffset
    end: LogOffset
    before: bytes
    entries: bytes


class Share(enum.StrEnum):
    """What a process that has left a step in the archive did of it."""

    RAN = "ran"
    WENT_ON = "went on with"  # where another one was lost in the middle of it
    REPEATED = "repeated"
    UNKNOWN = "left"  # an older version did not say whether it ran or repeated what it left


@dataclass(frozen=True, slots=True)
class PartOfLog:
    """What of an episode's log a process has left in the archive: the one of a fence, and where that was."""

    fence: Fence
    start: LogOffset
    end: LogOffset
    ran_on: RanOn | None

    def share(self, step: Step) -> Share | None:
        """Of a step of the episode; None where that is in another part."""
        if not self.start < step.stop <= self.end:
            return None
        if self.ran_on is None:
            return Share.UNKNOWN
        if self.ran_on.since <= step.start:
            return Share.RAN
        return Share.WENT_ON if self.ran_on.since < step.stop else Share.REPEATED


@dataclass(frozen=True, slots=True)
class Episode:
    """Of an epoch that ended, with all that was recorded in it."""

    origin: Origin
    epoch: Epoch
    realtime: bool
    program: str
    code: str
    intercept: bool
    log_start: LogOffset
    log: bytes
    ended: EpochEnded
    blocks: tuple[bytes, ...]
    written_at: int  # when its last segment was
    ended_by: Fence  # the process whose end of it counts
    lineage: tuple[LineagePiece, ...] = ()  # that was recorded, as far as its log is this one
    parts: tuple[PartOfLog, ...] = ()  # which processes have left which parts of its log

    def since(self, offset: LogOffset) -> Episode:
        """What is left of it where the log has come to an offset, if it begins before."""
        begun = offset - self.log_start
        return replace(self, log_start=offset, log=self.log[begun:]) if 0 < begun <= len(self.log) else self


@dataclass(frozen=True, slots=True)
class Lacking:
    """Why there is no episode. `is_open`: the epoch has not ended, as far as the archive has it. `has_raised`: an error
    was raised when it was repeated, whose text `why` has. `is_curable`: what it takes may be had,
    but it is damaged, encrypted with a key that is not given, or does not fit the modules that are here."""

    why: str
    is_open: bool = False
    is_before: bool = False  # the archive was not there yet
    is_erased: bool = False  # on purpose (`erasure`)
    epoch: Epoch | None = None  # which, where more than one was asked for
    has_raised: bool = False
    is_curable: bool = False

    @classmethod
    def raised(cls, error: ClonosError) -> Lacking:
        """The error was raised when it was repeated."""
        return cls(f"{type(error).__name__}: {error}", has_raised=True, is_curable=True)

    def of_what_is_damaged(self, is_damaged: bool) -> Lacking:
        """The same, where something else is damaged by which there would be an episode."""
        return replace(self, is_curable=self.is_curable or is_damaged)


def put_together(segments: Sequence[ArchiveSegment]) -> Episode | Lacking:
    """Of one instance and epoch. What the last process that ended the epoch says counts: Spark may have run it before,
    with other input where it had lost which that was."""
    if any(each.erased_at is not None for each in segments):
        return Lacking("it was erased by `clonos archive forget`", is_erased=True)
    ends = [each for each in segments if each.ended is not None]
    if not ends:
        return Lacking("it has not ended, as far as the archive has it", is_open=True)
    last = max(ends, key=lambda each: (each.fence, each.number))
    assert last.ended is not None
    log = CausalLog()
    for fence in sorted({each.fence for each in segments}, reverse=True):
        # Of what an earlier process has recorded that counts which it shares with those behind it.
        own = sorted((each for each in segments if each.fence == fence), key=lambda each: each.number)
        log.merge_agreeing((each.log_start, each.log) for each in own)
    count = counting(segments, last.fence)
    data = log.prefix(last.epoch_start)
    whole = last.ended.log_end - last.epoch_start
    if len(data) < whole:
        reached = last.epoch_start + len(data)
        return Lacking(f"its log is not all there: what was recorded behind log offset {reached} is missing")
    return Episode(
        last.origin,
        last.epoch,
        last.realtime,
        last.program,
        last.code,
        last.intercept,
        last.epoch_start,
        data[:whole],
        last.ended,
        tuple(block for each in count for block in each.blocks),
        last.written_at,
        last.fence,
        *_what_was_left(segments, last.epoch_start, data[:whole]),
    )


def _what_was_left(
    segments: Iterable[ArchiveSegment], start: LogOffset, log: bytes
) -> tuple[tuple[LineagePiece, ...], tuple[PartOfLog, ...]]:
    """Of an epoch with this log: what was recorded of its steps, and which processes have left which of them."""
    pieces: list[LineagePiece] = []
    parts: list[PartOfLog] = []
    for each in segments:
        before = each.log[: max(0, start - each.log_start)]
        own, begun = each.log[len(before) :], max(0, each.log_start - start)
        if not own or log[begun : begun + len(own)] != own:
            continue
        parts.append(PartOfLog(each.fence, max(start, each.log_start), each.log_end, each.ran_on))
        if each.lineage is not None:
            pieces.append(LineagePiece(each.log_start, each.log_end, before, each.lineage))
    return tuple(pieces), tuple(parts)


def consumed(log: bytes, start: LogOffset) -> Counter[int]:
    """By channel, how many records the steps of a log consume."""
    found: Counter[int] = Counter()
    for step in decode_steps(log, start):
        if step.kind is Kind.ORDER:
            for channel, count in step.consumed:
                found[channel] += count
    return found


class ArchivedInput:
    """Which of the archived records count, epoch by epoch: each once, in the order of its channel. A process that takes
    another's place is sent again what has come since its checkpoint. Where Spark had lost which records an epoch was to
    have, and it came out shorter, records of it wait for the next one, as they did then."""

    def __init__(self, reached: Mapping[int, int] = _NOTHING, waiting: Iterable[int] = ()) -> None:
        """Behind a state: how far each channel had come, and the channels of the records that waited."""
        self._reached = dict(reached)
        self._waiting = Counter(waiting)

    def takes(self, channel: int, position: int) -> bool:
        """Whether a record has not been there before, of which those before it on its channel have been asked for."""
        if channel in self._reached and position <= self._reached[channel]:
            return False
        self._reached[channel] = position
        self._waiting[channel] += 1
        return True

    @property
    def has_waiting(self) -> bool:
        """Whether the epoch that ended has left records for the next one."""
        return self._waiting.total() > 0

    def lacks(self, episode: Episode) -> Lacking | None:
        """Whether all is there that the episode consumed, when what is archived of it has been asked for."""
        missing = 0
        for channel, count in consumed(episode.log, episode.log_start).items():
            missing += max(0, count - self._waiting[channel])
            self._waiting[channel] -= count
        if missing:
            return Lacking(f"{missing} of the records that it consumed are not in the archive")
        return None

"""Which segments of an epoch count: those of its last task attempt, and of the attempts that it goes on from.

Within an attempt, processes take each other's place and repeat what was done: what came to any of them, came. An
attempt that begins with the epoch is sent all input anew, perhaps other input, since history may have been given up
before it. One that resumed at a checkpoint inside the epoch was sent what came behind that; what is before it, an
earlier attempt was.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from clonos.protocol.archive.archive_segment import ArchiveSegment
from clonos.protocol.fence import Fence, attempt_of
from clonos.protocol.ids import LogOffset


def counting(segments: Iterable[ArchiveSegment], ended_by: Fence) -> list[ArchiveSegment]:
    """Of one epoch that a process of this fence has ended, by fence and number."""
    found: list[ArchiveSegment] = []
    upto: LogOffset | None = None
    ordered = sorted(segments, key=lambda each: (each.fence, each.number), reverse=True)
    for attempt, group in groupby(ordered, key=lambda each: attempt_of(each.fence)):
        if attempt > attempt_of(ended_by):
            continue  # it has not ended the epoch, and is not what was committed
        own = list(group)
        found += [each for each in own if upto is None or each.log_end <= upto]
        if any(each.began is None for each in own):
            continue  # an older version has left it, which did not say
        inside = [each.began.inside for each in own if each.began is not None]
        offsets = [offset for offset in inside if offset is not None]
        if len(offsets) < len(inside):
            break
        upto = min(offsets) if upto is None else min(upto, *offsets)
    return found[::-1]

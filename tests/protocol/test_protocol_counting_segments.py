"""Which segments of an epoch count, where task attempts have begun it anew or gone on inside it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clonos.protocol.archive.archive_segment import ArchiveSegment, Began, EpochEnded
from clonos.protocol.archive.counting_segments import counting
from clonos.protocol.archive.episode import Episode, put_together
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber

BEGINS = 100
WHOLE, UNKNOWN = Began(), None


def inside(offset: int) -> Began:
    return Began(LogOffset(offset))


def segment(
    attempt: int, replacement: int, number: int, upto: int, began: Began | None, *, ends: bool = False
) -> ArchiveSegment:
    return ArchiveSegment(
        origin=Origin.of(2, 0),
        epoch=Epoch(4),
        fence=Fence.of(1, attempt, replacement),
        number=number,
        written_at=number,
        realtime=True,
        program="p",
        epoch_start=LogOffset(BEGINS),
        log_start=LogOffset(upto),
        log=b"",
        blocks=(f"{attempt}.{replacement}.{number}".encode(),),
        ended=EpochEnded(LogOffset(upto), OutputNumber(1)) if ends else None,
        began=began,
    )


FIRST = segment(1, 0, 0, 110, WHOLE)
SECOND = segment(1, 0, 1, 120, WHOLE)
REPLACED = segment(1, 1, 0, 130, inside(110))
RESUMED = segment(2, 0, 0, 140, inside(110), ends=True)
RESUMED_BEFORE_ANYTHING = segment(2, 0, 0, 140, inside(BEGINS), ends=True)
ANEW = segment(2, 0, 0, 140, WHOLE, ends=True)
RESUMED_AGAIN = segment(3, 0, 0, 150, inside(140), ends=True)
UNKNOWN_LAST = segment(2, 0, 0, 140, UNKNOWN, ends=True)
NOT_ENDED = segment(3, 0, 0, 115, WHOLE)
AT_ITS_BEGINNING = segment(1, 0, 0, BEGINS, WHOLE)


@pytest.mark.parametrize(
    ("segments", "count"),
    [
        ([FIRST, REPLACED, RESUMED], [FIRST, RESUMED]),
        ([FIRST, SECOND, RESUMED], [FIRST, RESUMED]),
        ([FIRST, SECOND, REPLACED, ANEW], [ANEW]),
        ([FIRST, SECOND, RESUMED, RESUMED_AGAIN], [FIRST, RESUMED, RESUMED_AGAIN]),
        ([FIRST, ANEW, RESUMED_AGAIN], [ANEW, RESUMED_AGAIN]),
        ([FIRST, SECOND, UNKNOWN_LAST], [FIRST, SECOND, UNKNOWN_LAST]),
        ([FIRST, ANEW, NOT_ENDED], [ANEW]),
        ([AT_ITS_BEGINNING, SECOND, RESUMED_BEFORE_ANYTHING], [AT_ITS_BEGINNING, RESUMED_BEFORE_ANYTHING]),
        ([AT_ITS_BEGINNING, ANEW], [ANEW]),
    ],
    ids=[
        "what a process did behind the checkpoint that the next attempt begins at",
        "and what it left behind it itself",
        "an attempt that begins with the epoch",
        "one that goes on from one that went on",
        "or from one that began anew",
        "as earlier versions left them",
        "one that has not ended the epoch",
        "a checkpoint before anything was done",
        "and none",
    ],
)
def test_what_the_last_attempt_was_not_sent_counts_if_it_goes_on_from_it(
    segments: Sequence[ArchiveSegment], count: Sequence[ArchiveSegment]
) -> None:
    last = max((each for each in segments if each.ended), key=lambda each: each.fence)
    assert counting(reversed(segments), last.fence) == count


def test_replacements_of_an_attempt_share_what_came_to_any_of_them() -> None:
    last = segment(1, 2, 0, 140, inside(130), ends=True)
    assert counting([FIRST, SECOND, REPLACED, last], last.fence) == [FIRST, SECOND, REPLACED, last]


def test_an_episode_has_the_input_that_counts() -> None:
    found = put_together([FIRST, SECOND, REPLACED, segment(2, 0, 0, BEGINS, WHOLE, ends=True)])
    assert isinstance(found, Episode) and found.blocks == (b"2.0.0",)

"""Which epochs of an archive are erased, what is left of them, and what of the others can still be repeated."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from clonos.protocol.archive.archive_segment import ArchiveSegment, EpochEnded
from clonos.protocol.archive.episode import Episode, Lacking, put_together
from clonos.protocol.archive.erasure import (
    ends_that_are_needed,
    erased,
    serves_upto,
    with_those_that_were_waited_for,
)
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber

EPOCHS = st.frozensets(st.integers(0, 12).map(Epoch))
SEGMENT = ArchiveSegment(
    origin=Origin.of(2, 1),
    epoch=Epoch(7),
    fence=Fence.of(1, 1),
    number=1,
    written_at=10,
    realtime=True,
    program="p",
    epoch_start=LogOffset(100),
    log_start=LogOffset(103),
    log=b"45",
    blocks=(b"what came",),
    ended=EpochEnded(LogOffset(105), OutputNumber(9)),
)
FIRST = replace(
    SEGMENT,
    number=0,
    written_at=9,
    log_start=LogOffset(100),
    log=b"123",
    blocks=(b"what came first",),
    ended=None,
)


@given(EPOCHS, EPOCHS)
def test_an_epoch_goes_with_the_one_whose_records_wait_for_it(
    marked: frozenset[Epoch], waits: frozenset[Epoch]
) -> None:
    found = with_those_that_were_waited_for(marked, waits)
    assert found >= marked
    for epoch in range(14):
        comes_with = epoch - 1 in found and epoch - 1 in waits
        assert (epoch in found) == (epoch in marked or comes_with)


@given(EPOCHS, EPOCHS)
def test_a_state_is_needed_where_what_is_kept_goes_on(
    archived: frozenset[Epoch], gone: frozenset[Epoch]
) -> None:
    needed = ends_that_are_needed(archived, gone)
    for epoch in archived:
        following = min((each for each in archived if each > epoch), default=None)
        wanted = epoch in gone and following is not None and following not in gone
        assert (epoch in needed) == wanted
    assert set(needed) <= archived


@given(st.integers(0, 12).map(Epoch), EPOCHS)
def test_a_state_serves_up_to_where_a_key_was_taken_from_it(state: Epoch, cleaned: frozenset[Epoch]) -> None:
    bound = serves_upto(state, cleaned)
    for epoch in range(14):
        taken_in_between = any(state <= each < epoch for each in cleaned)
        assert (bound is not None and epoch > bound) == taken_in_between


def test_of_an_erased_epoch_only_its_end_is_left() -> None:
    whole = put_together([FIRST, SEGMENT])
    assert isinstance(whole, Episode) and whole.blocks == (b"what came first", b"what came")
    left = erased(SEGMENT, 99)
    assert (left.log, left.blocks, left.erased_at) == (b"", (), 99)
    assert (left.ended, left.log_end) == (SEGMENT.ended, SEGMENT.log_end)
    for segments in ([left], [FIRST, left], [left, SEGMENT]):
        found = put_together(segments)
        assert isinstance(found, Lacking) and found.is_erased and "was erased" in found.why


def test_an_epoch_that_had_not_ended_is_erased_however_it_ends() -> None:
    left = erased(FIRST, 99)
    assert left.ended is None
    found = put_together([left, SEGMENT])
    assert isinstance(found, Lacking) and found.is_erased

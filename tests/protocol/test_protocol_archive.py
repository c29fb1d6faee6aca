"""What is archived of an epoch, how it is put together again, and what may go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from clonos.protocol.archive.archive_segment import ArchiveSegment, EpochEnded
from clonos.protocol.archive.episode import ArchivedInput, Episode, Lacking, consumed, put_together
from clonos.protocol.archive.retention import kept_behind
from clonos.protocol.archive.segment_cutter import InputSpool, SegmentCutter
from clonos.protocol.archive.stored_segment import StoredSegments
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.fence import Fence
from clonos.protocol.ids import LOG_BEGIN, NO_EPOCH, NO_OUTPUT, Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.roles.attach_request import AttachRequest

ORIGIN = Origin.of(2, 1)
BEGIN = LogOffset(100)


def chunk(channel: int, count: int) -> bytes:
    """A step that consumes records of one channel."""
    entries = bytearray()
    codec.append_order(entries, [(channel, count)])
    codec.append_sent(entries, 0, 0)
    return codec.seal(entries)


LOG = chunk(7, 3) + chunk(7, 2) + chunk(9, 1)


def segment(fence: int, number: int, start: int, end: int, **changes: object) -> ArchiveSegment:
    """With the log between two places of `LOG`."""
    given = {
        "origin": ORIGIN,
        "epoch": Epoch(4),
        "fence": Fence(fence),
        "number": number,
        "written_at": 1000 * number,
        "realtime": True,
        "program": "p",
        "epoch_start": BEGIN,
        "log_start": LogOffset(BEGIN + start),
        "log": LOG[start:end],
    }
    return ArchiveSegment(**{**given, **changes})  # type: ignore[arg-type]


END = EpochEnded(LogOffset(BEGIN + len(LOG)), OutputNumber(6))
PART = len(chunk(7, 3))


def test_segments_of_several_processes_are_one_episode() -> None:
    first = segment(1, 0, 0, PART, blocks=(b"a",))
    # The checkpoint of the first one did not become durable
    again = segment(2, 0, 0, PART, blocks=(b"a", b"b"))
    last = segment(2, 1, PART, len(LOG), blocks=(b"c",), ended=END)
    found = put_together([last, first, again])
    assert isinstance(found, Episode)
    assert found.log == LOG and found.ended == END and found.log_start == BEGIN
    assert found.blocks == (b"a", b"a", b"b", b"c")


def test_what_is_not_all_there_is_said() -> None:
    last = segment(2, 1, PART, len(LOG), ended=END)
    missing = put_together([last])
    assert isinstance(missing, Lacking) and f"behind log offset {BEGIN} " in missing.why
    running = put_together([segment(1, 0, 0, PART)])
    assert isinstance(running, Lacking) and running.is_open
    assert isinstance(put_together([]), Lacking)


def test_a_history_that_was_given_up_does_not_count() -> None:
    other = chunk(9, 4) + chunk(9, 4)
    given_up = segment(
        1, 0, 0, 0, log=other, ended=EpochEnded(LogOffset(BEGIN + len(other)), OutputNumber(1))
    )
    found = put_together([given_up, segment(2, 0, 0, len(LOG), ended=END)])
    assert isinstance(found, Episode) and found.log == LOG and found.ended == END


def test_what_was_lost_with_the_power_does_not_count_and_what_was_before_does() -> None:
    first = segment(1, 0, 0, PART)
    lost = segment(
        1, 1, PART, PART, log=chunk(9, 4), ended=EpochEnded(LogOffset(BEGIN + 40), OutputNumber(1))
    )
    found = put_together([first, lost, segment(2, 0, PART, len(LOG), ended=END)])
    assert isinstance(found, Episode) and found.log == LOG and found.ended == END


def episode(log: bytes) -> Episode:
    return Episode(ORIGIN, Epoch(4), True, "p", "", False, BEGIN, log, END, (), 0, Fence(1))


def test_each_record_counts_once_and_the_log_says_how_many_there_have_to_be() -> None:
    assert consumed(LOG, BEGIN) == {7: 5, 9: 1}
    archived = ArchivedInput()
    assert [archived.takes(7, position) for position in (1, 2, 3, 2, 3, 4, 8)] == [
        True,
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    lacking = archived.lacks(episode(LOG))
    assert lacking is not None and lacking.why.startswith("1 of the records")
    archived = ArchivedInput({7: 1}, waiting=[9])
    assert [archived.takes(7, position) for position in (1, 2, 3, 4, 5, 6)] == [False, *[True] * 5]
    assert archived.lacks(episode(LOG)) is None, "one waited when the state was taken"


def test_records_that_an_epoch_left_are_there_for_the_next() -> None:
    archived = ArchivedInput()
    for position in range(6):
        archived.takes(7, position)
    assert archived.lacks(episode(chunk(7, 2))) is None
    assert archived.lacks(episode(chunk(7, 4))) is None
    assert archived.lacks(episode(chunk(7, 1))) is not None


@pytest.mark.parametrize(
    ("states", "horizon", "behind"),
    [
        ([], 0, NO_EPOCH),
        ([1, 3, 5], 0, NO_EPOCH),  # epoch 1 is wanted, and no state is before it
        ([1, 3, 5], 250, 1),  # epoch 3 is wanted
        ([0, 1, 3, 5], 450, 3),  # epoch 5 is
        ([1, 3, 5], 99_999, 5),  # none is
    ],
)
def test_what_no_epoch_needs_that_is_to_be_kept_may_go(
    states: Sequence[int], horizon: int, behind: int
) -> None:
    segments = [StoredSegments(Epoch(epoch), Epoch(epoch), 100 * epoch, 10) for epoch in range(1, 7)]
    assert kept_behind(segments, map(Epoch, states), horizon) == behind


@pytest.mark.parametrize(
    ("written", "behind"),
    [
        ([900, 900, 900, 10, 900], 0),  # a host began with a clock that was far behind, which was put right
        ([900, 10], 0),
        ([100, 9000, 100, 100, 900], 4),  # and with one that was ahead
        ([100, 10, 100, 900, 900], 3),
        ([9000, 100], 0),  # as many say that all is wanted
        ([9000, 100, 100], 3),
    ],
)
def test_a_clock_that_was_wrong_for_a_while_drops_and_keeps_nothing(
    written: Sequence[int], behind: int
) -> None:
    segments = [
        StoredSegments(Epoch(epoch), Epoch(epoch), at, 10) for epoch, at in enumerate(written, start=1)
    ]
    assert kept_behind(segments, map(Epoch, range(len(written) + 1)), 500) == behind


@pytest.mark.parametrize(("most", "behind"), [(60, 0), (59, 1), (30, 3), (29, 4), (1, 5), (None, 0)])
def test_what_is_too_much_may_go_the_oldest_first(most: int | None, behind: int) -> None:
    segments = [
        StoredSegments(Epoch(epoch), Epoch(epoch), 100 * epoch, 5) for epoch in range(1, 7) for _ in range(2)
    ]
    assert kept_behind(segments, map(Epoch, range(7)), 0, most) == behind


class Spool(InputSpool):
    def __init__(self) -> None:
        self.blocks: list[bytes] = []

    def put(self, block: bytes) -> None:
        self.blocks.append(block)

    def take(self) -> list[list[bytes]]:
        blocks, self.blocks = self.blocks, []
        return [[block] for block in blocks] or [[]]

    def clear(self) -> None:
        self.blocks = []


def request(epoch: int, fence: int = 1) -> AttachRequest:
    return AttachRequest(
        ORIGIN, Epoch(epoch), Fence(fence), False, False, NO_OUTPUT, LOG_BEGIN, b"", realtime=True
    )


def snapshot(epoch: int, log_end: int) -> InstanceSnapshot:
    return InstanceSnapshot(
        epoch=Epoch(epoch),
        covered={},
        emitted=OutputNumber(5),
        log_offset=LogOffset(log_end),
        epoch_log_offset=BEGIN,
        boundary=Epoch(epoch),
        random_state=None,
        watermark=None,
    )


def test_a_checkpoint_cuts_what_has_come_since_the_one_before() -> None:
    cutter = SegmentCutter(ORIGIN, "p", Spool())
    cutter.restored(BEGIN, Epoch(3))
    # Known of an earlier life: it is repeated up to the first checkpoint, and beyond
    cutter.record(BEGIN, LOG)
    for block in (b"a", b"b"):
        cutter.take(Epoch(4), block)
    first = cutter.cut(request(4), snapshot(4, BEGIN + PART), written_at=1, is_end=False)
    assert [(each.blocks, each.log, each.ended) for each in first] == [
        ([b"a"], b"", None),
        ([b"b"], LOG[:PART], None),
    ]
    cutter.take(Epoch(4), b"c")
    (last,) = cutter.cut(request(4), snapshot(4, BEGIN + len(LOG)), written_at=2, is_end=True)
    assert (last.blocks, last.log, last.log_start) == ([b"c"], LOG[PART:], BEGIN + PART)
    assert last.ended == EpochEnded(LogOffset(BEGIN + len(LOG)), OutputNumber(5))
    assert [each.number for each in (*first, last)] == [0, 1, 2]


def test_lineage_goes_with_the_log_that_it_is_of() -> None:
    cutter = SegmentCutter(ORIGIN, "p", Spool(), lineage=True)
    cutter.restored(BEGIN, Epoch(3))
    stops = [LogOffset(BEGIN + PART * at) for at in (1, 2, 3)]
    cutter.record(BEGIN, LOG)
    for stop, entry in zip(stops, (b"1", b"2", b"3"), strict=True):
        cutter.note_lineage(stop, entry)
    cutter.take(Epoch(4), b"a")
    cutter.take(Epoch(4), b"b")
    first = cutter.cut(request(4), snapshot(4, stops[1]), written_at=1, is_end=False)
    assert [(each.log, each.lineage) for each in first] == [(b"", None), (LOG[: 2 * PART], b"12")]
    cutter.note_lineage(stops[2], b"4")  # a history was given up, and the step is another one
    (last,) = cutter.cut(request(4), snapshot(4, stops[2]), written_at=2, is_end=True)
    assert last.lineage == b"4"
    cutter.note_lineage(stops[1], b"2")
    cutter.restored(BEGIN, Epoch(3))
    cutter.note_lineage(stops[0], b"1")
    cutter.truncate(stops[0])  # a standby has followed an epoch that others have left
    cutter.note_lineage(stops[0], b"1")
    cutter.note_lineage(stops[1], b"2")
    cutter.record(stops[0], LOG[PART:])
    (only,) = cutter.cut(request(4), snapshot(4, stops[1]), written_at=3, is_end=False)
    assert (only.log, only.lineage) == (LOG[PART : 2 * PART], b"2")
    assert all(each.lineage is None for each in _cut_without_lineage())


def _cut_without_lineage() -> list[ArchiveSegment]:
    cutter = SegmentCutter(ORIGIN, "p", Spool())
    cutter.restored(BEGIN, Epoch(3))
    cutter.record(BEGIN, LOG)
    return cutter.cut(request(4), snapshot(4, BEGIN + len(LOG)), written_at=1, is_end=True)


def test_input_of_an_epoch_that_was_given_up_is_in_no_segment() -> None:
    cutter = SegmentCutter(ORIGIN, "p", Spool())
    cutter.take(Epoch(3), b"a")
    cutter.take(Epoch(4), b"b")
    (only,) = cutter.cut(request(4), snapshot(4, 0), written_at=1, is_end=True)
    assert only.blocks == [b"b"]
    cutter.take(Epoch(4), b"c")
    (empty,) = cutter.cut(request(5), snapshot(5, 0), written_at=1, is_end=True)
    assert empty.blocks == []


def test_a_history_that_was_given_up_harms_nothing() -> None:
    cutter = SegmentCutter(ORIGIN, "p", Spool())
    cutter.restored(BEGIN, Epoch(3))
    cutter.record(BEGIN, chunk(9, 4) + chunk(9, 4))
    cutter.record(BEGIN, LOG)
    (only,) = cutter.cut(request(4), snapshot(4, BEGIN + len(LOG)), written_at=1, is_end=True)
    assert only.log == LOG


def test_a_standby_leaves_nothing_of_an_epoch_that_has_committed() -> None:
    cutter = SegmentCutter(ORIGIN, "p", Spool())
    cutter.record(LOG_BEGIN, b"before")
    cutter.truncate(LogOffset(6))
    cutter.truncate(LogOffset(3))
    cutter.record(LogOffset(6), b"behind")
    begun = replace(snapshot(4, 12), epoch_log_offset=LogOffset(6))
    (only,) = cutter.cut(request(4), begun, written_at=1, is_end=False)
    assert (only.log_start, only.log) == (6, b"behind")


def test_a_standby_leaves_nothing_of_the_epoch_before_the_one_in_which_it_took_over() -> None:
    """Whoever drops or erases that looks into its own segments alone."""
    cutter = SegmentCutter(ORIGIN, "p", Spool(), lineage=True)
    cutter.record(LogOffset(BEGIN - 6), b"before" + LOG)
    cutter.note_lineage(BEGIN, b"0")
    cutter.note_lineage(LogOffset(BEGIN + PART), b"1")
    (only,) = cutter.cut(request(4), snapshot(4, BEGIN + PART), written_at=1, is_end=False)
    assert (only.log_start, only.log, only.lineage) == (BEGIN, LOG[:PART], b"1")

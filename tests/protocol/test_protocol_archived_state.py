"""Which archived states an instance goes on from, and which cannot be its own."""

from __future__ import annotations

import zlib
from dataclasses import replace
from random import Random

import pytest
from harness import ORIGIN as MINE, Bench

from clonos.errors import SnapshotCorrupt
from clonos.protocol.archive.archive_segment import ArchiveSegment, EpochEnded
from clonos.protocol.archive.archived_state import ArchivedState, EpochLog
from clonos.protocol.archive.episode import Episode, Lacking, put_together
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.line.snapshot_name import SnapshotName

ORIGIN, OTHER = Origin.of(2, 0), Origin.of(2, 1)
LOG = b"what was recorded"
END = LogOffset(100 + len(LOG))
GIVEN_UP, FIRST, OF_NONE = Fence.of(1, 1), Fence.of(1, 2), Fence.of(1, 3)


def episode(epoch: int, start: int, log: bytes, fence: Fence = FIRST) -> Episode:
    end = LogOffset(start + len(log))
    found = put_together(
        [
            ArchiveSegment(
                origin=ORIGIN,
                epoch=Epoch(epoch),
                fence=fence,
                number=0,
                written_at=0,
                realtime=False,
                program="p",
                epoch_start=LogOffset(start),
                log_start=LogOffset(start),
                log=log,
                ended=EpochEnded(end, OutputNumber(9)),
            )
        ]
    )
    assert isinstance(found, Episode)
    return found


def state(
    log: bytes = LOG, *, origin: Origin | None = None, fence: Fence = FIRST, final: bool = True
) -> ArchivedState:
    content = InstanceSnapshot(
        epoch=Epoch(3),
        covered={},
        emitted=OutputNumber(9),
        log_offset=LogOffset(100 + len(log)),
        epoch_log_offset=LogOffset(100),
        boundary=Epoch(3),
        random_state=None,
        watermark=None,
        log_digest=zlib.crc32(log),
        origin=origin,
    )
    return ArchivedState(SnapshotName(Epoch(3), fence, 0, final), content)


OWN = EpochLog.of(episode(3, 100, LOG), [GIVEN_UP, FIRST])
FOLLOWING = episode(4, END, b"more")
ANOTHER_LOG = bytes(reversed(LOG))


@pytest.mark.parametrize(
    ("found", "goes_on", "wrong"),
    [
        (state(), True, ""),
        (state(origin=ORIGIN), True, ""),
        (state(origin=OTHER), False, "it is of another instance, 2-1"),
        (state(ANOTHER_LOG), False, "it is not what the instance was there, by the log of that epoch"),
        (state(ANOTHER_LOG, fence=GIVEN_UP), False, ""),
        (
            state(ANOTHER_LOG, fence=OF_NONE),
            False,
            "it is not what the instance was there, by the log of that epoch",
        ),
        (state(fence=OF_NONE), True, ""),
        (state(LOG[:-1]), False, "it is not what the instance was there, by the log of that epoch"),
        (state(LOG + b"x", fence=GIVEN_UP), False, ""),
    ],
)
def test_a_state_at_the_end_of_an_epoch_agrees_with_its_log(
    found: ArchivedState, goes_on: bool, wrong: str
) -> None:
    """One of another process may be of a history that was given up."""
    assert found.goes_on(ORIGIN, OWN, FOLLOWING) == goes_on
    assert found.wrong(ORIGIN, OWN) == wrong


def test_where_its_epoch_is_gone_the_place_in_the_log_has_to_do() -> None:
    assert state().goes_on(ORIGIN, None, FOLLOWING) and state(ANOTHER_LOG).goes_on(ORIGIN, None, FOLLOWING)
    assert not state(LOG[1:]).goes_on(ORIGIN, None, FOLLOWING)
    assert not state(origin=OTHER).goes_on(ORIGIN, None, FOLLOWING)
    assert state(LOG[1:]).goes_on(ORIGIN, None, Lacking("it is damaged")), "that is said of the epoch"
    assert not state(LOG[1:]).wrong(ORIGIN, None)
    assert EpochLog.of(Lacking("it is damaged"), []) is None


def test_a_state_inside_an_epoch_is_on_the_way() -> None:
    own = episode(3, 100, LOG)
    for log, agrees in ((LOG[:5], True), (LOG, True), (ANOTHER_LOG[:5], False), (LOG + b"x", False)):
        inside = state(log, final=False)
        assert inside.goes_on(ORIGIN, OWN, own) == agrees
        assert (inside.wrong(ORIGIN, OWN) == "") == agrees
    assert not state(b"", origin=OTHER, final=False).goes_on(ORIGIN, OWN, own), (
        "where nothing is recorded yet"
    )


def test_a_state_of_a_version_that_kept_no_digest_is_taken() -> None:
    found = state()
    older = replace(found, content=replace(found.content, log_digest=0))
    assert older.goes_on(ORIGIN, OWN, FOLLOWING) and not older.wrong(ORIGIN, OWN)


def test_an_instance_does_not_begin_with_a_state_of_another() -> None:
    bench = Bench(Random(1))
    own = bench.instance.snapshot()
    assert own.origin == MINE
    Bench(Random(1)).restore(b"", own)
    Bench(Random(1)).restore(b"", replace(own, origin=None))
    with pytest.raises(
        SnapshotCorrupt, match=r"stands in the place of .*, and it is of another instance, 9-9"
    ):
        Bench(Random(1)).restore(b"", replace(own, origin=Origin.of(9, 9)))

"""The archive in checkpoint storage: bytes of a segment, names in order, programs; damage is said."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from clonos.errors import CheckpointMismatch, LogCorrupt
from clonos.protocol.archive.archive_segment import ArchiveSegment, Began, EpochEnded, RanOn
from clonos.protocol.archive.erasure import ErasurePlan, InstanceErasure
from clonos.protocol.archive.stored_segment import SegmentName
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.storage.archive import Archive
from clonos.storage.erasure_file import erasure_bytes, erasure_of
from clonos.storage.sealed import sealed
from clonos.storage.segment_codec import decode_segment, encode_segment

GOLDEN = Path(__file__).parent.parent / "golden" / "archive_segment_v1.bin"
WITH_LINEAGE = GOLDEN.with_name("archive_segment_v1_lineage.bin")
WITH_PROCESS = GOLDEN.with_name("archive_segment_v1_ran_on.bin")
WITH_BEGINNING = GOLDEN.with_name("archive_segment_v1_began.bin")
INSIDE = Began(LogOffset(1100))
RAN_ON = RanOn("worker-7", 4711, LogOffset(1240))
LINEAGE = GOLDEN.with_name("core_step_lineage_v1.bin")
ORIGIN = Origin.of(2, 1)
PROGRAM = hashlib.sha256(b"pickled").hexdigest()
SEGMENT = ArchiveSegment(
    origin=ORIGIN,
    epoch=Epoch(17),
    fence=Fence(1 << 64 | 5),
    number=3,
    written_at=1_764_410_000_000_000,
    realtime=True,
    program="ab" * 32,
    code="3.11:ab",
    intercept=True,
    epoch_start=LogOffset(1000),
    log_start=LogOffset(1234),
    log=b"what was recorded",
    blocks=(b"a block", b"", b"another one" * 20),
    ended=EpochEnded(LogOffset(1251), OutputNumber(99)),
)


def test_a_segment_comes_back() -> None:
    for segment in (
        SEGMENT,
        replace(SEGMENT, blocks=(), ended=None),
        replace(SEGMENT, blocks=(), log=b"", erased_at=1_764_420_000_000_000),
        replace(SEGMENT, lineage=b""),
        replace(SEGMENT, lineage=bytes(10_000)),
        replace(SEGMENT, ran_on=RAN_ON),
        replace(SEGMENT, began=Began()),
        replace(SEGMENT, began=INSIDE),
    ):
        assert decode_segment(encode_segment(segment), "it") == segment


def test_a_segment_of_the_first_version_is_read() -> None:
    """A difference here means a new version, not a new golden file. (What is compressed may have other bytes.)"""
    assert decode_segment(GOLDEN.read_bytes(), "golden") == SEGMENT
    lineage = LINEAGE.read_bytes()
    assert decode_segment(WITH_LINEAGE.read_bytes(), "golden") == replace(SEGMENT, lineage=lineage)
    assert decode_segment(WITH_PROCESS.read_bytes(), "golden") == replace(SEGMENT, ran_on=RAN_ON)
    assert decode_segment(WITH_BEGINNING.read_bytes(), "golden") == replace(SEGMENT, began=INSIDE)


def test_what_was_not_recorded_takes_no_room() -> None:
    """Such a segment is what it was before lineage could be recorded."""
    assert len(encode_segment(replace(SEGMENT, lineage=b"entries"))) > len(encode_segment(SEGMENT))
    assert b"lineage" not in encode_segment(SEGMENT)
    assert b"ran_on" not in encode_segment(SEGMENT)
    assert b"began" not in encode_segment(SEGMENT)


def test_damage_is_said() -> None:
    raw, rng = encode_segment(replace(SEGMENT, lineage=LINEAGE.read_bytes())), Random(1)
    for _ in range(300):
        damaged = bytearray(raw)
        at = rng.randrange(len(raw))
        damaged[at] ^= rng.randrange(1, 256)
        with pytest.raises(LogCorrupt, match="it"):
            decode_segment(bytes(damaged), "it")
        with pytest.raises(LogCorrupt, match="it"):
            decode_segment(raw[:at], "it")


def test_segments_are_found_in_order(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    assert archive.segments(ORIGIN).names() == {}
    written = [
        replace(SEGMENT, epoch=Epoch(epoch), written_at=at, number=number)
        for epoch, at, number in ((2, 30, 0), (1, 20, 1), (1, 10, 0), (11, 40, 0))
    ]
    sizes = [archive.segments(ORIGIN).write(segment) for segment in written]
    assert list(archive.segments(ORIGIN).names()) == [
        SegmentName(Epoch(epoch), at, SEGMENT.fence, number)
        for epoch, at, number in ((1, 10, 0), (1, 20, 1), (2, 30, 0), (11, 40, 0))
    ]
    assert sum(archive.segments(ORIGIN).names().values()) == sum(sizes)
    assert archive.segments(Origin.of(2, 0)).names() == {}
    names = list(archive.segments(ORIGIN).names())
    assert list(archive.segments(ORIGIN).read(names)) == [written[2], written[1], written[0], written[3]]
    archive.segments(ORIGIN).drop_upto(Epoch(1))
    assert list(archive.segments(ORIGIN).read(names)) == [written[0], written[3]], (
        "those that are gone are passed over"
    )


def test_a_program_is_kept_once_and_checked(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    assert archive.program(PROGRAM) is None and not archive.has_program(PROGRAM)
    archive.write_program(PROGRAM, b"pickled")
    assert archive.program(PROGRAM) == b"pickled" and archive.has_program(PROGRAM)
    path = tmp_path / "clonos" / "archive" / "programs" / f"{PROGRAM}.program"
    path.write_bytes(path.read_bytes()[:-1] + b"D")
    with pytest.raises(LogCorrupt, match="programs"):
        archive.program(PROGRAM)
    archive.write_program(PROGRAM, b"of another operator")
    with pytest.raises(LogCorrupt, match="has another program"):
        archive.program(PROGRAM)


def test_a_segment_in_the_place_of_another_is_told(tmp_path: Path) -> None:
    """Nothing but its content says whose it is, where it is not encrypted."""
    archive = Archive(str(tmp_path))
    other = Origin.of(2, 0)
    archive.segments(ORIGIN).write(SEGMENT)
    archive.segments(other).write(replace(SEGMENT, origin=other))
    folder = tmp_path / "clonos" / "archive" / "segments" / "2"
    (path,) = (folder / "1").iterdir()
    raw = path.read_bytes()
    (name,) = archive.segments(ORIGIN).names()
    path.write_bytes((folder / "0" / path.name).read_bytes())
    with pytest.raises(LogCorrupt, match=r"has another segment: .* of 2/0"):
        list(archive.segments(ORIGIN).read([name]))
    for changed in (name._replace(epoch=Epoch(18)), name._replace(number=4)):
        path.with_name(str(changed)).write_bytes(raw)
        with pytest.raises(LogCorrupt, match="has another segment"):
            list(archive.segments(ORIGIN).read([changed]))


PLAN = ErasurePlan(
    (
        InstanceErasure(
            ORIGIN,
            Epoch(9),
            (Epoch(3),),
            (SnapshotName(Epoch(5), Fence.of(2, 1), 64, True),),
            (SnapshotName(Epoch(3), Fence.of(2, 1), 32, False),),
            (Epoch(3), Epoch(4)),
        ),
        InstanceErasure(Origin.of(3, 0), epochs=(Epoch(3),)),
    ),
    "see",
    b"salt",
    b"digest",
    Fence.of(7),
    2,
)
OLDER_ERASURE = GOLDEN.with_name("archive_erasure_v1.json")
ERASURE = GOLDEN.with_name("archive_erasure_v2.json")


def test_what_is_to_be_erased_is_kept_until_it_is(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    assert archive.erasure() is None
    archive.write_erasure(PLAN)
    assert Archive(str(tmp_path)).erasure() == PLAN
    path = tmp_path / "clonos" / "archive" / "erasure.json"
    path.write_bytes(path.read_bytes().replace(b'"see"', b'"saw"'))
    with pytest.raises(CheckpointMismatch, match=r"checksum.* Remove it, and run"):
        archive.erasure()
    archive.end_erasure()
    assert Archive(str(tmp_path)).erasure() is None


def test_what_is_to_be_erased_is_read_of_each_version() -> None:
    """A difference here means a new version, not a new golden file."""
    assert erasure_bytes(PLAN) == ERASURE.read_bytes()
    assert erasure_of(ERASURE.read_bytes(), "golden") == PLAN
    older = erasure_of(OLDER_ERASURE.read_bytes(), "golden")
    assert older == ErasurePlan(
        (
            InstanceErasure(ORIGIN, epochs=(Epoch(3), Epoch(5))),
            InstanceErasure(Origin.of(3, 0), epochs=(Epoch(3),)),
        )
    )
    for body in ({"parts": [[1]]}, {}, {"parts": 3}):
        with pytest.raises(CheckpointMismatch, match="malformed"):
            erasure_of(sealed(body), "it")
    with pytest.raises(CheckpointMismatch, match="version 3; this library reads up to 2"):
        erasure_of(sealed({}, 3), "it")

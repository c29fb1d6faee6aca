"""Segments of an archive in files of their own and in files with many: nothing is lost, doubled or comes back, whatever
was cut short; damage is said of what it concerns."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from clonos.errors import LogCorrupt, StorageUnavailable
from clonos.protocol.archive.archive_segment import ArchiveSegment, EpochEnded
from clonos.protocol.archive.compaction import FEWEST
from clonos.protocol.archive.erasure import erased
from clonos.protocol.archive.stored_segment import SegmentName
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.storage.archive import Archive
from clonos.storage.archive_keys import NO_KEYS, ArchiveKeys, read_keys
from clonos.storage.compacted_segments import CompactedName, compacted, read_index
from clonos.storage.folder import Folder
from clonos.storage.segment_files import SegmentFiles

GOLDEN = Path(__file__).parent.parent / "golden" / "archive_segments_v1.bin"
ORIGIN = Origin.of(2, 1)
FENCE = Fence(1 << 64 | 5)
COUNT = FEWEST + 10


def segment(epoch: int, number: int = 0) -> ArchiveSegment:
    return ArchiveSegment(
        origin=ORIGIN,
        epoch=Epoch(epoch),
        fence=FENCE,
        number=number,
        written_at=1_764_410_000_000_000 + epoch,
        realtime=False,
        program="ab" * 32,
        epoch_start=LogOffset(10 * epoch),
        log_start=LogOffset(10 * epoch),
        log=f"recorded in {epoch}.".encode(),
        blocks=(f"input of {epoch}, number {number}".encode(),),
        ended=EpochEnded(LogOffset(10 * epoch + 10), OutputNumber(epoch)),
    )


SEGMENTS = [segment(epoch) for epoch in range(COUNT)]


def files(tmp_path: Path, keys: ArchiveKeys = NO_KEYS) -> SegmentFiles:
    return Archive(str(tmp_path), keys=keys).segments(ORIGIN)


def written(tmp_path: Path, keys: ArchiveKeys = NO_KEYS) -> SegmentFiles:
    Archive(str(tmp_path), keys=keys).begin_writing()
    found = files(tmp_path, keys)
    for each in SEGMENTS:
        found.write(each)
    return found


def directory(tmp_path: Path) -> Path:
    return tmp_path / "clonos" / "archive" / "segments" / "2" / "1"


def stored(tmp_path: Path) -> list[str]:
    return sorted(path.suffix for path in directory(tmp_path).iterdir())


def all_of(found: SegmentFiles) -> list[ArchiveSegment]:
    return list(found.read(found.names()))


@pytest.fixture(params=["plain", "encrypted"])
def keys(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ArchiveKeys:
    if request.param == "plain":
        return NO_KEYS
    file = tmp_path_factory.mktemp("keys") / "key"
    file.write_text("q" * 43 + "=\n")
    return read_keys(str(file))


class Stopped(Exception):
    pass


@pytest.fixture
def stops_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """The process ends before a change of the storage, when so many have been made."""

    def stops(changes: int) -> None:
        left = iter(range(changes))

        def until_then(method: Callable[..., None]) -> Callable[..., None]:
            def changed(folder: Folder, *what: object) -> None:
                if next(left, None) is None:
                    raise Stopped
                method(folder, *what)

            return changed

        monkeypatch.setattr(Folder, "write", until_then(original[0]))
        monkeypatch.setattr(Folder, "delete", until_then(original[1]))

    original = Folder.write, Folder.delete
    yield stops
    monkeypatch.undo()


def test_they_are_the_same_together(tmp_path: Path, keys: ArchiveKeys) -> None:
    found = written(tmp_path, keys)
    before = found.names()
    found.compact(Epoch(COUNT - 3), FENCE)
    assert len(stored(tmp_path)) == 1 + 2
    for each in (found, files(tmp_path, keys)):
        assert each.names() == before and list(each.names()) == sorted(before)
        assert all_of(each) == SEGMENTS
        assert list(each.read([SegmentName(Epoch(9), SEGMENTS[9].written_at, FENCE, 0)])) == [SEGMENTS[9]]
    found.compact(Epoch(COUNT), FENCE)
    assert len(stored(tmp_path)) == 1 + 2, "few wait"


def test_a_reader_goes_on_when_they_have_gone_together(tmp_path: Path, keys: ArchiveKeys) -> None:
    written(tmp_path, keys)
    reader = files(tmp_path, keys)
    names = list(reader.names())
    read = reader.read(names)
    assert [next(read), next(read)] == SEGMENTS[:2]
    files(tmp_path, keys).compact(Epoch(COUNT), FENCE)
    assert list(read) == SEGMENTS[2:]
    reader = files(tmp_path, keys)
    assert list(reader.names()) == names
    files(tmp_path, keys).replace(names[:5], [])
    assert list(reader.read(names[:10])) == SEGMENTS[5:10], "also when they are written anew"


def test_whatever_is_cut_short_is_there_once(
    tmp_path: Path, stops_behind: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for changes in (0, 1, 2, 10, FEWEST - 1, COUNT):
        place = tmp_path / str(changes)
        written(place)
        stops_behind(changes)
        with pytest.raises(Stopped):
            files(place).compact(Epoch(COUNT), FENCE)
        stops_behind(1_000_000)
        assert all_of(files(place)) == SEGMENTS
        files(place).compact(Epoch(COUNT), FENCE)
        assert all_of(files(place)) == SEGMENTS


def test_whatever_is_cut_short_is_counted_once_and_tidied_up(
    tmp_path: Path, keys: ArchiveKeys, stops_behind: Callable[[int], None]
) -> None:
    """A process that was killed has left files of segments beside the one that they are all in."""
    whole = written(tmp_path / "whole", keys)
    whole.compact(Epoch(COUNT), FENCE)
    size = sum(each.size for each in whole.stored())
    for changes in (1, 2, 10, COUNT):
        place = tmp_path / str(changes)
        written(place, keys)
        stops_behind(changes)
        with pytest.raises(Stopped):
            files(place, keys).compact(Epoch(COUNT), FENCE)
        stops_behind(1_000_000)
        assert len(stored(place)) == 1 + COUNT - (changes - 1)
        assert sum(each.size for each in files(place, keys).stored()) == size
        assert len(stored(place)) == 1 + COUNT - (changes - 1), "nothing is changed by counting"
        files(place, keys).compact(Epoch(COUNT), FENCE)
        assert len(stored(place)) == 1 and all_of(files(place, keys)) == SEGMENTS


def test_a_file_of_its_own_stays_where_the_one_with_others_is_not_the_same(
    tmp_path: Path, stops_behind: Callable[[int], None]
) -> None:
    """One is damaged, or was changed since, as by an erasure: it is not known which of them is to go."""
    written(tmp_path)
    stops_behind(1)
    with pytest.raises(Stopped):
        files(tmp_path).compact(Epoch(COUNT), FENCE)
    stops_behind(1_000_000)
    singles, (several,) = (
        sorted(directory(tmp_path).glob("*.segment")),
        directory(tmp_path).glob("*.segments"),
    )
    raw = several.read_bytes()
    places = read_index(raw, "it")
    changed = bytearray(raw)
    changed[next(place.start for name, place in places.items() if name.epoch == 4) + 20] ^= 1
    several.write_bytes(changed)
    singles[7].write_bytes(singles[7].read_bytes()[:-1])
    files(tmp_path).compact(Epoch(COUNT), FENCE)
    assert sorted(directory(tmp_path).glob("*.segment")) == [singles[4], singles[7]]
    several.write_bytes(raw[:100])
    files(tmp_path).compact(Epoch(COUNT), FENCE)
    assert sorted(directory(tmp_path).glob("*.segment")) == [singles[4], singles[7]]


@pytest.mark.parametrize("cut", [0, 5, FEWEST + 2, 1_000_000])
def test_what_is_erased_does_not_come_back(
    tmp_path: Path, stops_behind: Callable[[int], None], cut: int
) -> None:
    """Whenever the compaction was cut short before, and whenever the erasure is, which is gone on with then."""
    gone, left = [7, 8, 30], erased(SEGMENTS[8], 1)
    for changes in range(12):
        place = tmp_path / str(changes)
        written(place)
        stops_behind(cut)
        with suppress(Stopped):
            files(place).compact(Epoch(COUNT), FENCE)
        for at in (changes, 1_000_000):
            stops_behind(at)
            found = files(place)
            names = [name for name in found.names() if name.epoch in gone]
            with suppress(Stopped):
                found.replace(names, [left])
            stops_behind(1_000_000)
            # A query that goes on meanwhile brings nothing back.
            files(place).compact(Epoch(COUNT), FENCE)
        rest = [each for each in SEGMENTS if each.epoch not in gone]
        assert sorted(all_of(files(place)), key=lambda each: each.epoch) == sorted(
            [*rest, left], key=lambda each: each.epoch
        )
        content = b"".join(path.read_bytes() for path in directory(place).iterdir())
        assert b"recorded in 9." in content
        assert not any(b"recorded in %d." % each in content for each in (7, 8, 30))


def test_what_is_in_several_files_is_erased_from_all(tmp_path: Path) -> None:
    """As two writers may leave it that put the same segments together, and were cut short."""
    written(tmp_path).compact(Epoch(COUNT), FENCE)
    other = tmp_path / "other"
    written(other).compact(Epoch(COUNT), Fence(FENCE + 1))
    (path,) = directory(other).iterdir()
    path.rename(directory(tmp_path) / path.name)
    assert len(stored(tmp_path)) == 2 and all_of(files(tmp_path)) == SEGMENTS
    found = files(tmp_path)
    found.replace([name for name in found.names() if name.epoch == 9], [])
    content = b"".join(path.read_bytes() for path in directory(tmp_path).iterdir())
    assert b"recorded in 9." not in content and b"recorded in 8." in content
    assert all_of(files(tmp_path)) == SEGMENTS[:9] + SEGMENTS[10:]


def test_files_go_when_nothing_of_them_is_wanted(tmp_path: Path) -> None:
    found = written(tmp_path)
    found.compact(Epoch(COUNT - 3), FENCE)
    assert sorted((each.first, each.last) for each in found.stored()) == [
        (0, COUNT - 3),
        (COUNT - 2, COUNT - 2),
        (COUNT - 1, COUNT - 1),
    ]
    assert sum(each.size for each in found.stored()) == sum(
        path.stat().st_size for path in directory(tmp_path).iterdir()
    )
    found.drop_upto(Epoch(COUNT - 4))
    assert all_of(found) == SEGMENTS
    found.drop_upto(Epoch(COUNT - 2))
    assert all_of(found) == SEGMENTS[-1:]


def test_damage_is_said_of_what_it_concerns(tmp_path: Path) -> None:
    written(tmp_path).compact(Epoch(COUNT - 3), FENCE)
    (path,) = directory(tmp_path).glob("*.segments")
    raw = path.read_bytes()
    name = CompactedName.parse(path.name)
    assert name is not None
    places = read_index(raw, "it")
    begins = min(place.start for place in places.values())
    rng = Random(3)
    for _ in range(60):
        at = rng.randrange(len(raw))
        damaged = bytearray(raw)
        damaged[at] ^= rng.randrange(1, 256)
        path.write_bytes(damaged)
        hit = [each.epoch for each, place in places.items() if place.start <= at < place.start + place.size]
        found = files(tmp_path)
        names = list(found.names())
        assert sorted({each.epoch for each in names}) == list(range(COUNT)), "all that there are"
        for each in names:
            is_hit = each.epoch in hit if at >= begins else each.epoch in name.epochs
            if is_hit:
                with pytest.raises(LogCorrupt, match="segments"):
                    list(found.read([each]))
            else:
                assert list(found.read([each])) == [SEGMENTS[each.epoch]]
        assert bool(found.unreadable([Epoch(5)])) == (at < begins)
        assert not found.unreadable([Epoch(COUNT - 1)])
    for at in (0, 3, begins - 1, begins + 10, len(raw) - 1):
        path.write_bytes(raw[:at])
        with pytest.raises(LogCorrupt, match="segments"):
            all_of(files(tmp_path))
    path.write_bytes(raw[:100])
    files(tmp_path).replace([each for each in files(tmp_path).names() if each.epoch == 3], [])
    assert all_of(files(tmp_path)) == SEGMENTS[-2:]


def test_what_cannot_be_read_stays_as_it_is(tmp_path: Path, keys: ArchiveKeys) -> None:
    found = written(tmp_path, keys)
    path = sorted(directory(tmp_path).iterdir())[4]
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    found.compact(Epoch(COUNT), FENCE)
    names = list(found.names())
    with pytest.raises(LogCorrupt):
        list(found.read([names[4]]))
    assert list(found.read(names[:4] + names[5:])) == SEGMENTS[:4] + SEGMENTS[5:]


def test_a_storage_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = written(tmp_path)

    def is_full(*_: object) -> None:
        raise StorageUnavailable("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(Folder, "write", is_full)
        with pytest.raises(StorageUnavailable):
            found.compact(Epoch(COUNT), FENCE)
    assert all_of(found) == SEGMENTS


def test_a_file_of_the_first_version_is_read() -> None:
    """A difference here means a new version, not a new golden file."""
    parts = [
        (SegmentName(Epoch(epoch), 1000 + epoch, Fence(1 << 64 | epoch), 2), b"segment " * epoch)
        for epoch in (3, 1, 7)
    ]
    raw = GOLDEN.read_bytes()
    name, content = compacted(parts, FENCE)
    assert content == raw
    assert name == CompactedName(Epoch(1), Epoch(7), 1007, FENCE, name.digest)
    assert CompactedName.parse(str(name)) == name
    assert [(each, place.of(raw)) for each, place in read_index(raw, "golden").items()] == sorted(parts)
    newer = bytearray(raw)
    struct.pack_into("<B", newer, 8, 2)
    with pytest.raises(LogCorrupt, match="version 2"):
        read_index(bytes(newer), "newer")


def test_what_is_compacted_is_not_double_when_it_comes_late(tmp_path: Path) -> None:
    found = written(tmp_path)
    found.compact(Epoch(COUNT), FENCE)
    late = replace(segment(5, number=1), fence=Fence(FENCE + 1))
    found.write(late)
    found.compact(Epoch(COUNT), FENCE)
    assert stored(tmp_path) == [".segment", ".segments"]
    assert all_of(found) == [*SEGMENTS[:6], late, *SEGMENTS[6:]]

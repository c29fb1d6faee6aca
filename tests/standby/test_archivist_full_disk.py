"""An archive on a full disk: what is due to be dropped goes before anything is written, so that there is room again."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos.errors import StorageUnavailable
from clonos.protocol.archive.compaction import FEWEST
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.fence import Fence
from clonos.protocol.ids import LOG_BEGIN, NO_OUTPUT, Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.storage.archive import Archive
from clonos.storage.host_directory import HostDirectory
from clonos.storage.keyed_state import KeyedState
from clonos_standby.replica import archivist as module
from clonos_standby.replica.archivist import Archivist

ORIGIN = Origin.of(2, 0)
KEEP = 3600.0


class Clock:
    """A host's, and the steady one."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def __call__(self) -> tuple[int, float]:
        return int(self.seconds * 1_000_000), self.seconds


class Disk:
    """Refuses what is written while it is full: until something is removed that `counts`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.counts = ""
        for method in ("write", "create", "put"):
            monkeypatch.setattr(HostDirectory, method, self._refusing(getattr(HostDirectory, method)))
        real = HostDirectory.delete

        def delete(directory: HostDirectory, name: str) -> None:
            real(directory, name)
            self.is_full = self.is_full and self.counts not in name

        monkeypatch.setattr(HostDirectory, "delete", delete)

    def _refusing(self, real: object) -> object:
        def written(directory: HostDirectory, *what: object) -> object:
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(directory, *what)  # type: ignore[operator]

        return written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "_clocks", found)
    monkeypatch.setattr(module.time, "time_ns", lambda: int(found.seconds * 1e9))
    return found


@pytest.fixture
def state(tmp_path: Path) -> Iterator[KeyedState]:
    found = KeyedState(str(tmp_path / "state"))
    found.save(b"k", {"n": 1})
    yield found
    found.close()


class Process:
    """One that leaves epochs: of each its end, and a state where that is due."""

    def __init__(self, tmp_path: Path, fence: int, state: KeyedState) -> None:
        self.fence = Fence(fence)
        self.state = state
        data = str(tmp_path / f"data-{fence}")
        self.leaves = Archivist(str(tmp_path / "checkpoint"), data, ORIGIN, b"the program", KEEP)

    def begin(self, epoch: int) -> None:
        request = AttachRequest(
            ORIGIN, Epoch(epoch), self.fence, False, False, NO_OUTPUT, LOG_BEGIN, b"", realtime=False
        )
        offset = LogOffset(10 * epoch)
        content = InstanceSnapshot(
            Epoch(epoch), {}, OutputNumber(epoch), offset, offset, Epoch(epoch), None, None
        )
        self.leaves.cut(request, content, own_from=LOG_BEGIN, is_end=True)
        name = SnapshotName(Epoch(epoch), self.fence, 0, True)
        self.leaves.keep_state(name, self.state, lambda: b"meta", offset, epoch)
        if self.leaves._storing is not None:
            self.leaves._storing.join()

    def end(self, epoch: int) -> None:
        self.begin(epoch)
        self.leaves.write_due()


def there(tmp_path: Path) -> tuple[list[int], list[int]]:
    """The epochs, and those with states."""
    archive = Archive(str(tmp_path / "checkpoint"))
    states = archive.states(ORIGIN).manifests()
    return [name.epoch for name in archive.segments(ORIGIN).names()], [name.epoch for name in states]


@pytest.mark.parametrize("is_another", [False, True], ids=["the-same-process", "another-process"])
@pytest.mark.parametrize("counts", [".segment", ""], ids=["segments", "anything"])
def test_what_is_due_to_go_makes_room(
    tmp_path: Path, clock: Clock, disk: Disk, state: KeyedState, is_another: bool, counts: str
) -> None:
    for epoch in range(4):  # a process each, so that there is a state at each end
        process = Process(tmp_path, 5 + epoch, state)
        process.end(epoch)
        clock.seconds += KEEP * 0.4
    assert there(tmp_path) == ([0, 1, 2, 3], [0, 1, 2, 3])
    process = Process(tmp_path, 9, state) if is_another else process
    disk.is_full, disk.counts = True, counts
    process.end(4)
    assert not disk.is_full
    first = 1 if is_another else 2  # by a clock that has not settled, what was written last is young
    states = [*range(first - 1, 4), 4] if is_another else [*range(first - 1, 4)]
    assert there(tmp_path) == ([*range(first, 5)], states), "what is kept can be repeated"


def test_what_is_needed_is_not_dropped_for_room(
    tmp_path: Path, clock: Clock, disk: Disk, state: KeyedState
) -> None:
    """Nothing is due: what is to be written waits for room, and is written when there is some."""
    process = Process(tmp_path, 5, state)
    for epoch in range(3):
        process.end(epoch)
    disk.is_full, before = True, there(tmp_path)
    process.begin(3)
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="the disk is full"):
            process.leaves.write_due()
    assert there(tmp_path) == before == ([0, 1, 2], [0])
    disk.is_full = False
    process.leaves.write_due()
    assert there(tmp_path) == ([0, 1, 2, 3], [0])


def test_a_state_for_which_there_is_no_room_leaves_nothing_here(
    tmp_path: Path, clock: Clock, disk: Disk, state: KeyedState
) -> None:
    process = Process(tmp_path, 5, state)
    disk.is_full, disk.counts = True, "nothing"
    process.begin(0)
    assert not list((tmp_path / "data-5" / "archive" / "2-0").iterdir())
    assert there(tmp_path) == ([], [])


def test_leftovers_of_a_compaction_make_room(
    tmp_path: Path, clock: Clock, disk: Disk, state: KeyedState
) -> None:
    process = Process(tmp_path, 5, state)
    for epoch in range(FEWEST + 1):
        process.end(epoch)
    archive = Archive(str(tmp_path / "checkpoint"))
    disk.counts = ".segment"
    folder = tmp_path / "checkpoint" / "clonos" / "archive" / "segments" / "2" / "0"
    singles = {path: path.read_bytes() for path in folder.glob("*.segment")}
    archive.segments(ORIGIN).compact(Epoch(FEWEST), Fence(5))
    for path, raw in singles.items():
        path.write_bytes(raw)
    disk.is_full = True
    process.end(FEWEST + 1)
    assert len(list(folder.iterdir())) == 2 and len(there(tmp_path)[0]) == FEWEST + 2

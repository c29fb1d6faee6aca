"""Snapshots inside an epoch that is run again: which count, which stay, and the line that names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clonos.errors import CheckpointMismatch, Fenced, StorageUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.line.recovery_line import RecoveryLine, Resume
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.storage.keyed_state import KeyedState
from clonos.storage.manifest import Manifest
from clonos.storage.recovery_line_file import newest_line, read_line, write_line
from clonos.storage.snapshots import SnapshotStore

FIRST, SECOND, THIRD = (Fence.of(generation, generation) for generation in (1, 2, 3))


class Place:
    """The snapshots of one instance, and its state."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.state = KeyedState(str(base / "state"))

    def store(self, fence: int) -> SnapshotStore:
        return SnapshotStore(
            str(self._base / "checkpoint"), fence=fence, pending=str(self._base / f"pending-{fence}")
        )

    def take(
        self, store: SnapshotStore, sequence: int, *, epoch: int = 3, final: bool = False, meta: bytes = b""
    ) -> Manifest:
        self.state.put(b"key", [epoch, sequence])
        return store.finish(store.begin(self.state, meta, epoch=epoch, sequence=sequence, final=final))

    def content(self, store: SnapshotStore, manifest: Manifest) -> Any:
        path = str(self._base / f"restored-{manifest.fence}-{manifest.sequence}")
        store.restore(manifest, path)
        state = KeyedState(path)
        try:
            return state.get(b"key")
        finally:
            state.close()


@pytest.fixture
def place(tmp_path: Path) -> Any:
    place = Place(tmp_path)
    yield place
    place.state.close()


def test_an_attempt_begins_with_what_it_resumed_as_its_own(place: Place) -> None:
    first = place.store(FIRST)
    end = place.take(first, 0, epoch=2, final=True)
    taken = [place.take(first, sequence) for sequence in (1, 2, 3)]
    assert first.inside(3) == taken[1:]
    second = place.store(SECOND)
    second.claim()
    assert second.inside(3) == [], "what another attempt did does not count"
    own = second.resume(taken[1], b"again")
    second.discard_from(3)
    assert [str(name) for name in second.manifests()] == [str(end.name), str(own.name)]
    assert str(own.name).endswith(f"{SECOND.text}-{2:020d}-from.manifest")
    assert (own.meta, own.files) == (b"again", taken[1].files)
    again = place.store(SECOND + 1)
    assert again.resumed(3, again.fence) == again.beginning(3, again.fence) == own
    assert again.latest(epoch=3, final_only=True) == own
    assert again.resume(own, b"") == own, "its replacement has nothing to write again"
    assert place.content(again, own) == [3, 2]
    assert again.beginning(4, again.fence) == end
    third = place.store(THIRD)
    assert third.beginning(3, third.fence) == end
    assert third.named(str(own.name)) == own
    assert third.named(str(taken[2].name)) is None


def test_where_an_attempt_resumed_stays_until_the_epoch_is_over(place: Place) -> None:
    own = place.store(FIRST)
    begun = own.resume(place.take(place.store(FIRST - 1), 1), b"")
    for sequence in range(2, 80):
        place.take(own, sequence)
    names = own.manifests()
    assert begun.name in names
    assert len(names) <= 7
    assert [one.name for one in own.inside(3)] == names
    place.take(own, 80, final=True)
    own.forget(before_epoch=4)
    assert [name.final for name in own.manifests()] == [True]


def test_an_attempt_that_was_overtaken_cannot_resume(place: Place) -> None:
    first, second = place.store(FIRST), place.store(SECOND)
    taken = place.take(first, 1)
    second.claim()
    with pytest.raises(Fenced):
        first.resume(taken, b"")


def test_names_say_where_an_attempt_began() -> None:
    name = SnapshotName(3, FIRST, 7, final=False, resumed=True)
    assert SnapshotName.parse(str(name)) == name


LINE = RecoveryLine(
    4,
    7,
    {Origin(2, 1): Resume("a name", {66: 12, 2: 5}), Origin(3, 0): Resume("another")},
    {Origin(2, 1): 100, Origin(3, 0): 0},
    {Origin(2, 1): "how it stood", Origin(3, 0): "as well"},
    needs={Origin(2, 0): 250},
)


def test_a_line_comes_back_as_it_was(tmp_path: Path) -> None:
    assert newest_line(str(tmp_path)) is None
    for line in (LINE, RecoveryLine(5, 0), RecoveryLine(6, 0, bases={})):
        write_line(str(tmp_path), line)
        assert read_line(str(tmp_path), line.generation) == newest_line(str(tmp_path)) == line


def test_a_line_from_before_starts_said_how_instances_stood(tmp_path: Path) -> None:
    """As 0.1.0 wrote it: then every snapshot counts."""
    path = tmp_path / "clonos" / "lines" / f"{3:020d}"
    path.parent.mkdir(parents=True)
    path.write_text(
        '{"version": 1, "crc32": 1759590592, "body": '
        '{"generation": 3, "epoch": 7, "resumes": [], "stable": [[2, 1, 100]]}}'
    )
    line = read_line(str(tmp_path), 3)
    assert line == RecoveryLine(3, 7, truncation_points={Origin(2, 1): 100})
    assert line.since(Origin(2, 1)) is None


def test_a_start_does_not_touch_the_line_of_another(tmp_path: Path) -> None:
    write_line(str(tmp_path), LINE)
    write_line(str(tmp_path), RecoveryLine(5, 8))
    assert read_line(str(tmp_path), 4) == LINE
    write_line(str(tmp_path), RecoveryLine(8, 8))
    assert sorted(path.name for path in (tmp_path / "clonos" / "lines").iterdir()) == [
        f"{5:020d}",
        f"{8:020d}",
    ]


def test_no_other_line_is_taken_for_it(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="cannot be read"):
        read_line(str(tmp_path), 4)
    write_line(str(tmp_path), LINE)
    path = tmp_path / "clonos" / "lines" / f"{4:020d}"
    (path.parent / f"{5:020d}").write_bytes(path.read_bytes())
    with pytest.raises(StorageUnavailable, match="start 4 of the query, not 5"):
        read_line(str(tmp_path), 5)
    path.write_text(path.read_text().replace("12", "13"))
    with pytest.raises(CheckpointMismatch, match="checksum") as raised:
        read_line(str(tmp_path), 4)
    assert not raised.value.retryable
    assert "Restore" in str(raised.value)

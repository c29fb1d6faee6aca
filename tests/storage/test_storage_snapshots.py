"""Snapshots: what was begun comes back exactly or not at all, whatever dies on the way or writes beside it."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from pyarrow import fs

from clonos.errors import Fenced, SnapshotCorrupt, StateError, StorageUnavailable
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.storage.database import MIB
from clonos.storage.folder import Folder, Storage
from clonos.storage.keyed_state import KeyedState
from clonos.storage.manifest import Manifest
from clonos.storage.object_prefix import ObjectPrefix
from clonos.storage.object_store import ObjectStore
from clonos.storage.snapshots import SnapshotStore
from clonos.storage.timers import TimerQueue


@dataclass
class Host:
    """One place with checkpoint storage; `store` is an incarnation, `state` a fresh keyed state."""

    root: Path
    location: str
    filesystem: Storage | None = None
    opened: list[KeyedState] = field(default_factory=list)

    def store(self, fence: int) -> SnapshotStore:
        pending = str(self.root / "data" / f"pending-{fence}")
        return SnapshotStore(self.location, fence=fence, pending=pending, filesystem=self.filesystem)

    def state(self, **items: Any) -> KeyedState:
        state = self.open(str(self.root / "data" / f"state-{len(self.opened)}"))
        for key, value in items.items():
            state.put(key.encode(), value)
        return state

    def open(self, path: str) -> KeyedState:
        state = KeyedState(path, memory_bytes=2 * MIB)
        self.opened.append(state)
        return state

    def restored(self, store: SnapshotStore, manifest: Manifest | None) -> dict[str, Any]:
        assert manifest is not None
        path = str(self.root / "data" / f"restored-{len(self.opened)}")
        store.restore(manifest, path)
        return {key.decode(): value for key, value in self.open(path).scan()}


KINDS = ["path", "uri", "blank uri", "subtree", "memory", "memory subtree", "objects"]


def make_host(root: Path, kind: str) -> Host:
    (root / "data").mkdir(parents=True)
    if kind == "path":
        return Host(root, str(root / "ck" / "clonos" / "state" / "1" / "0"))
    if kind == "uri":
        return Host(root, (root / "ck a" / "1" / "0").as_uri())
    if kind == "blank uri":
        return Host(root, f"file:{root}/ck a/1/0")
    if kind == "subtree":
        (root / "ck").mkdir()
        return Host(root, "state/1/0", fs.SubTreeFileSystem(str(root / "ck"), fs.LocalFileSystem()))
    if kind == "objects":
        objects = MemoryStore()
        return Host(root, "state/1/0", ObjectStore("memory://bucket", objects, objects))
    memory: fs.FileSystem = fs._MockFileSystem()
    if kind == "memory subtree":
        memory.create_dir("bucket")
        return Host(root, "state/1/0", fs.SubTreeFileSystem("bucket", memory))
    return Host(root, "state/1/0", memory)


@pytest.fixture(params=KINDS)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    host = make_host(tmp_path, request.param)
    yield host
    for state in host.opened:
        state.close()


@pytest.fixture
def local(tmp_path: Path) -> Any:
    host = make_host(tmp_path, "path")
    yield host
    for state in host.opened:
        state.close()


def snapshot(
    store: SnapshotStore,
    state: KeyedState,
    epoch: int,
    sequence: int = 1,
    *,
    final: bool = True,
    meta: bytes = b"",
) -> Manifest:
    return store.finish(store.begin(state, meta, epoch=epoch, sequence=sequence, final=final))


def stored_files(host: Host) -> list[Path]:
    return sorted((Path(host.location) / "files").iterdir())


# Taking and restoring


def test_what_was_begun_comes_back_everywhere(host: Host) -> None:
    state = host.state(a=1, b=[2])
    TimerQueue(state).set(7, b"a", "timer")
    store = host.store(1)
    assert store.latest(epoch=0, final_only=True) is None
    assert store.latest(epoch=5, final_only=False) is None
    pending = store.begin(state, b"frontier", epoch=4, sequence=9, final=True)
    state.put(b"a", "changed after begin")
    state.close()
    store.finish(pending)
    successor = host.store(2)
    manifest = successor.latest(epoch=5, final_only=True)
    assert manifest is not None
    assert (manifest.epoch, manifest.sequence, manifest.final, manifest.meta) == (4, 9, True, b"frontier")
    assert host.restored(successor, manifest) == {"a": 1, "b": [2]}
    assert TimerQueue(host.opened[-1]).pop_due(9) == [(7, b"a", "timer")]


def test_an_empty_state_is_a_snapshot_too(host: Host) -> None:
    store = host.store(1)
    assert host.restored(store, snapshot(store, host.state(), 0)) == {}


def test_only_new_tables_are_stored(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[str] = []
    really = Folder.put
    monkeypatch.setattr(Folder, "put", lambda *args: (put.append(args[2]), really(*args)))
    state = host.state(**{f"k{number}": "x" * 100 for number in range(2000)})
    store = host.store(1)
    first = snapshot(store, state, 0)
    assert len(put) == 1
    state.put(b"one", 1)
    second = snapshot(store, state, 1)
    assert len(put) == 2
    third = snapshot(store, state, 2)
    assert len(put) == 2
    assert {file.stored for file in first.files} < {file.stored for file in second.files}
    # The next incarnation shares what it restored, and reads none of it again.
    successor = host.store(2)
    path = str(host.root / "data" / "again")
    successor.restore(third, path)
    again = host.open(path)
    hashed: list[str] = []
    monkeypatch.setattr("clonos.storage.snapshots.hash_file", _noting(hashed))
    again.put(b"two", 2)
    fourth = snapshot(successor, again, 3)
    assert len(put) == 3
    assert len([name for name in hashed if name.endswith(".sst")]) == 1
    assert host.restored(successor, fourth)["two"] == 2


def _noting(hashed: list[str]) -> Callable[[str], tuple[int, bytes]]:
    from clonos.storage.folder import hash_file

    def noting(path: str) -> tuple[int, bytes]:
        hashed.append(path)
        return hash_file(path)

    return noting


def test_on_one_device_tables_are_shared_and_never_copied(
    local: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_copy(*_: object) -> None:
        raise AssertionError("copied")

    monkeypatch.setattr(shutil, "copyfile", no_copy)
    monkeypatch.setattr(Folder, "fetch", no_copy)
    store = local.store(1)
    state = local.state(a=1)
    manifest = snapshot(store, state, 0)
    assert local.restored(store, manifest) == {"a": 1}
    (stored,) = stored_files(local)
    inodes = {path.stat().st_ino for path in (local.root / "data").rglob("*.sst")}
    assert inodes == {stored.stat().st_ino}


def test_of_the_next_snapshot_only_new_tables_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host(tmp_path, "memory")
    state, writer, reader = host.state(a=1), host.store(1), host.store(0)
    fetched: list[str] = []
    really = Folder.fetch
    monkeypatch.setattr(Folder, "fetch", lambda *args: (fetched.append(Path(args[2]).name), really(*args))[1])
    places = [str(tmp_path / "data" / f"place-{number}") for number in range(3)]
    reader.restore(snapshot(writer, state, 1), places[0])
    first = set(fetched)
    state.put(b"b", 2)
    second = snapshot(writer, state, 2)
    fetched.clear()
    reader.restore(second, places[1], beside=places[0])
    assert fetched and not first & set(fetched)
    table = next(Path(places[1]).glob("*.sst"))
    content = table.read_bytes()
    table.unlink()  # not through the link, which is the stored file elsewhere
    table.write_bytes(content[:-1] + b"?")
    reader.restore(second, places[2], beside=places[1])
    opened = [host.open(place) for place in (places[0], places[2])]
    assert [dict(one.scan()) for one in opened] == [{b"a": 1}, {b"a": 1, b"b": 2}]
    for one in host.opened:
        one.close()


def test_without_hard_links_files_are_copied(local: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    store = local.store(1)
    state = local.state(a=1)
    pending = store.begin(state, b"", epoch=0, sequence=1, final=True)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    assert local.restored(store, store.finish(pending)) == {"a": 1}


def test_finish_runs_in_another_thread_while_the_instance_goes_on(host: Host) -> None:
    store, state = host.store(1), host.state(a=0)
    results: list[Manifest] = []
    for number in range(1, 6):
        state.put(b"a", number)
        pending = store.begin(state, b"", epoch=0, sequence=number, final=False)
        thread = threading.Thread(target=lambda pending=pending: results.append(store.finish(pending)))
        thread.start()
        for other in range(200):
            state.put(b"k%d" % other, number)
        thread.join()
        assert host.restored(store, results[-1])["a"] == number


def test_restoring_over_something_is_refused(host: Host) -> None:
    store = host.store(1)
    manifest = snapshot(store, host.state(a=1), 0)
    path = host.root / "data" / "there"
    path.mkdir()
    with pytest.raises(StateError, match="it exists"):
        store.restore(manifest, str(path))


# Choosing one


def test_latest_prefers_the_epoch_itself_then_the_end_of_the_one_before(host: Host) -> None:
    store, state = host.store(1), host.state()
    for epoch, sequence, final in [(0, 1, False), (0, 2, True), (1, 3, False), (1, 4, False)]:
        snapshot(store, state, epoch, sequence, final=final)

    def found(epoch: int, final_only: bool) -> tuple[int, int] | None:
        manifest = store.latest(epoch=epoch, final_only=final_only)
        return None if manifest is None else (manifest.epoch, manifest.sequence)

    assert found(0, True) is None
    assert found(0, False) == (0, 2)
    assert found(1, True) == (0, 2)
    assert found(1, False) == (1, 4)
    assert found(2, False) == (0, 2)  # without a final snapshot of its own, epoch 1 was not run
    assert [manifest and manifest.epoch for manifest in map(store.final, (-1, 0, 1))] == [None, 0, 0]


def test_inside_an_epoch_two_snapshots_are_kept_and_a_few_older_ones(host: Host) -> None:
    store, state = host.store(1), host.state()
    for sequence in range(1, 6):
        state.put(b"a", sequence)
        snapshot(store, state, 3, sequence, final=False)
    assert [name.sequence for name in store.manifests()] == [2, 4, 5]
    assert host.restored(store, store.latest(epoch=3, final_only=False)) == {"a": 5}


def test_discard_from_drops_what_was_not_committed(host: Host) -> None:
    store, state = host.store(1), host.state(a=0)
    snapshot(store, state, 0)
    for epoch in (1, 2):
        state.put(b"a", epoch)
        snapshot(store, state, epoch, final=False)
        snapshot(store, state, epoch, 2)
    host.store(2).discard_from(1)
    successor = host.store(3)
    assert [(name.epoch, name.final) for name in successor.manifests()] == [(0, True)]
    assert host.restored(successor, successor.latest(epoch=1, final_only=False)) == {"a": 0}


def test_forget_keeps_what_the_rest_needs_and_nothing_else(local: Host) -> None:
    store, state = local.store(1), local.state(a=0)
    for epoch in range(4):
        state.put(b"k%d" % epoch, epoch)
        snapshot(store, state, epoch)
    store.forget(before_epoch=2)
    assert [name.epoch for name in store.manifests()] == [2, 3]
    needed = {file.stored for name in (2, 3) for file in store.final(name).files if file.stored}  # type: ignore[union-attr]
    assert {path.name for path in stored_files(local)} == needed
    successor = local.store(2)
    assert local.restored(successor, successor.final(3)) == {"a": 0, **{f"k{n}": n for n in range(4)}}
    # What was dropped is stored again if it comes again.
    store = local.store(3)
    store.discard_from(0)
    assert stored_files(local) == []
    assert local.restored(store, snapshot(store, state, 9))["k0"] == 0


def test_an_instance_that_skips_epochs_keeps_the_last_one_it_ran(local: Host) -> None:
    store, state = local.store(1), local.state(a=0)
    for epoch in (0, 2):
        state.put(b"k%d" % epoch, epoch)
        snapshot(store, state, epoch)
    store.forget(before_epoch=1)
    assert [name.epoch for name in store.manifests()] == [0, 2]  # epoch 2 may be discarded yet
    for epoch in (2, 5, 9):
        store.forget(before_epoch=epoch)
        assert [name.epoch for name in store.manifests()] == [2]
    snapshot(store, state, 9, final=False)
    successor = local.store(2)
    successor.discard_from(9)
    assert local.restored(successor, successor.latest(epoch=9, final_only=True)) == {"a": 0, "k0": 0, "k2": 2}
    snapshot(successor, state, 9)
    successor.forget(before_epoch=9)
    assert [name.epoch for name in successor.manifests()] == [9]


def test_forget_does_not_wait_for_an_upload_which_does_it_at_its_end(
    local: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, state = local.store(1), local.state(a=0)
    snapshot(store, state, 0)
    state.put(b"b", 1)
    pending = store.begin(state, b"", epoch=1, sequence=1, final=True)
    uploading, go_on = threading.Event(), threading.Event()
    really = Folder.put

    def slow(*args: Any) -> None:
        uploading.set()
        assert go_on.wait(120)
        really(*args)

    monkeypatch.setattr(Folder, "put", slow)
    thread = threading.Thread(target=store.finish, args=(pending,))
    thread.start()
    assert uploading.wait(120)
    store.forget(before_epoch=1)
    assert [name.epoch for name in store.manifests()] == [0]
    go_on.set()
    thread.join()
    assert [name.epoch for name in store.manifests()] == [1]
    assert local.restored(store, store.final(1)) == {"a": 0, "b": 1}


# Death on the way


class Died(BaseException):
    """The process ends here: nothing catches it, nothing is tidied up."""


class Deadly:
    """Before the class of a medium: dies at the n-th change of checkpoint storage, before it, in it or after it."""

    remaining = 0
    moment = "before"

    def delete(self: Any, name: str) -> None:
        # A dead process removes nothing.
        self._step()
        super().delete(name)  # type: ignore[misc]

    def _move(self: Any, temporary: str, name: str) -> None:
        if self.moment == "in it" and Deadly.remaining == 1:
            self._halve(temporary)
        self._appear(lambda: super(Deadly, self)._move(temporary, name))  # type: ignore[misc]

    def _appear(self: Any, change: Callable[[], None]) -> None:
        if self.moment == "after":
            change()
            self._step()
        else:
            self._step()
            change()

    def _halve(self: Any, temporary: str) -> None:
        whole = self.read(temporary)
        if self.local is None:
            with self._fs.open_output_stream(self._full(temporary)) as stream:
                stream.write(whole[: len(whole) // 2])
        else:
            path = os.path.join(self.local, temporary)
            os.unlink(path)
            Path(path).write_bytes(whole[: len(whole) // 2])

    def _step(self) -> None:
        if Deadly.remaining <= 0:
            raise Died
        Deadly.remaining -= 1
        if Deadly.remaining == 0:
            raise Died


class DeadlyObjects(Deadly):
    """An object appears by one request: half of one never does."""

    def write(self: Any, *args: Any) -> None:
        self._appear(lambda: super(DeadlyObjects, self).write(*args))  # type: ignore[misc]

    def put(self: Any, *args: Any) -> None:
        self._appear(lambda: super(DeadlyObjects, self).put(*args))  # type: ignore[misc]


def make_deadly(folder: Folder) -> None:
    kind = type(folder._medium)
    deadly = DeadlyObjects if kind is ObjectPrefix else Deadly
    folder._medium.__class__ = type("Deadly", (deadly, kind), {})


@pytest.mark.parametrize("moment", ["before", "in it", "after"])
@pytest.mark.parametrize("kind", ["path", "memory", "objects"])
def test_a_death_at_any_step_leaves_the_old_or_the_new_snapshot_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, moment: str
) -> None:
    survived_everything = False
    for steps in range(1, 40):
        host = make_host(tmp_path / str(steps), kind)
        store, state = host.store(1), host.state(a="old")
        snapshot(store, state, 0)
        # Shares no table with the old one, so that forgetting the old one removes a file.
        pending = store.begin(host.state(a="new"), b"", epoch=1, sequence=2, final=True)
        make_deadly(store._folder)
        Deadly.remaining, Deadly.moment = steps, moment
        with suppress(Died):
            store.finish(pending)
            store.forget(before_epoch=1)
            survived_everything = True
        successor = host.store(2)
        newest = successor.final(1)
        assert newest is not None
        assert host.restored(successor, newest) == {"a": "new" if newest.epoch == 1 else "old"}
        # The successor can do the same again, and sweeps what was left.
        again = host.opened[-1]
        again.put(b"a", "newer")
        snapshot(successor, again, 1, 3)
        successor.forget(before_epoch=1)
        assert host.restored(successor, successor.final(1)) == {"a": "newer"}
        assert successor._folder.sizes("tmp") == {}
        named = {
            file.stored
            for name in successor.manifests()
            for file in successor._read(name).files  # type: ignore[union-attr]
            if file.stored
        }
        assert set(successor._folder.sizes("files")) == named
        for opened in host.opened:
            opened.close()
        if survived_everything:
            break
    # Table stored, manifest stored, old manifest removed, old table removed.
    assert survived_everything and steps == 5


def test_a_snapshot_that_was_begun_and_not_finished_leaves_nothing(local: Host) -> None:
    state = local.state(a=1)
    local.store(1).begin(state, b"", epoch=0, sequence=1, final=True)
    pending = local.root / "data" / "pending-1"
    assert list(pending.iterdir())
    assert local.store(1).manifests() == []
    assert list(pending.iterdir()) == []


def test_a_restore_that_fails_leaves_nothing_and_can_be_tried_again(
    local: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = local.store(1)
    manifest = snapshot(store, local.state(a=1), 0)
    target = local.root / "data" / "target"
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "link", _raising(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(StorageUnavailable, match="Input/output error"):
            store.restore(manifest, str(target))
    assert not target.exists() and not Path(f"{target}.restoring").exists()
    # As after a death in the middle.
    Path(f"{target}.restoring").mkdir()
    store.restore(manifest, str(target))
    assert target.exists()


def _raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


# Damage


@pytest.mark.parametrize("damage", ["cut", "altered", "missing", "longer", "empty"])
@pytest.mark.parametrize("kind", ["path", "memory"])
def test_a_damaged_file_is_named_and_nothing_is_restored(tmp_path: Path, kind: str, damage: str) -> None:
    host = make_host(tmp_path, kind)
    state = host.state(a="x" * 1000)
    manifest = snapshot(host.store(1), state, 0)
    state.close()
    (name,) = (file.stored for file in manifest.files if file.stored)
    store = host.store(2)
    whole = store._folder.read(f"files/{name}")
    store._folder.delete(f"files/{name}")
    changed = {
        "cut": whole[:-1],
        "altered": whole[:100] + bytes([whole[100] ^ 1]) + whole[101:],
        "longer": whole + b"x",
        "empty": b"",
    }
    if damage != "missing":
        store._folder.write(f"files/{name}", changed[damage])
    target = tmp_path / "data" / "target"
    with pytest.raises(SnapshotCorrupt, match=name):
        store.restore(store.final(0), str(target))  # type: ignore[arg-type]
    assert not target.exists()
    assert not Path(f"{target}.restoring").exists()


def test_a_file_written_to_in_place_is_noticed_although_it_was_checked_before(local: Host) -> None:
    state = local.state(a="x" * 1000)
    store = local.store(1)
    manifest = snapshot(store, state, 0)
    state.close()
    (stored,) = stored_files(local)
    with open(stored, "r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    with pytest.raises(SnapshotCorrupt, match=f"{stored.name}.*is damaged"):
        store.restore(manifest, str(local.root / "data" / "target"))


def test_bit_rot_in_a_linked_file_is_noticed_when_it_is_read(local: Host) -> None:
    """On the same host a table whose inode and time are as they were is not read through again when it is restored."""
    state = local.state(**{f"k{number}": os.urandom(50) for number in range(500)})
    store = local.store(1)
    manifest = snapshot(store, state, 0)
    state.close()
    (stored,) = stored_files(local)
    before = stored.stat()
    with open(stored, "r+b") as file:
        file.seek(5000)
        file.write(b"\xff" * 16)
    os.utime(stored, ns=(before.st_atime_ns, before.st_mtime_ns))
    path = str(local.root / "data" / "target")
    store.restore(manifest, path)
    with pytest.raises(SnapshotCorrupt, match="damaged"):
        list(local.open(path).scan())


def test_a_damaged_manifest_inside_an_epoch_is_passed_over_at_its_end_it_is_an_error(local: Host) -> None:
    store, state = local.store(1), local.state(a=0)
    snapshot(store, state, 0)
    for sequence in (2, 3):
        state.put(b"a", sequence)
        snapshot(store, state, 1, sequence, final=False)
    names = sorted((Path(local.location) / "manifests").iterdir())
    names[-1].write_bytes(names[-1].read_bytes()[:-1])
    successor = local.store(2)
    assert local.restored(successor, successor.latest(epoch=1, final_only=False)) == {"a": 2}
    assert len(successor.corrupt) == 1 and str(names[-1]) in successor.corrupt[0]
    # It cannot be told which files it needs, so none is removed.
    files = stored_files(local)
    successor.forget(before_epoch=1)
    assert stored_files(local) == files
    names[0].write_bytes(b"")
    with pytest.raises(SnapshotCorrupt, match=names[0].name):
        local.store(3).final(0)


def test_a_manifest_under_another_name_is_refused(local: Host) -> None:
    store = local.store(1)
    snapshot(store, local.state(), 0)
    (name,) = (Path(local.location) / "manifests").iterdir()
    name.rename(name.with_name(str(SnapshotName(1, 1, 1, True))))
    with pytest.raises(SnapshotCorrupt, match="says that it is"):
        local.store(2).final(1)


def test_files_that_are_no_snapshots_are_left_alone(local: Host) -> None:
    store = local.store(1)
    snapshot(store, local.state(a=1), 0)
    strangers = [
        Path(local.location) / directory / "README" for directory in ("manifests", "files", "fences", "tmp")
    ]
    for stranger in strangers:
        stranger.write_text("?")
    successor = local.store(2)
    successor.discard_from(0)
    assert all(stranger.exists() for stranger in strangers)
    assert successor.manifests() == []


# Fencing


def test_a_lower_fence_is_refused_everything_that_changes(host: Host) -> None:
    old, state = host.store(1), host.state(a=1)
    first = snapshot(old, state, 0)
    pending = old.begin(state, b"", epoch=1, sequence=1, final=True)
    host.store(2).claim()
    for change in (
        lambda: old.finish(pending),
        lambda: old.forget(before_epoch=9),
        lambda: old.discard_from(0),
        lambda: old.claim(),
        lambda: old.restore(first, str(host.root / "data" / "target")),
    ):
        with pytest.raises(Fenced, match="taken over"):
            change()
    assert [name.epoch for name in host.store(3).manifests()] == [0]


def test_one_that_was_overtaken_after_its_check_is_not_chosen_and_removes_nothing_of_its_successor(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie, state = host.store(1), host.state(a="first")
    snapshot(zombie, state, 0)
    successor = host.store(2)
    path = str(host.root / "data" / "successor")
    successor.restore(successor.final(0), path)  # type: ignore[arg-type]
    mine = host.open(path)
    mine.put(b"a", "successor")
    # Uploaded, and not yet named by a manifest.
    unfinished = successor.begin(mine, b"", epoch=1, sequence=1, final=True)
    write = successor._folder.write
    with monkeypatch.context() as patch:
        patch.setattr(successor._folder, "write", lambda name, data: None)
        successor.finish(type(unfinished)(_copy(unfinished.directory), unfinished.name, b""))
    assert write is not None
    monkeypatch.setattr(zombie, "_claim", lambda: None)
    state.put(b"a", "zombie")
    snapshot(zombie, state, 1, 99)
    zombie.discard_from(5)
    successor.finish(unfinished)
    zombie.forget(before_epoch=1)
    assert host.restored(successor, host.store(3).final(1)) == {"a": "successor"}
    assert host.restored(successor, successor.latest(epoch=1, final_only=False)) == {"a": "successor"}


def _copy(directory: str) -> str:
    shutil.copytree(directory, f"{directory}-copy")
    return f"{directory}-copy"


def test_the_fence_of_a_living_store_can_be_raised(host: Host) -> None:
    store, state = host.store(1), host.state(a=1)
    snapshot(store, state, 0)
    store.claim(7)
    assert snapshot(store, state, 1).fence == 7
    with pytest.raises(Fenced, match="cannot go from 7 to 6"):
        store.claim(6)
    with pytest.raises(Fenced):
        host.store(6).claim()


def test_a_store_that_only_looks_takes_nothing(host: Host) -> None:
    state = host.state(a=1)
    owner = host.store(1)
    snapshot(owner, state, 0)
    looking = host.store(0)
    assert host.restored(looking, looking.final(0)) == {"a": 1}
    with pytest.raises(Fenced, match="looking only"):
        looking.forget(before_epoch=1)
    snapshot(owner, state, 1)


@pytest.mark.parametrize(("fence", "epoch", "sequence"), [(-1, 0, 0), (2**128, 0, 0), (1, -1, 0), (1, 0, -1)])
def test_numbers_out_of_range_are_refused(local: Host, fence: int, epoch: int, sequence: int) -> None:
    with pytest.raises(StateError):
        local.store(fence).begin(local.state(), b"", epoch=epoch, sequence=sequence, final=True)

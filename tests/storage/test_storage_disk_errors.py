"""A full or failing disk is `StorageUnavailable`, says so, and costs nothing that was kept before."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import fs
from rocksdict import DbClosedError

from clonos.errors import Fenced, LogCorrupt, SnapshotCorrupt, StateError, StorageUnavailable
from clonos.storage.database import MIB
from clonos.storage.disk_errors import disk
from clonos.storage.keyed_state import KeyedState
from clonos.storage.log_store import LogStore
from clonos.storage.snapshots import SnapshotStore

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("raised", "expected", "text"),
    [
        (FULL, StorageUnavailable, "the disk is full"),
        (OSError(errno.EDQUOT, "quota"), StorageUnavailable, "the disk is full"),
        (OSError(errno.EIO, "Input/output error"), StorageUnavailable, "Input/output error"),
        (Exception("IO error: No space left on device: x.log"), StorageUnavailable, "the disk is full"),
        (Exception("IO error: Input/output error: x.sst"), StorageUnavailable, "x.sst"),
        (Exception("Shutdown in progress: "), StorageUnavailable, "Shutdown"),
        (Exception("No such file or directory (os error 2)"), StorageUnavailable, "os error 2"),
        (Exception("Corruption: block checksum mismatch"), LogCorrupt, "damaged"),
        (DbClosedError("DB instance already closed"), StateError, "already closed"),
        (Fenced("taken over"), Fenced, "taken over"),
        (Exception("something else"), Exception, "^something else$"),
        (ZeroDivisionError("mine"), ZeroDivisionError, "^mine$"),
    ],
)
def test_what_an_error_means(raised: Exception, expected: type[Exception], text: str) -> None:
    with pytest.raises(expected, match=text) as caught, disk("doing it", corrupt=LogCorrupt):
        raise raised
    assert type(caught.value) is expected


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB; needs the right to mount one."""
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)], capture_output=True, timeout=120
    )
    if mounted.returncode != 0:
        pytest.skip("cannot mount a small file system here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True, timeout=120)


def enlarge(path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(path)], check=True, timeout=120)


def test_a_log_on_a_full_disk_refuses_the_append_and_keeps_what_it_acknowledged(small_disk: Path) -> None:
    path = str(small_disk / "log")
    store = LogStore(path, memory_bytes=MIB)
    acknowledged = 0
    with pytest.raises(StorageUnavailable, match=r"causal log in .*the disk is full"):
        while True:
            store.append([os.urandom(50_000)], (acknowledged * 3, b"abc"))
            acknowledged += 1
    assert acknowledged > 5
    store.close()
    enlarge(small_disk)
    again = LogStore(path, memory_bytes=MIB)
    assert len(list(again.deltas())) == acknowledged == len(list(again.own()))
    assert again.end == acknowledged * 3
    again.append([], (again.end, b"more"))
    again.close()


def test_keyed_state_on_a_full_disk_fails_as_storage_not_as_state(small_disk: Path) -> None:
    state = KeyedState(str(small_disk / "db"), cache_entries=4, memory_bytes=MIB)
    with pytest.raises(StorageUnavailable, match=r"keyed state in .*the disk is full"):
        for number in range(10_000):
            state.put(b"%d" % number, os.urandom(20_000))
    state.close()


def test_a_snapshot_that_did_not_fit_can_be_finished_when_there_is_room(
    small_disk: Path, tmp_path: Path
) -> None:
    state = KeyedState(str(tmp_path / "db"), memory_bytes=2 * MIB)
    store = SnapshotStore(str(small_disk / "ck"), fence=1, pending=str(tmp_path / "pending"))
    state.put(b"small", 1)
    store.finish(store.begin(state, b"", epoch=0, sequence=1, final=True))
    for number in range(100):
        state.put(b"%d" % number, os.urandom(40_000))
    pending = store.begin(state, b"", epoch=1, sequence=2, final=True)
    with pytest.raises(StorageUnavailable, match=r"writing .*small/ck.*the disk is full"):
        store.finish(pending)
    assert [name.epoch for name in store.manifests()] == [0]
    assert os.listdir(small_disk / "ck" / "tmp") == []
    enlarge(small_disk)
    manifest = store.finish(pending)
    assert [name.epoch for name in store.manifests()] == [0, 1]
    store.restore(manifest, str(tmp_path / "restored"))
    state.close()


class FullStorage(fs.FileSystemHandler):  # type: ignore[misc]
    """Remote storage over another file system, that has no room while `full`."""

    def __init__(self, inner: fs.FileSystem) -> None:
        self.inner = inner
        self.full = False

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def get_type_name(self) -> str:
        return "full"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        return self.inner.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> Any:
        return self.inner.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self.inner.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self.inner.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self.inner.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self.inner.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        # As HDFS does.
        if self.inner.get_file_info(dest).type == fs.FileType.File:
            raise FileExistsError(errno.EEXIST, "it is there", dest)
        self.inner.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        self.inner.copy_file(src, dest)

    def open_input_stream(self, path: str) -> Any:
        return self.inner.open_input_stream(path)

    def open_input_file(self, path: str) -> Any:
        return self.inner.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        if self.full:
            raise FULL
        return self.inner.open_output_stream(path)

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError


def test_remote_storage_without_room_is_unavailable_and_recovers(tmp_path: Path) -> None:
    handler = FullStorage(fs._MockFileSystem())
    store = SnapshotStore(
        "ck", fence=1, pending=str(tmp_path / "pending"), filesystem=fs.PyFileSystem(handler)
    )
    state = KeyedState(str(tmp_path / "db"), memory_bytes=2 * MIB)
    state.put(b"a", 1)
    pending = store.begin(state, b"", epoch=0, sequence=1, final=True)
    handler.full = True
    with pytest.raises(StorageUnavailable, match=r"writing py::full:ck/.*the disk is full"):
        store.finish(pending)
    assert store.manifests() == []
    handler.full = False
    manifest = store.finish(pending)
    store.restore(manifest, str(tmp_path / "restored"))
    store._folder.write("again", b"first")
    store._folder.write("again", b"second")
    assert store._folder.read("again") == b"second"
    state.close()


class Stalled:
    """A database whose writes would have to wait."""

    def __init__(self, refusals: int, failures: int) -> None:
        self.refusals = refusals
        self.failures = failures
        self.written: list[bytes] = []

    def put(self, key: bytes, value: bytes, options: object) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Exception("Result incomplete: Write stall")
        self.written.append(key)

    def property_int_value(self, name: str) -> int:
        assert name == "rocksdb.background-errors"
        return self.failures


def test_a_write_waits_for_compaction_but_not_for_a_disk_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    # In place of the module, which threads of other tests share.
    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: now)
    monkeypatch.setattr("clonos.storage.database.time", clock)
    state = KeyedState(str(tmp_path / "db"), memory_bytes=2 * MIB)
    really = state.database.raw
    busy = Stalled(refusals=10, failures=0)
    monkeypatch.setattr(state.database, "raw", busy)
    state.database.put(b"k", b"v")
    assert busy.written == [b"k"]
    assert 0 < now < 1
    for refusals, failures, reason in ((10**9, 0, "busy for 60 s"), (10**9, 1, "cannot write its tables")):
        monkeypatch.setattr(state.database, "raw", Stalled(refusals, failures))
        with pytest.raises(StorageUnavailable, match=reason):
            state.database.put(b"k", b"v")
    monkeypatch.setattr(state.database, "raw", really)
    state.close()


def test_damage_of_a_snapshot_names_the_snapshot() -> None:
    with (
        pytest.raises(SnapshotCorrupt, match="opening it failed: the stored bytes are damaged"),
        disk("opening it", corrupt=SnapshotCorrupt),
    ):
        raise Exception("Corruption: bad magic")

"""Snapshots taken when fences had 64 bits: found, restored, superseded and forgotten like any other."""

from __future__ import annotations

import os
import re
import struct
import zlib
from pathlib import Path

import msgpack
import pytest

from clonos.errors import Fenced
from clonos.protocol.fence import Fence
from clonos.storage.database import MIB
from clonos.storage.keyed_state import KeyedState
from clonos.storage.manifest import Manifest
from clonos.storage.snapshots import SnapshotStore

OLD, NEXT, NEW = Fence.of(3, 7, 2), Fence.of(3, 8), Fence.first(4, 0)


def narrow(text: str) -> str:
    """The name of a file with the fence as it was written then."""
    return re.sub(r"[0-9a-f]{32}(?=-\d{20}-|$)", lambda found: f"{Fence.parse(found[0]).narrowed:016x}", text)


def as_it_was(root: Path) -> None:
    """Write everything under `root` as the version of 64-bit fences did."""
    for path in sorted(root.rglob("*")):
        if path.parent.name == "manifests":
            body = msgpack.unpackb(path.read_bytes()[18:], use_list=True)
            body["fence"] = Fence.unpack(body["fence"]).narrowed
            for file in body["files"]:
                file[3] = narrow(file[3])
            raw = msgpack.packb(body)
            checksum = zlib.crc32(raw, zlib.crc32(struct.pack("<H", 1)))
            path.write_bytes(struct.pack("<8sHII", b"CLONSNAP", 1, checksum, len(raw)) + raw)
        if path.is_file():
            path.rename(path.with_name(narrow(path.name)))


def store(base: Path, fence: int) -> SnapshotStore:
    return SnapshotStore(str(base / "root"), fence=fence, pending=str(base / f"pending-{fence:x}"))


def take(base: Path, fence: int, epoch: int, sequence: int, *, final: bool, value: str) -> Manifest:
    state = KeyedState(str(base / f"state-{epoch}-{sequence}"), memory_bytes=2 * MIB)
    state.put(b"k", value)
    snapshots = store(base, fence)
    manifest = snapshots.finish(snapshots.begin(state, b"m", epoch=epoch, sequence=sequence, final=final))
    state.close()
    return manifest


def value_of(base: Path, snapshots: SnapshotStore, manifest: Manifest | None) -> object:
    assert manifest is not None
    path = base / f"restored-{manifest.epoch}-{manifest.sequence}-{len(os.listdir(base))}"
    snapshots.restore(manifest, str(path))
    state = KeyedState(str(path), memory_bytes=2 * MIB)
    try:
        return state.get(b"k")
    finally:
        state.close()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    take(tmp_path, OLD, 4, 1, final=True, value="end of 4")
    take(tmp_path, OLD, 5, 2, final=False, value="inside 5")
    as_it_was(tmp_path / "root")
    names = [path.name for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert not any(re.search(r"[0-9a-f]{32}(-\d{20}|$)", name) for name in names)
    return tmp_path


def test_they_are_found_and_restored(old: Path) -> None:
    snapshots = store(old, NEW)
    assert [found.fence for found in store(old, 0).inside(5)] == [OLD]
    assert value_of(old, snapshots, snapshots.final(5)) == "end of 4"
    newest = snapshots.latest(epoch=5, final_only=False)
    assert value_of(old, snapshots, newest) == "inside 5"
    assert newest is not None and newest.fence == OLD
    assert snapshots.named(str(newest.name)) == newest


def test_their_claim_still_fences_what_is_older(old: Path) -> None:
    with pytest.raises(Fenced, match=f"its fence is {OLD:x}"):
        store(old, Fence.of(3, 7, 1)).claim()
    store(old, NEXT).claim()
    assert [path.name for path in (old / "root" / "fences").iterdir()] == [NEXT.text]


def test_they_are_gone_on_from_superseded_and_forgotten(old: Path) -> None:
    snapshots = store(old, NEW)
    before = snapshots.latest(epoch=5, final_only=False)
    assert before is not None
    own = snapshots.resume(before, b"resumed")
    assert own.name.begins(NEW) and NEW.text in str(own.name)
    again = store(old, NEW)
    assert value_of(old, again, again.resumed(5, NEW)) == "inside 5"
    snapshots.discard_from(5)
    assert [str(name)[:20] for name in snapshots.manifests()] == [f"{4:020d}", f"{5:020d}"]
    take(old, NEW, 5, 3, final=True, value="end of 5")
    last = store(old, NEW)
    last.forget(before_epoch=6)
    assert [name.epoch for name in last.manifests()] == [5]
    assert value_of(old, last, last.final(5)) == "end of 5"

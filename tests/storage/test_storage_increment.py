"""Checkpoints that are the files of the last whole one and what has been written since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import msgpack
import pytest
from changing_state import ChangingState

from clonos.errors import SnapshotCorrupt
from clonos.protocol.fence import Fence
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.storage import increment
from clonos.storage.increment import Increment, decode_increment
from clonos.storage.manifest import Manifest
from clonos.storage.snapshots import SnapshotStore

EPOCH = 0


class Instance(ChangingState):
    """With its checkpoints."""

    def __init__(self, base: Path, fence: int) -> None:
        self.base = base
        self.store = SnapshotStore(str(base / "root"), fence=Fence.of(fence), pending=str(base / "pending"))
        self.open(base / f"state-{fence}", Increment())

    def take(self, sequence: int, *, final: bool = False) -> Manifest:
        pending = self.store.begin(self.state, b"meta", epoch=EPOCH, sequence=sequence, final=final)
        return self.store.finish(pending)


def has_increment(manifest: Manifest) -> bool:
    return any(file.path == increment.FILE for file in manifest.files)


@pytest.mark.parametrize("seed", range(12))
def test_every_checkpoint_is_restored_as_it_was(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind one that was restored itself, and where a whole one is due in between."""
    monkeypatch.setattr(increment, "_MOST_BYTES", 8_000)
    rng = Random(seed)
    instance, sequence, kinds = Instance(tmp_path, 1), 0, set()
    for fence in range(2, 6):
        for _ in range(rng.randint(1, 12)):
            instance.change(rng, sequence)
            manifest, content = instance.take(sequence), instance.content()
            kinds.add(has_increment(manifest))
            sequence += 1
        instance.change(rng, sequence)  # what is behind the last checkpoint is lost
        instance.state.close()
        instance = Instance.__new__(Instance)
        instance.base = tmp_path
        instance.store = SnapshotStore(
            str(tmp_path / "root"), fence=Fence.of(fence), pending=str(tmp_path / "pending")
        )
        instance.store.restore(manifest, str(tmp_path / f"state-{fence}"))
        instance.open(tmp_path / f"state-{fence}", Increment())
        assert instance.content() == content
    assert kinds == {True, False}
    instance.state.close()


def test_the_end_of_an_epoch_is_whole_and_files_of_increments_are_kept(tmp_path: Path) -> None:
    instance = Instance(tmp_path, 1)
    for sequence in range(6):
        instance.state.put(b"key", sequence)
        assert has_increment(instance.take(sequence)) == (sequence > 0)
    assert not has_increment(instance.take(6, final=True))
    kept = instance.store.manifests()
    assert SnapshotName(EPOCH, instance.store.fence, 5, False) in kept and len(kept) < 7
    for at, name in enumerate(kept):
        manifest = instance.store.named(str(name))
        assert manifest is not None
        instance.store.restore(manifest, str(tmp_path / f"restored-{at}"))
    instance.state.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: b"",
        lambda raw: msgpack.packb({"version": 2, "changes": []}),
        lambda raw: msgpack.packb({"version": 1}),
        lambda raw: msgpack.packb({"version": 1, "changes": [["text", b""]]}),
        lambda raw: msgpack.packb([1]),
    ],
)
def test_an_increment_that_cannot_be_read_is_said(damage: Callable[[bytes], bytes]) -> None:
    known = Increment()
    known.is_whole()
    known.note(b"key", b"value")
    known.note(b"gone", None)
    raw = known.encode()
    assert raw is not None and decode_increment(raw, "x") == [(b"key", b"value"), (b"gone", None)]
    with pytest.raises(SnapshotCorrupt, match="the increment in x"):
        decode_increment(damage(raw), "x")

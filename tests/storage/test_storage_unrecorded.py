"""Why a commit cannot be recorded, as a file of the checkpoint."""

from __future__ import annotations

from pathlib import Path

from clonos.errors import SnapshotCorrupt
from clonos.protocol.line.unrecorded_commit import UnrecordedCommit
from clonos.storage.folder import Folder, resolve
from clonos.storage.unrecorded_file import last_unrecorded, write_unrecorded


def test_the_last_one_is_read_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    checkpoint = str(tmp_path)
    filesystem, root = resolve(checkpoint)
    folder = Folder(filesystem, f"{root}/clonos", tag="test")
    assert last_unrecorded(checkpoint) is None
    for epoch in (3, 4):
        said = UnrecordedCommit.of(epoch, 7, SnapshotCorrupt("a file is gone"))
        write_unrecorded(folder, said)
        assert last_unrecorded(checkpoint) == said
    path = tmp_path / "clonos" / "unrecorded"
    path.write_bytes(path.read_bytes()[:-9])
    assert last_unrecorded(checkpoint) is None

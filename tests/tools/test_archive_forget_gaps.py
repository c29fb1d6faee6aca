"""Which epochs an instance of the operator whose key is erased lacks, by what is in the archive of all instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from clonos.archive.erasing_gaps import gaps_of
from clonos.archive.reading import ArchivedInstance
from clonos.protocol.archive.archive_segment import ArchiveSegment, EpochEnded
from clonos.protocol.archive.erasure import erased
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.storage.archive import Archive

OWNER, OTHER = Origin.of(2, 0), Origin.of(3, 0)


def leave(archive: Archive, root: Path, origin: Origin, epoch: int, kind: str) -> None:
    """Of an epoch: it is open, or ended, was erased then, or has run again since."""
    segment = ArchiveSegment(
        origin=origin,
        epoch=Epoch(epoch),
        fence=Fence.of(1, 1),
        number=1,
        written_at=10,
        realtime=False,
        program="p",
        epoch_start=LogOffset(0),
        log_start=LogOffset(0),
        log=b"",
        ended=EpochEnded(LogOffset(0), OutputNumber(0)) if "ended" in kind else None,
    )
    files = archive.segments(origin)
    files.write(segment)
    if "erased" in kind:
        files.replace([each for each in files.names() if each.epoch == epoch], [erased(segment, 99)])
    if "again" in kind:
        files.write(replace(segment, fence=Fence.of(3, 1), written_at=20))
    if "damaged" in kind:
        (path,) = root.glob(f"clonos/archive/segments/{origin.node}/{origin.instance}/{epoch:020d}-*")
        path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("owner", "other", "is_open", "missing"),
    [
        (["ended", ""], ["ended", "open"], [1], []),
        (["ended", ""], ["ended", "ended"], [], ["epoch 1"]),
        (["ended", ""], ["ended", "damaged"], [], ["epoch 1"]),
        (["", "", "ended"], ["ended", "ended", "ended"], [], ["epochs 0 to 1"]),
        (["", "ended"], ["open", "ended"], [], ["epoch 0"]),
        (["", "ended"], ["ended erased", "ended"], [], []),
        (["ended erased", "ended"], ["ended", "ended"], [], []),
        (["ended erased"], ["ended erased again"], [], ["epoch 0"]),
        (["ended", "erased"], ["ended", "erased again"], [1], []),
        (["ended", "erased"], ["ended", "open"], [1], []),
        (["ended", "erased"], ["ended", "erased"], [], []),
        (["", ""], ["ended", "open"], [1], ["epoch 0"]),
        (["ended", "ended"], ["", ""], [], []),
    ],
)
def test_what_an_instance_lacks(
    tmp_path: Path, owner: Sequence[str], other: Sequence[str], is_open: list[int], missing: list[str]
) -> None:
    archive = Archive(str(tmp_path))
    every = []
    for origin, kinds in ((OWNER, owner), (OTHER, other)):
        for epoch, kind in enumerate(kinds):
            if kind:
                leave(archive, tmp_path, origin, epoch, kind)
        names = archive.segments(origin).names()
        every.append(ArchivedInstance("see", origin, archive, names, archive.states(origin)))
    found = gaps_of(every[0], every)
    assert (sorted(found.open), [str(each) for each in found.missing]) == (is_open, missing)

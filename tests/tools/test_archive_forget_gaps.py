"""Which epochs an instance of the operator whose key is erased lacks, by what is in the archive of all instances."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clonos.archive.erasing_beyond import beyond_epochs
from clonos.archive.erasing_gaps import gaps_of
from clonos.archive.reading import ArchivedInstance
from clonos.protocol.archive.archive_segment import ArchiveSegment, EpochEnded
from clonos.protocol.archive.erasure import erased
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.storage.archive import Archive
from clonos.storage.keyed_state import KeyedState
from clonos_standby.replica import snapshot_metadata as metadata

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


def test_an_epoch_that_no_instance_has_and_the_next_one_has_something_of_is_missing(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    every = []
    for origin in (OWNER, OTHER):
        leave(archive, tmp_path, origin, 3, "ended")
        names = archive.segments(origin).names()
        every.append(ArchivedInstance("see", origin, archive, names, archive.states(origin)))
    found = gaps_of(every[0], every, {Epoch(2), Epoch(3)})
    assert (found.open, [str(each) for each in found.missing]) == (frozenset(), ["epoch 2"])


def test_what_is_kept_of_an_epoch_elsewhere_than_with_it(tmp_path: Path) -> None:
    """The log in a state, records that waited there, and the end of the log before a standby's first segment."""
    archive = Archive(str(tmp_path))
    states = archive.states(OTHER, fence=Fence.of(1, 1), pending=str(tmp_path / "pending"))
    waited = [(7, 1, (1,))]
    kinds: list[tuple[int, bool, dict[str, Any]]] = [
        (0, True, {"log": b"log"}),
        (1, True, {"pending": waited}),
        (2, True, {}),
        (5, False, {"pending": waited}),
        (6, True, {}),
    ]
    with closing(KeyedState(str(tmp_path / "state"))) as state:
        for epoch, final, more in kinds:
            begun = OutputNumber(0), LogOffset(0), LogOffset(0), Epoch(epoch)
            meta = metadata.encode(InstanceSnapshot(Epoch(epoch), {}, *begun, None, None, **more))
            states.finish(states.begin(state, meta, epoch=Epoch(epoch), sequence=epoch, final=final))
    leave(archive, tmp_path, OTHER, 3, "ended")
    (whole,) = archive.segments(OTHER).read(archive.segments(OTHER).names())
    reaching_back = replace(
        whole, epoch=Epoch(4), epoch_start=LogOffset(9), log_start=LogOffset(3), log=b"before"
    )
    archive.segments(OTHER).write(reaching_back)
    leave(archive, tmp_path, OTHER, 7, "damaged")
    names = sorted(states.manifests())
    damaged = tmp_path / "clonos/archive/state/3/0/manifests" / str(names[-1])
    damaged.write_bytes(damaged.read_bytes()[:-1])
    instance = ArchivedInstance("see", OTHER, archive, archive.segments(OTHER).names(), archive.states(OTHER))
    found = beyond_epochs(instance)
    assert sorted(name.epoch for name in found.states) == [0, 1, 5]
    assert (found.epochs, list(found.damaged)) == ({1, 3}, [names[-1]])

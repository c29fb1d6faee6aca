"""Which epochs an instance lacks, by what is in the archive of all instances; how that is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clonos.archive.asked_epochs import asked_epochs
from clonos.archive.erasing_beyond import beyond_epochs
from clonos.archive.gaps import ArchiveGaps
from clonos.archive.reading import ArchivedInstance
from clonos.errors import ConfigurationError
from clonos.protocol.archive.archive_segment import ArchiveSegment, EpochEnded
from clonos.protocol.archive.erasure import erased
from clonos.protocol.archive.missing import Absence
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.storage.archive import Archive
from clonos.storage.keyed_state import KeyedState
from clonos.tools.archive.listing import print_list
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
def test_what_an_instance_lacks_of_what_a_key_may_be_in(
    tmp_path: Path, owner: Sequence[str], other: Sequence[str], is_open: list[int], missing: list[str]
) -> None:
    every = left(tmp_path, owner, other)
    found = ArchiveGaps(every, Epoch(2)).erasing(every[0])
    assert (sorted(found.open), [str(each) for each in found.missing]) == (is_open, missing)


def test_an_epoch_that_no_instance_has_and_the_next_one_has_something_of_is_missing(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    every = []
    for origin in (OWNER, OTHER):
        leave(archive, tmp_path, origin, 3, "ended")
        names = archive.segments(origin).names()
        every.append(ArchivedInstance("see", origin, archive, names, archive.states(origin)))
    found = ArchiveGaps(every, Epoch(3)).erasing(every[0], {Epoch(2), Epoch(3)})
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


def left(tmp_path: Path, *instances: Sequence[str]) -> list[ArchivedInstance]:
    archive = Archive(str(tmp_path))
    every = []
    for origin, kinds in zip((OWNER, OTHER), instances, strict=True):
        for epoch, kind in enumerate(kinds):
            if kind:
                leave(archive, tmp_path, origin, epoch, kind)
        names = archive.segments(origin).names()
        every.append(ArchivedInstance("see", origin, archive, names, archive.states(origin)))
    return every


ENDED = "ended"


@pytest.mark.parametrize(
    ("owner", "other", "states", "committed", "missing"),
    [
        ([ENDED] * 4, [ENDED] * 4, [], 3, []),
        (["", "", ENDED], [ENDED] * 3, [], 2, [("epochs 0 to 1", Absence.LOST)]),
        (["", "", ENDED], [ENDED] * 3, [2], 2, [("epochs 0 to 1", Absence.DROPPED)]),
        (["", "", ENDED], [ENDED] * 3, [1], 2, [("epochs 0 to 1", Absence.DROPPED)]),
        (
            ["", "", ENDED],
            [ENDED] * 3,
            [0, 2],
            2,
            [("epoch 0", Absence.DROPPED), ("epoch 1", Absence.LOST)],
        ),
        ([ENDED, "", "", ENDED], [ENDED] * 4, [0], 3, [("epochs 1 to 2", Absence.LOST)]),
        ([ENDED, "", ""], [ENDED] * 3, [], 2, [("epochs 1 to 2", Absence.LOST)]),
        ([ENDED, "", "open"], [ENDED] * 3, [], 2, [("epochs 1 to 2", Absence.LOST)]),
        ([ENDED, "", ""], [ENDED] * 3, [], 1, [("epoch 1", Absence.LOST), ("epoch 2", Absence.NOT_ENDED)]),
        ([ENDED, "open"], [ENDED] * 2, [], 0, [("epoch 1", Absence.NOT_ENDED)]),
        (["open"], [ENDED], [], -1, [("epoch 0", Absence.NOT_ENDED)]),
        (["open"], [ENDED], [], 0, [("epoch 0", Absence.LOST)]),
        ([ENDED, ""], [ENDED, "open"], [], 0, []),
        ([ENDED, "", "", ENDED], [ENDED, ENDED, "", ENDED], [], 3, [("epoch 1", Absence.NOT_KEPT)]),
        ([ENDED, ""], [ENDED, ENDED], [], 7, [("epoch 1", Absence.NOT_KEPT)]),
        ([ENDED, "", ENDED], [ENDED, "damaged", ENDED], [], 2, [("epoch 1", Absence.LOST)]),
        ([ENDED, "", ENDED], [ENDED, "ended erased", ENDED], [], 2, []),
        (["", ""], [ENDED] * 2, [], 1, [("epochs 0 to 1", Absence.NOTHING)]),
    ],
)
def test_what_is_known_of_what_an_instance_lacks(
    tmp_path: Path,
    owner: Sequence[str],
    other: Sequence[str],
    states: Sequence[int],
    committed: int,
    missing: Sequence[tuple[str, Absence]],
) -> None:
    every = left(tmp_path, owner, other)
    every[0].state_names = [SnapshotName(Epoch(each), Fence.of(1, 1), 0, True) for each in states]
    gaps = ArchiveGaps(every, Epoch(committed))
    assert [(str(each), each.absence) for each in gaps.of(every[0])] == missing
    assert not gaps.of(every[1])


THERE = "not in the archive"


@pytest.mark.parametrize(
    ("owner", "other", "states", "since", "between", "absent"),
    [
        ([ENDED] * 3, [ENDED] * 3, [], "0", (0, 2), []),
        ([ENDED] * 3, [ENDED] * 3, [], None, (0, 2), []),
        (["", "", ENDED], [ENDED] * 3, [1], None, (2, 2), []),
        (["", "", ENDED], [ENDED] * 3, [1], "0", (2, 2), [f"epochs 0 to 1: {THERE}: dropped"]),
        (["", "", ENDED], [ENDED] * 3, [1], "1", (2, 2), [f"epoch 1: {THERE}: dropped"]),
        (["", "", ENDED], [ENDED] * 3, [1], "2", (2, 2), []),
        (["", "", ENDED], [ENDED] * 3, [], None, (2, 2), [f"epochs 0 to 1: {THERE}: lost"]),
        (["", "", ENDED], ["", "", ENDED], [], None, (2, 2), []),
        (["", "", ENDED], ["", "", ENDED], [], "0", (2, 2), [f"epochs 0 to 1: {THERE}"]),
        (["", "", ENDED], ["", "", ENDED], [], "1970-01-01", (2, 2), []),
        (["", "", ENDED], [ENDED] * 3, [1], "1970-01-01", (2, 2), [f"epochs 0 to 1: {THERE}: dropped"]),
        (
            ["", "", "", ENDED],
            ["", ENDED, "", ENDED],
            [],
            "0",
            (3, 3),
            [f"epoch 0: {THERE}", f"epoch 1: {THERE}: lost", f"epoch 2: {THERE}"],
        ),
        ([ENDED, "", ENDED], [ENDED] * 3, [], "1", (2, 2), [f"epoch 1: {THERE}: lost"]),
        ([ENDED, "", ""], [ENDED] * 3, [], None, (0, 0), [f"epochs 1 to 2: {THERE}: lost"]),
        (["", ""], [ENDED] * 2, [], "0", None, [f"epochs 0 to 1: {THERE}: nothing of the instance"]),
    ],
)
def test_what_is_asked_for_and_not_there_is_said(
    tmp_path: Path,
    owner: Sequence[str],
    other: Sequence[str],
    states: Sequence[int],
    since: str | None,
    between: tuple[int, int] | None,
    absent: Sequence[str],
) -> None:
    every = left(tmp_path, owner, other)
    every[0].state_names = [SnapshotName(Epoch(each), Fence.of(1, 1), 0, True) for each in states]
    gaps = ArchiveGaps(every, Epoch(len(owner) - 1))
    asked = asked_epochs(every[0], gaps, since, None)
    assert asked.between == between
    for said, text in zip(map(str, asked.absent), absent, strict=True):
        assert said == text or said.startswith((f"{text}, ", f"{text} ")), said


def test_bounds_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    every = left(tmp_path, [ENDED] * 3, [ENDED] * 3)
    gaps = ArchiveGaps(every, Epoch(2))
    with pytest.raises(ConfigurationError, match="begins with 2, and ends with 1 before that"):
        asked_epochs(every[0], gaps, "2", "1")
    assert asked_epochs(every[0], gaps, "1", "2026-11-30T10:00:00").between == (1, 2)


def test_a_list_shows_gaps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = left(tmp_path, [ENDED, "", ENDED, ENDED, "", ENDED], [ENDED] * 6)
    gaps = ArchiveGaps(every, Epoch(5))
    print_list(every, gaps, in_json=False)
    _, one, another, *more = capsys.readouterr().out.splitlines()
    assert "0, 2..3, 5" in one and "0..5" in another
    assert more == ["see[0] lacks epoch 1: lost", "see[0] lacks epoch 4: lost"]
    print_list(every, gaps, in_json=True)
    one, another = json.loads(capsys.readouterr().out)
    assert one["runs"] == [[0, 0], [2, 3], [5, 5]] and one["epochs"] == [0, 5]
    assert one["missing"] == [{"epochs": [at, at], "why": "lost"} for at in (1, 4)]
    assert another["missing"] == []

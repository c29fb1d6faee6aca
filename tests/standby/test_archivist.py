"""What a replica leaves in the archive: segments before their checkpoint, states now and then, and nothing twice."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clonos.errors import StorageUnavailable
from clonos.protocol.archive.erasure import ErasurePlan, erased
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.fence import Fence
from clonos.protocol.ids import LOG_BEGIN, NO_OUTPUT, Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.storage.archive import Archive
from clonos.storage.keyed_state import KeyedState
from clonos.storage.segment_files import SegmentFiles
from clonos.wire.block import Block, Encoding, pack_block, parse_block
from clonos.wire.messages import Bundle
from clonos_standby.replica import archivist as module
from clonos_standby.replica.archivist import Archivist

ORIGIN = Origin.of(2, 0)


def archivist(tmp_path: Path) -> Archivist:
    return Archivist(str(tmp_path / "checkpoint"), str(tmp_path / "data"), ORIGIN, b"the program", 3600)


def bundle(first: int, count: int) -> Bundle:
    numbers = list(range(first, first + count))
    block = Block(Epoch(0), 1, numbers, b"a delta", b"rows" * count, None, Encoding.PACKED)
    return Bundle(1, count, (memoryview(pack_block(block)),))


def request() -> AttachRequest:
    return AttachRequest(ORIGIN, Epoch(0), Fence(5), False, False, NO_OUTPUT, LOG_BEGIN, b"", realtime=True)


def content(log_offset: int) -> InstanceSnapshot:
    return InstanceSnapshot(
        Epoch(0), {}, OutputNumber(1), LogOffset(log_offset), LOG_BEGIN, Epoch(0), None, None
    )


@pytest.mark.parametrize("in_memory", [1 << 20, 10])
def test_input_and_log_come_back_without_what_rode_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    """Also where it does not fit into memory, and not into one segment."""
    monkeypatch.setattr(module, "_IN_MEMORY", in_memory)
    monkeypatch.setattr(module, "_MOST_IN_SEGMENT", 400)
    leaves = archivist(tmp_path)
    leaves.restored(None)
    for first in range(0, 50, 10):
        leaves.take(bundle(first, 10), Epoch(0))
    leaves.record(LOG_BEGIN, b"what was recorded")
    leaves.cut(request(), content(17), own_from=LOG_BEGIN, is_end=True)
    archive = Archive(str(tmp_path / "checkpoint"))
    assert not archive.segments(ORIGIN).names(), "it is written before the checkpoint, not before that"
    leaves.write_due()
    segments = list(archive.segments(ORIGIN).read(archive.segments(ORIGIN).names()))
    assert len(segments) > 1 and b"".join(each.log for each in segments) == b"what was recorded"
    blocks = [parse_block(memoryview(block)) for each in segments for block in each.blocks]
    assert [number for block in blocks for number in block.numbers] == list(range(50))
    assert all(not block.ride_along for block in blocks)
    assert [each.ended is not None for each in segments] == [False] * (len(segments) - 1) + [True]
    assert archive.program(segments[0].program) == b"the program"


def test_what_could_not_be_written_is_written_with_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = archivist(tmp_path)
    leaves.take(bundle(0, 3), Epoch(0))
    leaves.cut(request(), content(0), own_from=LOG_BEGIN, is_end=False)

    def is_full(*_: object) -> None:
        raise StorageUnavailable("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(SegmentFiles, "write", is_full)
        with pytest.raises(StorageUnavailable):
            leaves.write_due()
    leaves.write_due()
    archive = Archive(str(tmp_path / "checkpoint"))
    (segment,) = archive.segments(ORIGIN).read(archive.segments(ORIGIN).names())
    assert len(segment.blocks) == 1


def test_states_are_stored_now_and_then_and_share_what_has_not_changed(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "state"))
    state.save(b"k", {"n": 1})
    names = []

    def keep(leaves: Archivist, epoch: int, fence: int, *, is_end: bool, at: int, records: int) -> None:
        name = SnapshotName(Epoch(epoch), Fence(fence), 0, is_end)
        leaves.keep_state(name, state, lambda: b"meta", LogOffset(at), records)
        if leaves._storing is not None:
            leaves._storing.join()
        store = Archive(str(tmp_path / "checkpoint")).states(ORIGIN)
        names[:] = [(each.epoch, each.final, each.sequence) for each in store.manifests()]

    first = archivist(tmp_path)
    keep(first, 0, 5, is_end=True, at=10, records=10)
    assert names == [(0, True, 160)]
    keep(first, 1, 5, is_end=True, at=20, records=20)
    assert names == [(0, True, 160)], "the next one is due later"
    for at in range(2, 7):  # more than a replacement would need
        keep(first, 2, 5, is_end=False, at=100 * at, records=100_000 * at)
    assert [name for name in names if name[0] == 2] == [(2, False, 1600 * at) for at in range(2, 7)]
    files = tmp_path / "checkpoint" / "clonos" / "archive" / "state" / "2" / "0" / "files"
    before = {path.name for path in files.iterdir()}
    keep(archivist(tmp_path), 3, 9, is_end=True, at=1000, records=0)
    assert names[-1] == (3, True, 16_000)
    assert {path.name for path in files.iterdir()} == before, "another process stores nothing again"
    state.close()


def test_what_a_query_goes_on_with_is_kept_where_the_archive_was_not_on_before(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "state"))
    state.save(b"k", {"n": 1})

    def names_after(epoch: int, *, final: bool = True) -> list[int]:
        leaves = archivist(tmp_path)
        name = SnapshotName(Epoch(epoch), Fence(5), 0, final)
        leaves.keep_beginning(name, state, lambda: b"meta", LogOffset(10))
        if leaves._storing is not None:
            leaves._storing.join()
        return [each.epoch for each in Archive(str(tmp_path / "checkpoint")).states(ORIGIN).manifests()]

    assert names_after(3, final=False) == [], "inside an epoch, what is before it is missing"
    assert names_after(3) == [3] == names_after(3) == names_after(2)
    leaves = archivist(tmp_path)
    leaves.take(bundle(1, 1), Epoch(4))
    again = replace(request(), epoch=Epoch(4))
    leaves.cut(again, content(20), own_from=LOG_BEGIN, is_end=True)
    leaves.write_due()
    assert names_after(4) == [3], "it was on"
    assert names_after(6) == [3, 6]
    leaves.take(bundle(1, 1), Epoch(7))
    leaves.cut(replace(again, epoch=Epoch(7)), content(30), own_from=LogOffset(20), is_end=True)
    leaves.write_due()
    segments = Archive(str(tmp_path / "checkpoint")).segments(ORIGIN)
    last = [name for name in segments.names() if name.epoch == 7]
    segments.replace(last, [erased(each, at=1) for each in list(segments.read(last))])
    archive = Archive(str(tmp_path / "checkpoint"))
    archive.write_erasure(ErasurePlan(()))
    assert names_after(7) == [3, 6], "an erasure that goes on would take it for its own"
    archive.end_erasure()
    assert names_after(7) == [3, 6, 7], "that was erased"
    state.close()


def test_an_instance_does_not_wait_for_the_storage_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = KeyedState(str(tmp_path / "state"))
    answers = threading.Event()

    def asked(*_: Any) -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert answers.wait(60)

    monkeypatch.setattr(Archive, "begin_writing_of", asked)
    leaves = archivist(tmp_path)
    name = SnapshotName(Epoch(3), Fence(5), 0, True)
    leaves.keep_beginning(name, state, lambda: b"meta", LogOffset(10))
    state.save(b"k", {"n": "later"})
    answers.set()
    assert leaves._storing is not None
    leaves._storing.join()
    store = Archive(str(tmp_path / "checkpoint")).states(ORIGIN)
    (stored,) = store.manifests()
    found = store.named(str(stored))
    assert stored.epoch == 3 and found is not None
    store.restore(found, str(tmp_path / "as it was"))
    as_it_was = KeyedState(str(tmp_path / "as it was"))
    assert state.get(b"k") is not None and as_it_was.get(b"k") is None, (
        "the state is that of when it was begun"
    )
    as_it_was.close()
    state.close()


def test_what_a_killed_process_was_writing_goes(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint" / "clonos" / "archive" / "tmp"
    folder.mkdir(parents=True)
    for name in (f"2-0-{Fence(4).text}-0", f"2-0-{Fence(6).text}-0", f"2-1-{Fence(4).text}-0"):
        (folder / name).write_bytes(b"a secret")
    leaves = archivist(tmp_path)
    leaves.take(bundle(0, 3), Epoch(0))
    leaves.cut(request(), content(0), own_from=LOG_BEGIN, is_end=False)
    leaves.write_due()
    assert {path.name for path in folder.iterdir()} == {f"2-0-{Fence(6).text}-0", f"2-1-{Fence(4).text}-0"}

"""What a power failure leaves of files that were not synced: cut tails, tails of zeros, holes.

The files are made by the real stores and sinks; what the failure takes is taken from a copy.
"""

from __future__ import annotations

import os
import shutil
import struct
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from clonos import sinks
from clonos.errors import ConfigurationError, LogCorrupt, SinkError
from clonos.protocol.ids import Origin, channel_id
from clonos.sinks.appended_file import AppendedFileWriter
from clonos.sinks.port import SinkPosition
from clonos.spark.checkpoint import Checkpoint
from clonos.storage import boot
from clonos.storage.database import MIB
from clonos.storage.epoch_plan import keep_plan
from clonos.storage.log_store import LogReader, LogStore
from clonos.storage.salvage import salvage
from clonos_standby.server.fences import FenceTable

PIECE = 20_000
PAGE = 4096
WAL_BLOCK = 32 * 1024
WAL_HEADER = 7
WAL_BEGINS = (1, 2)
"""How RocksDB lays out a write-ahead log: header (checksum, length, kind) and payload, none over the end of a block;
the kinds of a whole record, and of the first part of one."""


HEAD = 8
"""Bytes of a fence file before its records."""


def append(store: LogStore, number: int) -> None:
    text = b"%06d" % number
    store.append([text + b"d" * PIECE], (store.end, text + b"o" * PIECE))


def write_ahead_logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


@pytest.fixture
def two_logs(tmp_path: Path) -> tuple[Path, int, int]:
    """A store in the moment in which RocksDB has begun a second write-ahead log, and has not made a table of the first
    one yet; how many pieces it holds, and how many of them the first one does."""
    live, before = tmp_path / "live", tmp_path / "before"
    with closing(LogStore(str(live), memory_bytes=MIB)) as store:
        first, number = write_ahead_logs(live)[-1].name, 0
        while write_ahead_logs(live)[-1].name == first:
            shutil.rmtree(before, ignore_errors=True)
            shutil.copytree(live, before)
            append(store, number)
            number += 1
        switched = number - 1
        for number in range(switched + 1, switched + 4):
            append(store, number)
        shutil.copy(write_ahead_logs(live)[-1], before)
        return before, number + 1, switched


def hole_that_looks_like_the_end_of_a_block(raw: bytes) -> tuple[int, int]:
    """From a page at whose beginning a record of a write-ahead log begins, to a block of which the same is true."""
    at, begins = 0, []
    while at + WAL_HEADER <= len(raw):
        if WAL_BLOCK - at % WAL_BLOCK < WAL_HEADER:
            at += WAL_BLOCK - at % WAL_BLOCK
        length, kind = struct.unpack_from("<HB", raw, at + 4)
        if kind in WAL_BEGINS and at % PAGE == 0:
            begins.append(at)
        at += WAL_HEADER + length
    low = next(at for at in begins if at)
    return low, next(at for at in begins if at > low and at % WAL_BLOCK == 0)


@pytest.fixture
def one_log_with_a_hole(tmp_path: Path) -> tuple[Path, int]:
    """A store of which pages in the middle of its only write-ahead log were not written back, and which has not been
    opened since; how many pieces it held."""
    live, after, count = tmp_path / "live", tmp_path / "after", 12_000
    with closing(LogStore(str(live))) as store:
        for number in range(count):
            text = b"%06d" % number
            store.append([], (store.end, text + b"o" * (number * 7 % 31)))
        shutil.copytree(live, after)
    (log,) = write_ahead_logs(after)
    raw = log.read_bytes()
    low, high = hole_that_looks_like_the_end_of_a_block(raw)
    log.write_bytes(raw[:low] + bytes(high - low) + raw[high:])
    return after, count


def test_nothing_is_believed_behind_a_hole_in_one_write_ahead_log(
    one_log_with_a_hole: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB passes over zeros where a record would begin, says nothing, and reads on behind them."""
    path, count = one_log_with_a_hole
    monkeypatch.setattr(boot, "boot_id", lambda: "after the power failure")
    with pytest.raises(LogCorrupt, match="zeros"):
        LogStore(str(path))
    with LogReader(str(path)) as reader:
        left = numbers(list(reader.own()))
        assert 0 < len(left) < count and left == list(range(len(left)))
        assert "zeros" in reader.corrupt[0]
    assert "zeros" in salvage(str(path), str(tmp_path / "aside"))
    with closing(LogStore(str(path))) as store:
        assert numbers(list(store.own())) == left and "zeros" in (store.damaged_before or "")
        append(store, len(left))
    with closing(LogStore(str(path))) as store:
        assert numbers(list(store.own())) == [*left, len(left)]


@pytest.mark.parametrize("zeros", [1, PAGE, 3 * PAGE])
def test_zeros_at_the_end_hide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zeros: int) -> None:
    live, after = tmp_path / "live", tmp_path / "after"
    with closing(LogStore(str(live))) as store:
        for number in range(100):
            append(store, number)
        shutil.copytree(live, after)
    (log,) = write_ahead_logs(after)
    log.write_bytes(log.read_bytes() + bytes(zeros))
    monkeypatch.setattr(boot, "boot_id", lambda: "after the power failure")
    with LogReader(str(after)) as reader:
        assert numbers(list(reader.own())) == list(range(100)) and not reader.corrupt
    with closing(LogStore(str(after))) as store:
        assert numbers(list(store.own())) == list(range(100))


def test_a_reader_that_cannot_tell_that_the_host_went_on_looks_for_holes(
    one_log_with_a_hole: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = one_log_with_a_hole
    for note, now in (
        (None, "this boot"),
        ("", ""),
        ("\0\0\0\0", "this boot"),
        ("an older boot", "this boot"),
    ):
        monkeypatch.setattr(boot, "boot_id", lambda now=now: now)
        (path / boot.NOTE).unlink(missing_ok=True)
        if note is not None:
            (path / boot.NOTE).write_text(note)
        with LogReader(str(path)) as reader:
            left = numbers(list(reader.own()))
        assert left == list(range(len(left))), note


def numbers(pieces: list[tuple[int, bytes]]) -> list[int]:
    return [int(data[:6]) for _, data in pieces]


def test_both_write_ahead_logs_are_read(two_logs: tuple[Path, int, int]) -> None:
    path, count, _ = two_logs
    assert len(write_ahead_logs(path)) == 2
    with LogReader(str(path)) as reader:
        assert numbers(list(reader.own())) == list(range(count)) and not reader.corrupt
    with closing(LogStore(str(path))) as store:
        assert numbers(list(store.own())) == list(range(count))
        assert len(list(store.deltas())) == count


def test_nothing_is_believed_behind_a_hole(two_logs: tuple[Path, int, int]) -> None:
    """The older write-ahead log has lost its end; what the newer one says depends on it."""
    path, _, switched = two_logs
    older = write_ahead_logs(path)[0]
    os.truncate(older, older.stat().st_size // 2)
    with LogReader(str(path)) as reader:
        left = numbers(list(reader.own()))
        assert 0 < len(left) < switched and left == list(range(len(left)))
        assert len(list(reader.deltas())) == len(left)
    with closing(LogStore(str(path))) as store:
        assert numbers(list(store.own())) == left and len(list(store.deltas())) == len(left)
        append(store, len(left))
    with closing(LogStore(str(path))) as store:
        assert numbers(list(store.own())) == [*left, len(left)]


# ------------------------------------------------------------------------------------------------ fences


@pytest.mark.parametrize("tail", [b"", b"\0" * 5, b"\0" * 20, b"\0" * PAGE, b"garbage of a last record"[:20]])
def test_the_last_fence_was_not_acted_upon(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "fences"
    with closing(FenceTable(path)) as table:
        table.fences.raise_to(Origin(1, 0), 5)
        table.fences.raise_to(Origin(2, 0), 7)
    path.write_bytes(path.read_bytes() + tail)
    with closing(FenceTable(path)) as table:
        assert (table.fences.fence(Origin(1, 0)), table.fences.fence(Origin(2, 0))) == (5, 7)
        assert table.fences.raise_to(Origin(1, 0), 8)
    with closing(FenceTable(path)) as table:
        assert (table.fences.fence(Origin(1, 0)), table.fences.fence(Origin(2, 0))) == (8, 7)


def test_a_fence_that_others_follow_was_acted_upon(tmp_path: Path) -> None:
    path = tmp_path / "fences"
    with closing(FenceTable(path)) as table:
        for fence in range(1, 5):
            table.fences.raise_to(Origin(1, 0), fence)
    raw = path.read_bytes()
    size = (len(raw) - HEAD) // 4
    second = HEAD + size
    path.write_bytes(raw[:second] + bytes(size) + raw[second + size :])
    with pytest.raises(ConfigurationError, match=f"corrupt at byte {second}"):
        FenceTable(path)


def test_a_fence_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fences"
    table = FenceTable(path)
    synced: list[int] = []
    real = os.fdatasync

    def sync(descriptor: int) -> None:
        real(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fdatasync", sync)
    with closing(table):
        assert table.fences.raise_to(Origin(1, 0), 5)
        assert table.fences.admit_standby(Origin(1, 0), 6)
        table.fences.raise_generation(3)
    size = (path.stat().st_size - HEAD) // 3
    assert synced == [HEAD + size, HEAD + 2 * size, HEAD + 3 * size]


# ----------------------------------------------------------------------------------------------- Spark's files


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The files and directories that have been synced."""
    found: set[str] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def spark_log(checkpoint: Path, **epochs: range) -> None:
    for folder, numbers in epochs.items():
        (checkpoint / folder).mkdir()
        for number in numbers:
            (checkpoint / folder / str(number)).write_text("v1\n{}")


def test_what_an_epoch_reads_is_synced_before_it_begins(tmp_path: Path, synced: set[str]) -> None:
    """Or it comes out with other records than those of which something is kept."""
    spark_log(tmp_path, offsets=range(4))
    keep_plan(str(tmp_path), 3)
    assert synced == {str(tmp_path / "offsets" / "3"), str(tmp_path / "offsets")}
    keep_plan(str(tmp_path), 4)  # it is kept elsewhere


def test_a_start_syncs_what_it_begins_behind(tmp_path: Path, synced: set[str]) -> None:
    """What an epoch that was committed has left would be looked for in vain if the epoch came again."""
    spark_log(tmp_path, offsets=range(5), commits=range(4))
    Checkpoint(str(tmp_path)).sync_spark_files()
    wanted = ["offsets", "offsets/3", "offsets/4", "commits", "commits/3"]
    assert synced == {str(tmp_path / name) for name in wanted}


# ----------------------------------------------------------------------------------------------- a sink's files

CHANNEL = channel_id(3, 0)
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def rows(begin: int) -> list[tuple[int, str]]:
    return [(number, "x" * 200) for number in range(begin, begin + 100)]


def ids(given: list[tuple[int, str]]) -> list[str]:
    return [f"3-0-{number}" for number, _ in given]


def opened(folder: Path, fence: int) -> tuple[AppendedFileWriter, SinkPosition]:
    sink = sinks.jsonl(folder)
    sink.validate(SCHEMA)
    writer = sink.writer()
    return writer, writer.open(query="q", node=1, instance=0, fence=fence)


@pytest.mark.parametrize("bundles", [1, 3])
@pytest.mark.parametrize("page", [0, 1, 2, 4])
def test_a_hole_in_the_visible_file_is_filled(tmp_path: Path, bundles: int, page: int) -> None:
    """Later pages were written back and an earlier one was not: it reads as zeros, which are in no line."""
    folder = tmp_path / "rows"
    writer, _ = opened(folder, 1)
    for number in range(bundles):
        given = rows(number * 100)
        writer.write(given, ids(given), {CHANNEL: given[-1][0]}, [b"delta"])
    writer.close()
    visible = next(folder.glob("part-*"))
    whole = visible.read_bytes()
    visible.write_bytes(whole[: page * PAGE] + bytes(PAGE) + whole[(page + 1) * PAGE :])
    writer, position = opened(folder, 2)
    writer.close()
    assert visible.read_bytes() == whole and position.cursors == {CHANNEL: bundles * 100 - 1}


def test_other_bytes_still_count_as_another_programs(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    writer, _ = opened(folder, 1)
    writer.write(rows(0), ids(rows(0)), {CHANNEL: 99}, [b"delta"])
    writer.close()
    visible = next(folder.glob("part-*"))
    whole = bytearray(visible.read_bytes())
    whole[100] ^= 1
    visible.write_bytes(bytes(whole))
    with pytest.raises(SinkError, match="changed by another program"):
        opened(folder, 2)

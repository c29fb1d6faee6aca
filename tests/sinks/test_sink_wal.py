"""The write-ahead log's bytes: golden, cut anywhere, damaged anywhere."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from sink_child import CHANNEL, SCHEMA, bundle
from sink_support import QUERY, expected, file_rows

from clonos import sinks
from clonos.errors import ClonosError, LogCorrupt, QueryDefinitionError, SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.roles.sink_fence import Holder
from clonos.sinks import appended_file, sink_wal, wal_files
from clonos.sinks.patience import Patience
from clonos.sinks.wal_format import HEADER, Kind, Record, Tail, decode, encode, scan

GOLDEN_RECORDS = [
    Record(kind=Kind.BASE, start=7, cursors={3: 9, -1: 1 << 40}),
    Record(kind=Kind.BUNDLE, start=7, cursors={3: 11}, deltas=[b"", b"delta"], rows=b'{"a":1}\n{"a":2}\n'),
    Record(kind=Kind.INTENT, cursors={3: 12}, deltas=[b"\xff"]),
    Record(kind=Kind.DONE, cursors={3: 12}),
    Record(kind=Kind.KEPT, deltas=[b"kept"]),
]
GOLDEN = (
    "434c574101000000310000000d17ad5c01070000000000000002000000ffffffffffffffff0000000000010000030000"
    "00000000000900000000000000000000003e00000069a6ee760207000000000000000100000003000000000000000b00"
    "00000000000002000000000000000500000064656c74617b2261223a317d0a7b2261223a327d0a26000000fe39773b03"
    "00000000000000000100000003000000000000000c000000000000000100000001000000ff21000000a1f71590040000"
    "0000000000000100000003000000000000000c000000000000000000000019000000df79f2db05000000000000000000"
    "00000001000000040000006b657074"
)


def test_golden_bytes() -> None:
    data = HEADER + b"".join(encode(each) for each in GOLDEN_RECORDS)
    assert data.hex() == GOLDEN
    found = scan(bytes.fromhex(GOLDEN))
    assert (found.records, found.length, found.tail) == (GOLDEN_RECORDS, len(data), Tail.CLEAN)


def test_golden_fence(tmp_path: Path) -> None:
    path = tmp_path / "fence"
    holder = Holder(Fence.of(1, 0, 1), "0123456789abcdef")
    wal_files.write_fence(path, holder, durable=True)
    assert path.read_text() == "clonos-fence 2 00000000000000010000000000000001 0123456789abcdef 82888c7b\n"
    assert wal_files.read_fence(path) == holder
    wal_files.write_fence(path, Holder(Fence.of(1)), durable=True)
    assert path.read_text() == "clonos-fence 2 00000000000000010000000000000000 - b21cc656\n"
    assert wal_files.read_fence(path) == Holder(Fence.of(1))
    assert wal_files.read_fence(tmp_path / "other") == Holder()


def test_a_fence_of_64_bits_is_read_as_what_it_meant(tmp_path: Path) -> None:
    path = tmp_path / "fence"
    path.write_text("clonos-fence 1 281474976710657 18e03a0f\n")
    assert wal_files.read_fence(path) == Holder(Fence.of(1, 0, 1))
    for damaged in ("", "clonos-fence 1 281474976710658 18e03a0f\n", "clonos-fence 2 1 00000000\n", "\xff"):
        path.write_bytes(damaged.encode("latin-1"))
        with pytest.raises(LogCorrupt, match="fence file"):
            wal_files.read_fence(path)


RECORDS = st.builds(
    Record,
    kind=st.sampled_from(Kind),
    start=st.integers(0, 2**64 - 1),
    cursors=st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), max_size=4),
    deltas=st.lists(st.binary(max_size=20), max_size=4),
    rows=st.binary(max_size=40),
)


@given(st.lists(RECORDS, max_size=4), st.data())
def test_every_cut_leaves_a_prefix(records: list[Record], data: st.DataObject) -> None:
    whole = HEADER + b"".join(encode(each) for each in records)
    cut = data.draw(st.integers(len(HEADER), len(whole)))
    found = scan(whole[:cut])
    assert found.records == records[: len(found.records)]
    assert found.tail is (Tail.CLEAN if found.length == cut else Tail.TORN)


@given(st.lists(RECORDS, min_size=1, max_size=4), st.data())
def test_every_damage_is_noticed(records: list[Record], data: st.DataObject) -> None:
    whole = bytearray(HEADER + b"".join(encode(each) for each in records))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    found = scan(bytes(whole))
    assert found.tail is not Tail.CLEAN
    assert found.records == records[: len(found.records)]
    assert len(found.records) < len(records)


@given(st.binary(max_size=80))
def test_any_payload_decodes_or_is_corrupt(payload: bytes) -> None:
    try:
        record = decode(payload)
    except LogCorrupt:
        return
    assert isinstance(record.kind, Kind)


def test_a_tail_of_zeros_is_torn() -> None:
    whole = HEADER + encode(GOLDEN_RECORDS[0])
    found = scan(whole + bytes(4096))
    assert (found.length, found.tail) == (len(whole), Tail.TORN)
    assert scan(whole + bytes(100) + b"x").tail is Tail.CORRUPT


def jsonl(folder: Path, **options: Any) -> Any:
    sink = sinks.JsonlSink(folder, **{"patience": 0, "durable": False, **options})
    sink.validate(SCHEMA)
    return sink


def opened(sink: Any, fence: int = 1) -> Any:
    writer = sink.writer()
    writer.open(query=QUERY, node=5, instance=0, fence=fence)
    return writer


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A folder with three bundles of two rows, its visible file and the segment in use."""
    folder = tmp_path / "whole"
    with closing(opened(jsonl(folder))) as writer:
        for first in (1, 3, 5):
            writer.write(**bundle(first, first + 1))
    (segment,) = folder.glob("_clonos/*/5-0/ahead-*.log")
    (visible,) = folder.glob("*.jsonl")
    return folder, visible, segment


def go_on(folder: Path) -> int:
    """Open the rest of the log and write up to row 8; where the writer started."""
    with closing(jsonl(folder).writer()) as writer:
        at = writer.open(query=QUERY, node=5, instance=0, fence=2).cursors.get(CHANNEL, 0)
        if at < 8:
            writer.write(**bundle(at + 1, 8))
    assert file_rows(folder) == expected(8)
    return int(at)


def copy(written: tuple[Path, Path, Path], target: Path) -> tuple[Path, Path, Path]:
    folder, visible, segment = written
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    return target, target / visible.relative_to(folder), target / segment.relative_to(folder)


def test_a_visible_file_cut_at_any_byte_is_finished(written: tuple[Path, Path, Path], tmp_path: Path) -> None:
    whole = written[1].read_bytes()
    for length in range(len(whole) + 1):
        folder, visible, _ = copy(written, tmp_path / "copy")
        visible.write_bytes(whole[:length])
        assert go_on(folder) == 6


def test_zeros_that_a_power_failure_left_are_mended(written: tuple[Path, Path, Path], tmp_path: Path) -> None:
    whole = written[1].read_bytes()
    for length in range(len(whole)):
        folder, visible, _ = copy(written, tmp_path / "copy")
        visible.write_bytes(whole[:length] + bytes(len(whole) - length))
        assert go_on(folder) == 6


def test_a_log_cut_before_anything_was_visible_is_cut(
    written: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """The crash is in the third bundle's record; two bundles are visible."""
    log, lines = written[2].read_bytes(), written[1].read_bytes().splitlines(keepends=True)
    third = len(log) - len(encode(scan(log).records[-1]))
    for length in range(third, len(log)):
        folder, visible, segment = copy(written, tmp_path / "copy")
        segment.write_bytes(log[:length])
        visible.write_bytes(b"".join(lines[:4]))
        assert go_on(folder) == 4


def test_rows_whose_record_is_gone_stop_the_query(written: tuple[Path, Path, Path], tmp_path: Path) -> None:
    log = written[2].read_bytes()
    third = len(log) - len(encode(scan(log).records[-1]))
    for length in range(third, len(log)):
        folder, _, segment = copy(written, tmp_path / "copy")
        segment.write_bytes(log[:length])
        with pytest.raises(LogCorrupt):
            opened(jsonl(folder), fence=2)


def test_damage_anywhere_never_makes_a_wrong_row(written: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Every byte of the log in turn: the query stops, and nothing that was visible changes."""
    log, rows = written[2].read_bytes(), written[1].read_bytes()
    for at in range(len(log)):
        folder, visible, segment = copy(written, tmp_path / "copy")
        segment.write_bytes(log[:at] + bytes([log[at] ^ 0x41]) + log[at + 1 :])
        with pytest.raises(LogCorrupt), closing(jsonl(folder).writer()) as writer:
            writer.open(query=QUERY, node=5, instance=0, fence=2)
        assert visible.read_bytes() == rows


def test_a_visible_file_that_others_changed_is_refused(
    written: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    whole = written[1].read_bytes()
    for changed in (whole + b"{}\n", whole.replace(b"card", b"CARD", 1)):
        folder, visible, _ = copy(written, tmp_path / "copy")
        visible.write_bytes(changed)
        with pytest.raises(ClonosError) as caught, closing(jsonl(folder).writer()) as writer:
            writer.open(query=QUERY, node=5, instance=0, fence=2)
        assert not caught.value.retryable
    folder, visible, _ = copy(written, tmp_path / "copy")
    go_on(folder)
    visible.unlink()
    with pytest.raises(SinkError, match="has 0 bytes of the"):
        opened(jsonl(folder), fence=3)
    with closing(opened(jsonl(tmp_path / "other"))) as writer:
        writer.write(**bundle(1, 2))
        (visible,) = (tmp_path / "other").glob("*.jsonl")
        with open(visible, "ab") as file:
            file.write(b"{}\n")
        with pytest.raises(SinkError, match="changed by another program"):
            writer.write(**bundle(3, 4))


def removed(visible: Path) -> None:
    visible.unlink()


def renamed(visible: Path) -> None:
    visible.rename(visible.with_suffix(".1"))


def rotated(visible: Path) -> None:
    renamed(visible)
    visible.touch()


def replaced(visible: Path) -> None:
    """By an equal file, as an editor does."""
    copied = visible.with_suffix(".new")
    shutil.copy(visible, copied)
    copied.replace(visible)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (removed, "removed or renamed"),
        (renamed, "removed or renamed"),
        (rotated, "replaced by another file"),
        (replaced, "replaced by another file"),
    ],
)
def test_a_visible_file_that_lost_its_name_is_noticed(how: Any, words: str, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    with closing(opened(jsonl(folder))) as writer:
        writer.write(**bundle(1, 2))
        (visible,) = folder.glob("*.jsonl")
        held = visible.read_bytes()
        how(visible)
        with pytest.raises(SinkError, match=f"{visible} was {words}.*Put it back under this name") as caught:
            writer.write(**bundle(3, 4))
        assert not caught.value.retryable
    visible.write_bytes(held)
    with closing(opened(jsonl(folder), fence=2)) as writer:
        writer.write(**bundle(3, 4))
    assert file_rows(folder) == expected(4)


def test_a_file_that_lost_its_name_between_two_tries_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "rows"
    with closing(opened(jsonl(folder))) as writer:
        writer._patience = Patience(30, sleep=lambda _: None)
        (visible,) = folder.glob("*.jsonl")

        def lose(*_: object) -> None:
            visible.unlink(missing_ok=True)
            raise OSError("disk")

        monkeypatch.setattr(appended_file, "write_all", lose)
        with pytest.raises(SinkError, match="removed or renamed"):
            writer.write(**bundle(1, 2))


def test_a_log_that_vanished_is_not_begun_anew(written: tuple[Path, Path, Path]) -> None:
    shutil.rmtree(written[0] / "_clonos")
    with pytest.raises(LogCorrupt, match="its log explains 0"):
        opened(jsonl(written[0]), fence=2)


def test_segments_are_begun_trimmed_and_read_meanwhile(tmp_path: Path) -> None:
    sink = jsonl(tmp_path, segment_bytes=200)
    with closing(opened(sink)) as writer, closing(sink.log_reader(QUERY)) as reader:
        for position in range(1, 21):
            writer.write(**bundle(position, position))
        assert len(list(reader.deltas())) == 20
        dropped = sink.truncate(QUERY, 9, lambda each: each == b"delta up to 5")
        left = list(reader.deltas())
        assert len(left) == 20 - dropped
        assert left[0] == b"delta up to 5"
        assert left[-1] == b"delta up to 20"
        assert dropped >= 15
        assert sink.truncate(QUERY, 9, lambda each: each == b"delta up to 5") == 0
        assert len(list(tmp_path.glob("_clonos/*/5-0/ahead-*.log"))) == 2
        writer.write(**bundle(21, 21))
        assert reader.cursors() == {(5, 0): {CHANNEL: 21}}
        assert reader.corrupt == []
    assert file_rows(tmp_path) == expected(21)


def test_a_damaged_older_segment_is_reported_and_kept(tmp_path: Path) -> None:
    sink = jsonl(tmp_path, segment_bytes=1)
    with closing(opened(sink)) as writer:
        for position in range(1, 4):
            writer.write(**bundle(position, position))
    oldest = min(tmp_path.glob("_clonos/*/5-0/ahead-*.log"))
    data = bytearray(oldest.read_bytes())
    data[12] ^= 1
    oldest.write_bytes(data)
    with closing(sink.log_reader(QUERY)) as reader:
        assert list(reader.deltas()) == [b"delta up to 2", b"delta up to 3"]
        assert reader.corrupt == [f"{oldest}: byte 8"]
    sink.truncate(QUERY, 9, lambda _: False)
    assert oldest.exists()


def test_a_torn_tail_is_cut_before_the_next_segment(tmp_path: Path) -> None:
    """So that a segment that is not the newest never ends torn, and one that does is damaged."""
    sink = jsonl(tmp_path)
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 2))
    (segment,) = tmp_path.glob("_clonos/*/5-0/ahead-*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole + b"torn")
    with closing(opened(sink, 2)) as writer, closing(sink.log_reader(QUERY)) as reader:
        assert segment.read_bytes() == whole
        writer.write(**bundle(3, 4))
        segment.write_bytes(whole[:-1])
        assert list(reader.deltas()) == [b"delta up to 4"]
        assert reader.corrupt == [f"{segment}: byte {len(whole) - len(encode(scan(whole).records[-1]))}"]
        assert sink.truncate(QUERY, 9, lambda _: False) == 0


def test_a_lock_held_elsewhere_only_delays(tmp_path: Path) -> None:
    sink = jsonl(tmp_path, patience=120)
    with closing(opened(sink)) as writer:
        lock = next(tmp_path.glob("_clonos/*/5-0/lock"))
        writing = threading.Thread(target=lambda: writer.write(**bundle(1, 2)))
        waiting = threading.Event()
        writer._patience._sleep = lambda _: waiting.set()
        with wal_files.locked(lock):
            writing.start()
            assert waiting.wait(120)
            assert file_rows(tmp_path) == []
        writing.join(120)
    assert file_rows(tmp_path) == expected(2)


@pytest.mark.parametrize("where", ["log", "rows"])
def test_a_failing_disk_delays_and_the_same_bundle_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Writes fail half-way: once within patience, then until patience ends."""
    from clonos.sinks import appended_file

    module: Any = sink_wal if where == "log" else appended_file
    whole, failures = module.write_all, [1]

    def failing(descriptor: int, data: bytes, offset: int) -> None:
        if failures[0]:
            failures[0] -= 1
            whole(descriptor, data[: len(data) // 2], offset)
            raise OSError(28, "No space left on device")
        whole(descriptor, data, offset)

    monkeypatch.setattr(module, "write_all", failing)
    with closing(opened(jsonl(tmp_path, patience=120))) as writer:
        writer.write(**bundle(1, 2))
        writer._patience.seconds = 0
        failures[0] = 1
        with pytest.raises(SinkUnavailable, match="disk is full"):
            writer.write(**bundle(3, 4))
        writer.write(**bundle(3, 4))
        failures[0] = 1
        with pytest.raises(SinkUnavailable):
            writer.write(**bundle(5, 6))
    assert go_on(tmp_path) == (4 if where == "log" else 6)


def test_paths_that_are_not_local_are_refused(tmp_path: Path) -> None:
    for wrong in ("hdfs://host/rows", "file://other/rows", ""):
        with pytest.raises(QueryDefinitionError):
            sinks.jsonl(wrong)
    assert wal_files.local_path("file:///a%20b/c", "x") == "/a b/c"
    assert wal_files.local_path(tmp_path, "x") == str(tmp_path)


@pytest.mark.parametrize("query", ["../../evil", "a/b", "..", ".", "ü:%"])
def test_a_query_id_cannot_leave_the_folder(tmp_path: Path, query: str) -> None:
    with closing(jsonl(tmp_path / "rows").writer()) as writer:
        writer.open(query=query, node=5, instance=0, fence=1)
        writer.write(**bundle(1, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]
    assert file_rows(tmp_path / "rows") == expected(2)
    assert sorted(path.name for path in (tmp_path / "rows").iterdir() if path.is_dir()) == ["_clonos"]


def test_segments_have_more_digits_where_ten_do_not_do(tmp_path: Path) -> None:
    sink = jsonl(tmp_path)
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 2))
    (segment,) = tmp_path.glob("_clonos/*/5-0/ahead-*.log")
    segment.rename(segment.with_name("ahead-9999999999.log"))
    for fence in (2, 3):
        with closing(opened(sink, fence)) as writer:
            writer.write(**bundle(2 * fence - 1, 2 * fence))
    assert sorted(path.name for path in segment.parent.glob("ahead-*.log")) == [
        "ahead-10000000000.log",
        "ahead-10000000001.log",
        "ahead-9999999999.log",
    ]
    with closing(sink.log_reader(QUERY)) as reader:
        assert list(reader.deltas()) == [b"delta up to 2", b"delta up to 4", b"delta up to 6"]
    assert file_rows(tmp_path) == expected(6)


def test_the_names_of_new_directories_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a power failure takes the log with the directory that it is in."""
    synced: set[str] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    sink = sinks.jsonl(tmp_path / "deep" / "rows")
    sink.validate(SCHEMA)
    with closing(sink.writer()) as writer:
        writer.open(query=QUERY, node=1, instance=0, fence=Fence.of(1))
    made = [path for path in (tmp_path / "deep").rglob("*") if path.is_dir()]
    assert len(made) == 4 and {str(path.parent) for path in [tmp_path / "deep", *made]} <= synced


class Long(bytes):
    """As long as no test has memory for."""

    def __len__(self) -> int:
        return 1 << 33


def test_a_record_that_is_too_large_is_refused() -> None:
    for record in (Record(kind=Kind.BUNDLE, deltas=[Long()]), Record(kind=Kind.BUNDLE, rows=Long())):
        with pytest.raises(
            SinkError, match=r"bytes does not fit into one record.*spark\.clonos\.bundle\.rows"
        ):
            encode(record)


@contextlib.contextmanager
def longest_file(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_may_not_grow_ends_the_query_and_is_gone_on_with_when_it_may(tmp_path: Path) -> None:
    sink = jsonl(tmp_path, segment_bytes=1)
    with closing(opened(sink)) as writer:
        for first in range(1, 99, 2):
            writer.write(**bundle(first, first + 1))
        (visible,) = tmp_path.glob("*.jsonl")
        with longest_file(visible.stat().st_size + 30), pytest.raises(SinkError, match="ulimit -f") as raised:
            writer.write(**bundle(99, 100))
        assert not raised.value.retryable
    with closing(opened(sink, 2)) as writer:
        writer.write(**bundle(101, 102))
    assert file_rows(tmp_path) == expected(102)

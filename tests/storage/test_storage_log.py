"""Causal logs on disk: all of an append or nothing, readable by others, and no damaged byte ever returned."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from rocksdict import Rdict

from clonos.errors import CounterExhausted, LogConflict, LogCorrupt, StateError, StorageUnavailable
from clonos.protocol.counters import LAST_LONG
from clonos.protocol.fence import Fence
from clonos.protocol.recovery.causal.own_log import Writer
from clonos.storage.database import MIB
from clonos.storage.log_store import LogReader, LogStore
from clonos.values.sealed_value import seal


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    store = LogStore(str(tmp_path / "log"))
    yield store
    store.close()


def path_of(store: LogStore) -> str:
    return store._database.path


def read(path: str | Path) -> tuple[list[tuple[int, bytes]], list[bytes], list[str]]:
    with LogStore.read_only(str(path)) as reader:
        return list(reader.own()), list(reader.deltas()), reader.corrupt


def test_owner_reader_and_the_next_owner_see_the_same(store: LogStore) -> None:
    store.append([b"d1", b"d2"], (0, b"abc"))
    store.append([b"d3"], None)
    store.append([], (3, b"de"))
    store.append([], None)
    store.append([b""], (5, b""))
    own, deltas = [(0, b"abc"), (3, b"de")], [b"d1", b"d2", b"d3", b""]
    assert (list(store.own()), list(store.deltas()), store.end) == (own, deltas, 5)
    assert read(path_of(store)) == (own, deltas, [])
    store.close()
    again = LogStore(path_of(store))
    assert (list(again.own()), list(again.deltas()), again.end) == (own, deltas, 5)
    again.append([b"d4"], (5, b"f"))
    assert list(again.deltas()) == [*deltas, b"d4"]
    again.close()


def test_incarnations_of_64_bit_fences_are_read_as_what_they_meant(store: LogStore) -> None:
    key = b"\x00incarnations"
    store._database.put(key, seal(struct.pack(">QQ", 3 << 48 | 7 << 16 | 2, 40), key))
    assert store.incarnations() == (Writer(Fence.of(3, 7, 2), 40),)
    store.begin(Writer(Fence.of(4, 1), 50))
    assert store.incarnations() == (Writer(Fence.of(3, 7, 2), 40), Writer(Fence.of(4, 1), 50))
    with LogStore.read_only(path_of(store)) as reader:
        assert reader.incarnations() == store.incarnations()


def test_who_wrote_it_is_kept_where_there_are_standbys(store: LogStore) -> None:
    assert store.incarnations() is None
    store.begin(None)
    assert store.incarnations() == ()
    store.begin(Writer(5, 0))
    store.begin(Writer(6, 0))  # the same one, in the next epoch
    store.append([], (0, b"0123456789"))
    store.begin(Writer(9, 4))
    store.begin(Writer(11, 8, copy=True))
    writers = (Writer(6, 0), Writer(9, 4), Writer(11, 8, copy=True))
    with LogStore.read_only(path_of(store)) as reader:
        assert reader.incarnations() == writers
    store.truncate_own(4)  # in the middle of a piece, which stays
    assert store.incarnations() == writers
    store.append([], (10, b"more"))
    store.truncate_own(10)
    assert store.incarnations() == writers[1:]
    store._database.put(b"\x00incarnations-2", b"broken")
    with pytest.raises(LogCorrupt, match="the incarnations"):
        store.incarnations()


def test_a_reader_does_not_follow_and_does_not_disturb_the_owner(store: LogStore) -> None:
    store.append([], (0, b"a"))
    with LogStore.read_only(path_of(store)) as reader:
        store.append([], (1, b"b"))
        assert list(reader.own()) == [(0, b"a")]
    assert list(store.own()) == [(0, b"a"), (1, b"b")]


def test_a_reader_sees_everything_while_the_owner_flushes_and_compacts(tmp_path: Path) -> None:
    store = LogStore(str(tmp_path / "log"), memory_bytes=MIB)
    # With a write buffer of this size the owner flushes during about one in seven of the openings below, after which
    # a reader that does not look twice has a hole in the middle of the log.
    piece = os.urandom(20_000)
    offset = 0
    for number in range(600):
        store.append([piece[:100]], (offset, piece))
        offset += len(piece)
        if number % 20 == 19:
            own, deltas, corrupt = read(tmp_path / "log")
            assert (len(own), len(deltas), corrupt) == (number + 1, number + 1, [])
    assert list((tmp_path / "log").glob("*.sst"))
    store.close()


def test_a_reader_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no causal log"):
        LogStore.read_only(str(tmp_path / "log"))
    assert not (tmp_path / "log").exists()


def test_two_owners_are_refused(store: LogStore) -> None:
    with pytest.raises(StorageUnavailable, match="still has it open"):
        LogStore(path_of(store))


def test_close_with_a_walk_under_way_frees_the_lock(store: LogStore) -> None:
    store.append([b"1", b"2"], None)
    walk = store.deltas()
    next(walk)
    store.close()
    LogStore(path_of(store)).close()
    with pytest.raises(StateError, match="closed"):
        list(walk)
    with pytest.raises(StateError, match="closed"):
        store.append([b"x"], None)


# The own log


def test_a_piece_that_contradicts_what_is_there_is_refused_and_changes_nothing(store: LogStore) -> None:
    store.append([], (0, b"abcd"))
    with pytest.raises(LogConflict, match="between offsets 2 and 4"):
        store.append([b"delta"], (2, b"cX"))
    assert (list(store.own()), list(store.deltas()), store.end) == ([(0, b"abcd")], [], 4)


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 4), max_size=6),
    before=st.integers(0, 24),
    cut=st.integers(0, 24),
)
def test_truncating_and_cutting_keep_exactly_the_rest(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], before: int, cut: int
) -> None:
    path = tmp_path_factory.mktemp("log")
    store = LogStore(str(path), memory_bytes=MIB)
    whole = bytes(range(100))
    end = 0
    for length in lengths:
        store.append([], (end, whole[end : end + length]))
        end += length
    store.truncate_own(before)
    pieces = list(store.own())
    kept = b"".join(piece for _, piece in pieces)
    start = pieces[0][0] if pieces else end
    assert kept == whole[start:end]
    assert start <= max(before, 0) or not pieces
    assert all(offset + len(piece) > before for offset, piece in pieces)
    store.rewrite_own(cut, [])
    pieces = list(store.own())
    assert b"".join(piece for _, piece in pieces) == whole[start : max(start, min(cut, end))]
    if pieces:
        assert store.end == min(cut, end)
        store.append([], (store.end, b"new"))
        assert list(store.own())[-1] == (min(cut, end), b"new")
    store.close()
    shutil.rmtree(path)


# Deltas


def test_folding_keeps_every_byte_and_the_order(store: LogStore) -> None:
    for number in range(10):
        store.append([b"<%d>" % number], (2 * number, b"ab"))
    store.fold(b"".join)
    assert list(store.own()) == [(0, b"ab" * 10)]
    assert list(store.deltas()) == [b"".join(b"<%d>" % number for number in range(10))]
    store.append([b"x"], (20, b"c"))
    store.append([b"y"], (21, b"d"))
    store.append([], (30, b"beyond a gap"))
    store.fold(b"".join)
    own = [(0, b"ab" * 10), (20, b"c"), (21, b"d"), (30, b"beyond a gap")]
    deltas = [b"".join(b"<%d>" % number for number in range(10)), b"xy"]
    assert (list(store.own()), list(store.deltas())) == (own, deltas)
    store.close()
    again = LogStore(path_of(store))
    again.append([b"z"], (42, b"e"))
    assert read(path_of(store)) == ([*own, (42, b"e")], [*deltas, b"z"], [])
    again.fold(b"".join)
    again.truncate_own(25)
    again.truncate_deltas(lambda raw: b"z" in raw)
    assert list(again.own()) == [(30, b"beyond a gap"), (42, b"e")]
    assert list(again.deltas()) == [b"".join([*deltas, b"z"])]
    again.close()


def test_truncating_deltas_keeps_the_order_of_the_rest_and_of_later_ones(store: LogStore) -> None:
    store.append([b"%d" % number for number in range(10)], None)
    store.truncate_deltas(lambda delta: int(delta) % 3 == 0)
    store.append([b"12"], None)
    assert list(store.deltas()) == [b"0", b"3", b"6", b"9", b"12"]
    store.truncate_deltas(lambda delta: False)
    assert list(store.deltas()) == []
    store.close()
    again = LogStore(path_of(store))
    again.append([b"x"], None)
    assert list(again.deltas()) == [b"x"]
    again.close()


# Damage


def corrupt_value(path: str, key: bytes, change: int = 1) -> None:
    raw = Rdict(path)
    value = bytearray(raw[key])
    value[-1] ^= change
    raw[key] = bytes(value)
    raw.close()


def test_a_damaged_entry_is_an_error_for_the_owner_and_left_out_and_reported_by_a_reader(
    store: LogStore,
) -> None:
    store.append([b"d0", b"d1", b"d2"], (0, b"abc"))
    store.append([], (3, b"def"))
    store.close()
    path = path_of(store)
    corrupt_value(path, b"d" + (1).to_bytes(8, "big"))
    corrupt_value(path, b"o" + bytes(8))
    own, deltas, corrupt = read(path)
    assert (own, deltas) == ([(3, b"def")], [b"d0", b"d2"])
    assert len(corrupt) == 2
    assert "own log at offset 0" in corrupt[0] and path in corrupt[0]
    assert "delta 1" in corrupt[1]
    owner = LogStore(path)
    with pytest.raises(LogCorrupt, match=r"delta 1 .* is damaged"):
        list(owner.deltas())
    with pytest.raises(LogCorrupt, match="own log at offset 0"):
        list(owner.own())
    owner.close()


def test_an_owner_does_not_go_on_after_a_damaged_end(store: LogStore) -> None:
    store.append([], (0, b"abc"))
    store.close()
    corrupt_value(path_of(store), b"o" + bytes(8))
    with pytest.raises(LogCorrupt, match="offset 0"):
        LogStore(path_of(store))
    Rdict(path_of(store)).close()


def write_ahead_log(path: str) -> Path:
    (found,) = Path(path).glob("*.log")
    return found


def test_damage_in_the_middle_of_the_write_ahead_log_is_reported_and_only_a_prefix_returned(
    store: LogStore,
) -> None:
    for number in range(50):
        store.append([], (number * 10, b"%010d" % number))
    with open(write_ahead_log(path_of(store)), "r+b") as file:
        file.seek(1000)
        file.write(b"\xff" * 20)
    # Closing would write the log out of memory, whole: a copy made before is what a death leaves behind.
    copy = shutil.copytree(path_of(store), path_of(store) + "-copy")
    own, _, corrupt = read(copy)
    assert len(corrupt) == 1 and "damaged" in corrupt[0]
    assert 0 < len(own) < 50
    assert own == [(number * 10, b"%010d" % number) for number in range(len(own))]
    with pytest.raises(LogCorrupt, match="damaged"):
        LogStore(copy)


def test_a_write_ahead_log_cut_off_in_an_append_loses_that_append_whole(store: LogStore) -> None:
    store.append([b"first"], (0, b"a"))
    size = write_ahead_log(path_of(store)).stat().st_size
    store.append([b"second"], (1, b"b"))
    full = write_ahead_log(path_of(store)).stat().st_size
    assert full > size
    for end in range(size, full):
        copy = shutil.copytree(path_of(store), f"{path_of(store)}-{end}")
        os.truncate(write_ahead_log(copy), end)
        assert read(copy) == ([(0, b"a")], [b"first"], [])
        owner = LogStore(copy)
        assert (list(owner.own()), list(owner.deltas())) == ([(0, b"a")], [b"first"])
        owner.append([b"again"], (1, b"c"))
        assert read(copy)[1] == [b"first", b"again"]
        owner.close()
        shutil.rmtree(copy)


def test_a_log_without_one_of_its_tables_is_refused_and_not_read_in_part(store: LogStore) -> None:
    store.append([b"x" * 1000] * 10, None)
    store.close()
    for table in Path(path_of(store)).glob("*.sst"):
        table.unlink()
    for opening in (LogStore, LogStore.read_only):
        with pytest.raises(LogCorrupt, match="damaged"):
            opening(path_of(store))


def test_another_format_is_refused(store: LogStore) -> None:
    store.append([b"x"], None)
    store.close()
    corrupt_value(path_of(store), b"\x00format", change=8)
    with pytest.raises(LogCorrupt, match="clonos-log-9"):
        LogStore(path_of(store))
    with pytest.raises(LogCorrupt, match="clonos-log-9"):
        LogStore.read_only(path_of(store))


def test_the_format_of_a_log_is_what_was_written_before(store: LogStore) -> None:
    store.append([b"delta"], (258, b"own"))
    found = {key.hex(): value.hex() for key, value in store._database.cursor(b"", None)}
    assert found == {
        b"\x00format".hex(): b"clonos-log-1".hex(),
        b"d".hex() + "0000000000000000": "01" + "3170ab14" + b"delta".hex(),
        b"o".hex() + "0000000000000102": "01" + "5efb853f" + b"own".hex(),
    }


# The death of the owner

APPENDER = """
import sys
from clonos.storage.log_store import LogStore
store = LogStore(sys.argv[1], memory_bytes=1 << 20)
offset = number = 0
while True:
    piece = b"%d" % number * 100
    store.append([b"delta %d" % number], (offset, piece))
    offset += len(piece)
    number += 1
    print(number, flush=True)
"""


@pytest.mark.parametrize("acknowledged", [1, 400, 4000])
def test_after_sigkill_a_reader_and_the_next_owner_see_every_acknowledged_append(
    tmp_path: Path, root: Path, acknowledged: int
) -> None:
    path = str(tmp_path / "log")
    with subprocess.Popen(
        [sys.executable, "-c", APPENDER, path],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as child:
        assert child.stdout is not None
        last = 0
        try:
            while last < acknowledged:
                last = int(child.stdout.readline())
            own, deltas, corrupt = read(path)
            assert len(deltas) >= last and corrupt == []
        finally:
            child.send_signal(signal.SIGKILL)
            rest = child.stdout.read()
    complete = [line for line in rest.split("\n")[:-1] if line]
    last = int(complete[-1]) if complete else last
    own, deltas, corrupt = read(path)
    assert corrupt == []
    assert len(deltas) >= last
    assert deltas == [b"delta %d" % number for number in range(len(deltas))]
    offset = 0
    for number, (start, piece) in enumerate(own):
        assert (start, piece) == (offset, b"%d" % number * 100)
        offset += len(piece)
    assert len(own) == len(deltas)
    store = LogStore(path)
    assert store.end == offset
    store.sync()
    store.close()


def test_a_reader_tries_again_where_the_owner_replaced_a_file_meanwhile(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([b"d"], None)
    once = LogReader._open_once
    failures = [StorageUnavailable("a file is gone")] * 2

    def flaky(self: LogReader, *args: object) -> object:
        if failures:
            raise failures.pop()
        return once(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(LogReader, "_open_once", flaky)
    assert read(path_of(store))[1] == [b"d"]
    failures.extend([StorageUnavailable("a file is gone")] * 99)
    with pytest.raises(StorageUnavailable, match="a file is gone"):
        read(path_of(store))


def test_the_own_log_ends_at_the_last_offset(store: LogStore) -> None:
    store.append([], (LAST_LONG - 2, b"ab"))
    assert (list(store.own()), store.end) == ([(LAST_LONG - 2, b"ab")], LAST_LONG)
    with pytest.raises(CounterExhausted, match="the offset of its own log would go beyond"):
        store.append([], (LAST_LONG + 1, b"c"))


def test_the_last_delta_has_the_last_number(store: LogStore) -> None:
    key = b"d" + struct.pack(">Q", LAST_LONG - 1)
    store._database.put(key, seal(b"before", key))
    store.close()
    again = LogStore(path_of(store))
    again.append([b"last"], None)
    with pytest.raises(CounterExhausted, match="the number of a received delta would go beyond"):
        again.append([b"one more"], (0, b"own"))
    assert (list(again.deltas()), list(again.own())) == ([b"before", b"last"], [])
    again.close()

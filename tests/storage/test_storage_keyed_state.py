"""Keyed state against a plain dict: whatever the cache does, nothing but the dict's behaviour may show."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from rocksdict import Rdict

from clonos.errors import SnapshotCorrupt, StateError, StorageUnavailable
from clonos.storage.database import MIB, prefix_end
from clonos.storage.keyed_state import KeyedState, has_remains
from clonos.storage.timers import TimerQueue

# Opening a database waits for the disk many times; what is tested here is not the disk.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
KEYS = st.one_of(
    st.sampled_from([b"", b"a", b"a\x00", b"ab", b"b", b"\xff", b"\xff\xff"]), st.binary(max_size=2)
)
VALUES = st.lists(st.integers(0, 9), max_size=3)


class StateMachine(RuleBasedStateMachine):
    """A cache of four entries, so that nearly every step evicts."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="state-test-", dir=MEMORY))
        self.number = 0
        self.state = self.open(self.root / "0")
        self.model: dict[bytes, Any] = {}

    def open(self, path: Path) -> KeyedState:
        return KeyedState(str(path), cache_entries=4, memory_bytes=2 * MIB)

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.state.get(key) == self.model.get(key)
        assert self.state.get(key) is self.state.get(key)

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: Any) -> None:
        self.state.put(key, copy.copy(value))
        self.model[key] = value

    @rule(key=KEYS, item=st.integers(10, 19))
    def change_in_place(self, key: bytes, item: int) -> None:
        value = self.state.get(key)
        if value is not None:
            value.append(item)
            self.state.touch(key)
            self.model[key] = [*self.model[key], item]

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        self.state.delete(key)
        self.model.pop(key, None)

    @rule(prefix=st.one_of(st.just(b""), KEYS))
    def scan(self, prefix: bytes) -> None:
        expected = sorted((key, value) for key, value in self.model.items() if key.startswith(prefix))
        assert list(self.state.scan(prefix)) == expected

    @rule(changes=st.lists(st.tuples(KEYS, VALUES | st.none()), max_size=8), every=st.integers(1, 3))
    def scan_while_changing(self, changes: list[tuple[bytes, Any]], every: int) -> None:
        before = sorted(self.model)
        deleted = set()  # and not seen by then: where one is added again in time, the scan shows it
        seen = []
        for number, (key, value) in enumerate(self.state.scan()):
            assert value == self.model[key]
            seen.append(key)
            if number % every == 0 and changes:
                changed, new = changes.pop()
                self.state.put(changed, copy.copy(new))
                if new is None:
                    self.model.pop(changed, None)
                    deleted.update({changed}.difference(seen))
                else:
                    self.model[changed] = new
        assert [key for key in before if key in seen or key in self.model.keys() - deleted] == seen

    @rule(flush=st.booleans())
    def checkpoint_and_restore(self, flush: bool) -> None:
        if flush:
            self.state.flush()
        self.number += 1
        path = self.root / str(self.number)
        self.state.checkpoint(str(path))
        self.state.put(b"after", [1])
        self.state.close()
        self.state = self.open(path)

    @rule()
    def checkpoint_and_go_on(self) -> None:
        self.number += 1
        self.state.checkpoint(str(self.root / str(self.number)))

    @rule()
    def prepare(self) -> None:
        self.state.prepare()

    @invariant()
    def bounded(self) -> None:
        if hasattr(self, "state"):
            assert len(self.state._young) + len(self.state._old) <= 4

    def teardown(self) -> None:
        if hasattr(self, "state"):
            self.state.close()
            shutil.rmtree(self.root)


StateMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestAgainstDict = StateMachine.TestCase


def test_a_scan_re_adding_a_deleted_key_shows_its_new_value(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"), cache_entries=4)
    for number in range(6):
        state.put(b"%d" % number, [number])
    seen = []
    for key, value in state.scan():
        seen.append((key, value))
        state.delete(b"5")
        state.put(b"5", ["new"])
        state.put(b"9", ["added during the scan"])
    assert seen == [*[(b"%d" % number, [number]) for number in range(5)], (b"5", ["new"])]
    state.close()


def test_frequent_scans_look_at_each_change_once(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"))
    for number in range(1000):
        state.put(b"%04d" % number, number)
    assert len(list(state.scan(b"000"))) == 10
    state.put(b"0001", "changed")
    assert list(state.scan(b"0001")) == [(b"0001", "changed")]
    assert state._dirty == {b"0001"}
    state.close()


def test_the_same_object_is_returned_while_cached_and_touch_keeps_its_change(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"), cache_entries=8)
    state.put(b"k", {"n": 0})
    kept = state.get(b"k")
    kept["n"] = 1
    state.touch(b"k")
    for number in range(50):
        state.put(b"%d" % number, number)
    again = state.get(b"k")
    assert again == {"n": 1}
    assert again is not kept
    state.close()


def test_touching_what_left_the_cache_is_refused_and_not_lost_silently(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"), cache_entries=4)
    state.put(b"k", {"n": 0})
    for number in range(20):
        state.put(b"%d" % number, number)
    with pytest.raises(StateError, match="b'k' was changed after it had left the cache"):
        state.touch(b"k")
    state.close()


def test_an_object_stays_for_half_of_the_cache(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"), cache_entries=400)
    state.put(b"warm", 1)
    for number in range(2000):
        key = b"%d" % number
        state.put(key, [number])
        kept = state.get(key)
        if number % 97 == 0:
            for other in range(200):
                state.put(b"o%d-%d" % (number, other), other)
            assert state.get(key) is kept
    state.close()


def test_large_values_shrink_the_cache(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"), cache_entries=100_000, cache_bytes=4 * MIB, memory_bytes=4 * MIB)
    for number in range(4000):
        state.put(b"%d" % number, "x" * 2000)
    cached = len(state._young) + len(state._old)
    assert cached * 2000 <= 4 * MIB
    assert state.get(b"0") == "x" * 2000
    state.close()


def test_what_is_prepared_leaves_to_the_checkpoint_what_changed_meanwhile(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"))
    keys = [b"%04d" % number for number in range(1000)]
    for key in keys:
        state.put(key, "at first")
    pieces, again = 0, b""
    while not state.prepare():
        pieces += 1
        if pieces == 3:
            again = next(key for key in keys if key not in state._dirty)
            state.put(again, "again")
            state.put(b"new", "new")
            state.delete(b"0007")
    assert pieces > 3
    assert {again, b"new"} <= state._dirty <= {again, b"new", b"0007"}
    state.checkpoint(str(tmp_path / "cp"))
    state.close()
    restored = KeyedState(str(tmp_path / "cp"))
    expected = {**dict.fromkeys(keys, "at first"), again: "again", b"new": "new"}
    del expected[b"0007"]
    assert dict(restored.scan()) == expected
    restored.close()


def test_small_values_use_the_whole_cache(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"), cache_entries=6000)
    for number in range(20_000):
        state.put(b"%d" % number, number)
    assert len(state._young) + len(state._old) == 6000
    state.close()


def test_what_cannot_be_kept_is_named_with_its_key_when_it_is_written(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"))
    state.put(b"bad", {"socket": object()})
    with pytest.raises(StateError, match=r"b'bad'.*object"):
        state.checkpoint(str(tmp_path / "cp"))
    state.delete(b"bad")
    state.checkpoint(str(tmp_path / "cp"))
    with pytest.raises(StateError, match="must be bytes, not str"):
        state.put("text", 1)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="must be bytes, not str"):
        state.get("text")  # type: ignore[arg-type]
    state.close()


def test_a_used_directory_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    state = KeyedState(path)
    with pytest.raises(StateError, match="was in use before"):
        KeyedState(path)
    state.close()
    with pytest.raises(StateError, match="Restore a snapshot"):
        KeyedState(path)


def test_close_with_a_scan_under_way_frees_the_lock_and_ends_the_scan(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"))
    for number in range(10):
        state.put(b"%d" % number, number)
    state.flush()
    scan = state.scan()
    next(scan)
    state.close()
    state.close()
    Rdict(str(tmp_path / "db")).close()
    with pytest.raises(StateError, match="closed while it was being read"):
        list(scan)
    with pytest.raises(StateError, match="already closed"):
        state.get(b"not cached")


def test_a_damaged_block_is_reported_by_get_and_by_scan(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"))
    for number in range(2000):
        state.put(b"%05d" % number, [number] * 20)
    state.checkpoint(str(tmp_path / "cp"))
    state.close()
    (table,) = (tmp_path / "cp").glob("*.sst")
    with open(table, "r+b") as file:
        file.seek(table.stat().st_size // 2)
        file.write(bytes(64))
    damaged = KeyedState(str(tmp_path / "cp"))
    with pytest.raises(SnapshotCorrupt, match="damaged"):
        list(damaged.scan())
    with pytest.raises(SnapshotCorrupt, match="damaged"):
        for number in range(2000):
            damaged.get(b"%05d" % number)
    damaged.close()


def test_a_value_under_the_wrong_key_is_not_returned(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"))
    state.put(b"a", 1)
    state.flush()
    state.database.put(b"sb", state.database.raw.get(b"sa"))
    with pytest.raises(SnapshotCorrupt, match=r"b'b' is damaged"):
        state.get(b"b")
    state.close()


def test_another_format_is_refused(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"))
    state.database.put(b"\x00format", b"clonos-state-9")
    state.checkpoint(str(tmp_path / "cp"))
    state.close()
    with pytest.raises(SnapshotCorrupt, match="clonos-state-9"):
        KeyedState(str(tmp_path / "cp"))
    Rdict(str(tmp_path / "cp")).close()


@pytest.mark.parametrize(("written", "told"), [(b"clonos-state-1", False), (b"clonos-state-2", True)])
def test_state_of_an_older_version_is_gone_on_with(tmp_path: Path, written: bytes, told: bool) -> None:
    """Under its keys the two instants of a repeated hour are one, and stay so."""
    state = KeyedState(str(tmp_path / "db"))
    state.put(b"key", {"n": 1})
    state.database.put(b"\x00format", written)
    state.checkpoint(str(tmp_path / "cp"))
    state.close()
    again = KeyedState(str(tmp_path / "cp"))
    assert again.tells_folds is told
    assert again.load(b"key") == again.get(b"key") == {"n": 1}
    again.close()


def test_a_file_where_the_directory_should_be_is_storage_unavailable(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("")
    with pytest.raises(StorageUnavailable, match="db"):
        KeyedState(str(tmp_path / "db"))


def test_the_format_of_keys_and_values_is_what_was_written_before(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "db"))
    state.put(b"key", {"n": 1})
    TimerQueue(state, b"e").set(5, b"k\x00", "name")
    state.flush()
    found = {key.hex(): value.hex() for key, value in state.database.cursor(b"", None)}
    assert found == {
        b"\x00format".hex(): b"clonos-state-2".hex(),
        b"skey".hex(): "01804b00b981a16e01",
        b"te".hex() + "8000000000000005" + "6b00ff" + "0001" + b"name".hex(): "",
    }
    state.close()


def test_prefix_end() -> None:
    assert prefix_end(b"a") == b"b"
    assert prefix_end(b"a\xff") == b"b"
    assert prefix_end(b"\xff") is None
    assert prefix_end(b"") is None


def test_what_is_written_anew_has_nothing_of_what_was_deleted(tmp_path: Path) -> None:
    """Not in tables, which are merged now and then, and not in RocksDB's list of them, which names their ends."""
    secret = b"a key that has to go"

    def has_it(folder: Path) -> bool:
        return any(secret in path.read_bytes() for path in folder.iterdir())

    state = KeyedState(str(tmp_path / "state"))
    for number in range(50):
        state.put(b"key %d" % number, ["kept", number])
    state.put(secret, {"n": 1})
    state.checkpoint(str(tmp_path / "with"))
    assert has_it(tmp_path / "with") and not has_remains(str(tmp_path / "with"))
    state.delete(secret)
    state.checkpoint(str(tmp_path / "deleted"))
    assert has_it(tmp_path / "deleted") and has_remains(str(tmp_path / "deleted"))
    state.checkpoint_anew(str(tmp_path / "made" / "anew"))
    assert not has_it(tmp_path / "made" / "anew") and not has_remains(str(tmp_path / "made" / "anew"))
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["anew"]
    entries = dict(state.scan(b""))
    state.close()
    anew = KeyedState(str(tmp_path / "made" / "anew"))
    assert dict(anew.scan(b"")) == entries and len(entries) == 50
    anew.close()


def test_remains_are_found_in_tables_that_would_be_merged(tmp_path: Path) -> None:
    """RocksDB merges four tables as soon as a state is opened, in a copy, where what was stored stays as it is."""
    state = KeyedState(str(tmp_path / "state"))
    state.save(b"gone", "a secret")
    found = []
    for at in range(6):
        state.save(b"kept", at)
        if at == 1:
            state.delete(b"gone")
        stored = tmp_path / f"stored {at}"
        state.checkpoint(str(stored))
        tables = sorted(path.name for path in stored.glob("*.sst"))
        is_there = any(b"a secret" in path.read_bytes() for path in stored.glob("*.sst"))
        found.append(has_remains(str(stored)))
        assert found[-1] >= (at > 0 and is_there), at
        assert sorted(path.name for path in stored.glob("*.sst")) == tables
        KeyedState(str(stored)).close()
    state.close()
    assert not found[0] and any(found)

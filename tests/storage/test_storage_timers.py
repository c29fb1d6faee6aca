"""The timer queue against a sorted set: the order of firing is (due, key, name), always."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from clonos.errors import SnapshotCorrupt, StateError
from clonos.storage.database import MIB
from clonos.storage.keyed_state import KeyedState
from clonos.storage.timers import EVENT_TIME, PROCESSING_TIME, TimerQueue

# Opening a database waits for the disk many times; what is tested here is not the disk.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
DUE = st.one_of(st.integers(-3, 12), st.sampled_from([-(2**63), 2**63 - 1]))
KEY = st.sampled_from(
    [b"", b"\x00", b"\x00\x00", b"\x00\x01", b"\x00\xff", b"\x01", b"a", b"a\x00", b"ab", b"\xff"]
)
NAME = st.sampled_from(["", "\x00", "a", "ä", "\U0001f600"])


class TimerMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="timer-test-", dir=MEMORY))
        self.number = 0
        self.open(self.root / "0")
        self.models: list[set[tuple[int, bytes, str]]] = [set(), set()]

    def open(self, path: Path) -> None:
        self.state = KeyedState(str(path), cache_entries=4, memory_bytes=2 * MIB)
        self.queues = [TimerQueue(self.state, family) for family in (PROCESSING_TIME, EVENT_TIME)]

    @rule(which=st.integers(0, 1), due=DUE, key=KEY, name=NAME)
    def set(self, which: int, due: int, key: bytes, name: str) -> None:
        self.queues[which].set(due, key, name)
        self.models[which].add((due, key, name))

    @rule(which=st.integers(0, 1), due=DUE, key=KEY, name=NAME)
    def cancel(self, which: int, due: int, key: bytes, name: str) -> None:
        self.queues[which].cancel(due, key, name)
        self.models[which].discard((due, key, name))

    @rule(which=st.integers(0, 1), data=st.data())
    def cancel_one_that_is_set(self, which: int, data: st.DataObject) -> None:
        if self.models[which]:
            timer = data.draw(st.sampled_from(sorted(self.models[which])))
            self.queues[which].cancel(*timer)
            self.models[which].discard(timer)

    @rule(which=st.integers(0, 1))
    def pending(self, which: int) -> None:
        in_order = sorted(self.models[which], key=lambda timer: (timer[0], timer[1], timer[2].encode()))
        assert list(self.queues[which].pending()) == in_order

    @rule(which=st.integers(0, 1))
    def next_due(self, which: int) -> None:
        assert self.queues[which].next_due() == min((due for due, _, _ in self.models[which]), default=None)

    @rule(which=st.integers(0, 1), upto=DUE)
    def pop_due(self, which: int, upto: int) -> None:
        expected = sorted(timer for timer in self.models[which] if timer[0] <= upto)
        assert self.queues[which].pop_due(upto) == expected
        self.models[which].difference_update(expected)

    @rule()
    def checkpoint_and_restore(self) -> None:
        self.number += 1
        path = self.root / str(self.number)
        self.state.checkpoint(str(path))
        self.queues[0].set(0, b"after the checkpoint")
        self.state.close()
        self.open(path)

    def teardown(self) -> None:
        if hasattr(self, "state"):
            self.state.close()
            shutil.rmtree(self.root)


TimerMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestAgainstSortedSet = TimerMachine.TestCase


@pytest.fixture
def state(tmp_path: Path) -> Iterator[KeyedState]:
    state = KeyedState(str(tmp_path / "db"))
    yield state
    state.close()


@pytest.fixture
def queue(state: KeyedState) -> TimerQueue:
    return TimerQueue(state)


def test_timers_and_state_do_not_see_each_other(state: KeyedState, queue: TimerQueue) -> None:
    queue.set(1, b"k")
    state.put(b"k", 1)
    assert list(state.scan()) == [(b"k", 1)]
    assert TimerQueue(state, EVENT_TIME).next_due() is None


@pytest.mark.parametrize(
    ("due", "key", "name"),
    [(2**63, b"k", ""), (-(2**63) - 1, b"k", ""), (1, "k", ""), (1, b"k", b"n"), (1, b"k", "\ud800")],
)
def test_a_timer_that_cannot_be_kept_is_refused(queue: TimerQueue, due: int, key: bytes, name: str) -> None:
    with pytest.raises(StateError, match="timer"):
        queue.set(due, key, name)
    assert queue.next_due() is None


def test_an_unknown_family_is_refused(state: KeyedState) -> None:
    with pytest.raises(StateError, match="family"):
        TimerQueue(state, b"x")


def test_a_malformed_timer_is_reported(queue: TimerQueue) -> None:
    queue._database.put(b"tp" + bytes(8) + b"no end", b"")
    with pytest.raises(SnapshotCorrupt, match="no end"):
        queue.next_due()

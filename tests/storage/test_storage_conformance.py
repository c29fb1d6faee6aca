"""The log stores, timers and keyed state of production and of the simulator keep what these ports promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.delta import still_needed
from clonos.protocol.recovery.causal.delta_journal import fold_deltas
from clonos.protocol.recovery.causal.own_log import Writer
from clonos.sim import disk
from clonos.sim.fake_services import Timers
from clonos.sim.values import RealState
from clonos.storage import log_store
from clonos.storage.database import MIB
from clonos.storage.keyed_state import KeyedState
from clonos.storage.timers import EVENT_TIME, PROCESSING_TIME, TimerQueue
from clonos.testing.conformance import log_stores
from clonos.testing.conformance.keyed_state import STATE_CHECKS, StatePlace, what_a_user_saves_is_a_copy
from clonos.testing.conformance.log_stores import LOG_CHECKS, OWNER, LogPlace
from clonos.testing.conformance.timers import (
    TIMER_CHECKS,
    KeepsTimers,
    any_run_is_as_with_a_sorted_set,
    cancelling_takes_back_one_timer_and_no_other,
    check_name,
)
from clonos.values.state_cache import StateCache

SMALLEST_CACHE = 4  # entries: nearly every step evicts

# ------------------------------------------------------------------ log stores


class OnDisk:
    """RocksDB, and what a replica does with it."""

    def __init__(self, path: Path) -> None:
        self._store = log_store.LogStore(str(path), memory_bytes=MIB)
        self.append, self.begin, self.close = self._store.append, self._store.begin, self._store.close
        self.incarnations, self.sync = self._store.incarnations, self._store.sync
        self.rewrite_own = self._store.rewrite_own

    @property
    def end(self) -> int:
        return self._store.end

    def own(self) -> list[Segment]:
        return list(self._store.own())

    def deltas(self) -> list[bytes]:
        return list(self._store.deltas())

    def fold(self) -> None:
        self._store.fold(fold_deltas)

    def truncate(self, truncation_points: Mapping[Origin, int]) -> None:
        if OWNER in truncation_points:
            self._store.truncate_own(truncation_points[OWNER])
        self._store.truncate_deltas(lambda raw: still_needed(raw, truncation_points))


class Simulated:
    """The simulator's, which outlives the processes that open it."""

    def __init__(self, store: disk.LogStore) -> None:
        self._store = store
        self.begin, self.fold, self.truncate = store.begin, store.fold, store.truncate
        self.rewrite_own, self.sync = store.rewrite_own, store.sync

    @property
    def end(self) -> int:
        return self._store.end

    def append(self, deltas: Sequence[bytes], own: Segment | None) -> None:
        self._store.append(tuple(deltas), own)

    def own(self) -> list[Segment]:
        return list(self._store.open().own.segments)

    def deltas(self) -> list[bytes]:
        return list(self._store.open().held)

    def incarnations(self) -> tuple[Writer, ...]:
        return self._store.open().own.incarnations

    def close(self) -> None:
        """What `append` has returned from stays."""


@pytest.fixture(params=["RocksDB", "simulated", "simulated, where power may fail"])
def log_place(request: pytest.FixtureRequest, tmp_path: Path) -> LogPlace:
    if request.param == "RocksDB":
        return LogPlace(lambda: OnDisk(tmp_path / "log"))
    store = disk.LogStore(OWNER, power_may_fail=request.param != "simulated")
    return LogPlace(lambda: Simulated(store))


@pytest.mark.parametrize("check", LOG_CHECKS, ids=check_name)
def test_a_log_store(check: Callable[[LogPlace], None], log_place: LogPlace) -> None:
    check(log_place)


# ---------------------------------------------------------------------- timers


@pytest.fixture(
    params=[PROCESSING_TIME, EVENT_TIME, None], ids=["processing time", "event time", "simulated"]
)
def timers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeepsTimers]:
    if request.param is None:
        yield Timers()
        return
    state = KeyedState(str(tmp_path / "db"), memory_bytes=2 * MIB)
    yield TimerQueue(state, request.param)
    state.close()


@pytest.mark.parametrize("check", TIMER_CHECKS, ids=check_name)
def test_timers(check: Callable[[KeepsTimers], None], timers: KeepsTimers) -> None:
    check(timers)


# ----------------------------------------------------------------- keyed state


def state_on_disk(folder: Path, cache_entries: int) -> StatePlace:
    numbers = count()

    def opened(path: Path) -> KeyedState:
        return KeyedState(str(path), cache_entries=cache_entries, memory_bytes=2 * MIB)

    def restored(state: Any) -> KeyedState:
        path = folder / str(next(numbers))
        state.checkpoint(str(path))
        state.close()
        return opened(path)

    return StatePlace(lambda: opened(folder / "first"), restored)


def simulated_state(cache_entries: int) -> StatePlace:
    def restored(state: Any) -> RealState:
        state.flush()
        return RealState(cache_entries, state.memory.data)

    return StatePlace(lambda: RealState(cache_entries), restored)


@pytest.fixture(params=["RocksDB", "simulated"])
def state_places(request: pytest.FixtureRequest, tmp_path: Path) -> list[StatePlace]:
    """With a cache in which all keys find room, and with one from which nearly every step evicts."""
    if request.param == "simulated":
        return [simulated_state(entries) for entries in (SMALLEST_CACHE, 1000)]
    return [state_on_disk(tmp_path / str(entries), entries) for entries in (SMALLEST_CACHE, 1000)]


@pytest.mark.parametrize("check", STATE_CHECKS, ids=check_name)
def test_keyed_state(check: Callable[[StatePlace], None], state_places: list[StatePlace]) -> None:
    for place in state_places:
        check(place)


# -- without the rules the checks fail


def overlaps_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    def only_new(self: Any, offset: int, piece: bytes) -> Segment:
        return self.end, piece[self.end - offset :]

    patch.setattr(log_store.LogStore, "_only_new", only_new)
    patch.setattr(disk.LogStore, "_compare", lambda *_: None)


def a_writer_that_wrote_nothing_is_kept(patch: pytest.MonkeyPatch) -> None:
    for module in (log_store, disk):
        patch.setattr(module, "begun", lambda known, one: (*known, one))


@pytest.mark.parametrize(
    ("plant", "found_by"),
    [
        (overlaps_are_not_compared, log_stores.a_piece_that_contradicts_what_is_there_changes_nothing),
        (a_writer_that_wrote_nothing_is_kept, log_stores.who_wrote_it_is_known_for_all_that_is_kept),
    ],
)
def test_a_bug_of_a_log_store_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    found_by: Callable[[LogPlace], None],
    log_place: LogPlace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        found_by(log_place)


def test_a_timer_that_cannot_be_taken_back_is_found(
    timers: KeepsTimers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(timers), "cancel", lambda *_: None)
    for check in (cancelling_takes_back_one_timer_and_no_other, any_run_is_as_with_a_sorted_set):
        with pytest.raises(AssertionError):
            check(timers)
        timers.pop_due(2**63 - 1)


def test_an_object_that_is_shared_with_its_user_is_found(
    state_places: list[StatePlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateCache, "save", StateCache.put)
    for place in state_places:
        with pytest.raises(AssertionError):
            what_a_user_saves_is_a_copy(place)

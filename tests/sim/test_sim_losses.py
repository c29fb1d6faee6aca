"""What the simulator takes for lost, for damaged, and for there."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from planted import OTHERS, planted

from clonos.errors import LogCorrupt
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.sim.checks.held import Held, Intervals
from clonos.sim.checks.losses import readable
from clonos.sim.command import run_storm, wide_storm
from clonos.sim.disk import Disk, LogStore
from clonos.sim.plan import Fault, draw_plan
from clonos.sim.run import run

OWNER = Origin(2, 0)
SURVIVES = 2


class Chosen(Random):
    """So many of the changes that were not synced survive."""

    def randint(self, low: int, high: int) -> int:
        return SURVIVES


def intervals(*spans: tuple[int, int]) -> Intervals:
    made = Intervals()
    for span in spans:
        made.add(*span)
    return made


@pytest.mark.parametrize(
    ("of", "without", "left"),
    [
        ([(0, 10)], [], [(0, 10)]),
        ([(0, 10)], [(0, 10)], []),
        ([(0, 10)], [(3, 5)], [(0, 3), (5, 10)]),
        ([(0, 10)], [(0, 4), (6, 20)], [(4, 6)]),
        ([(0, 4), (6, 10)], [(2, 8)], [(0, 2), (8, 10)]),
        ([(5, 10)], [(0, 5), (10, 12)], [(5, 10)]),
    ],
)
def test_what_is_in_one_and_not_in_the_other(
    of: list[tuple[int, int]], without: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    assert intervals(*of).without(intervals(*without)) == left


def test_an_epoch_that_an_older_checkpoint_has_forgotten_may_come_out_shorter() -> None:
    """An instance had run in it, and is not run again: it stops when it gets rows of the next one."""
    report = run_storm(7000580)
    assert report.right, str(report)
    assert report.outcome == "SnapshotCorrupt"
    assert any(one.kind is Fault.CHECKPOINT_OLDER for one in report.struck)


def test_all_of_a_log_is_missing_where_none_of_it_is_held() -> None:
    assert Held().missing(OWNER, 3, 7) == [(3, 7)]


def written() -> LogStore:
    store = LogStore(OWNER, power_may_fail=True)
    for at in range(0, 50, 10):
        store.append((), (at, b"0123456789"))
    return store


def test_a_torn_store_serves_what_lies_before_the_tear() -> None:
    store = written()
    store.lose_power(Chosen(), torn=True)
    assert store.is_damaged and store.index(0).damaged
    assert readable(store).covers(OWNER, 0, 20) and store.end == 20
    with pytest.raises(LogCorrupt):
        store.open()
    opened = store.salvaged().open()
    assert [start for start, _ in opened.own.segments] == [0, 10] and opened.damaged


def test_a_store_that_is_not_torn_says_nothing_of_what_is_gone() -> None:
    store = written()
    store.lose_power(Chosen(), torn=False)
    assert not store.is_damaged and store.open().own.segments[-1][0] == 10


def test_a_synced_store_cannot_be_torn() -> None:
    store = written()
    store.sync()
    store.lose_power(Random(1), torn=True)
    assert not store.is_damaged and store.end == 50


def test_an_old_copy_does_not_know_that_it_is_whole() -> None:
    store = written()
    store.is_whole(0)
    assert store.open().whole_since == 0 and store.copy().open().whole_since is None


def test_fences_that_were_not_synced_are_gone_with_the_power(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk("a host", power_may_fail=True)
    assert disk.fences.raise_to(OWNER, 5)
    monkeypatch.setattr(Disk, "_sync_fences", lambda self: None)
    assert disk.fences.raise_to(OWNER, 7)
    disk.open_fences()
    assert disk.fences.fence(OWNER) == 7
    disk.lose_power(Random(1), lambda store: False)
    disk.open_fences()
    assert disk.fences.fence(OWNER) == 5


GONE = planted(
    lambda patch: None,
    rates={Fault.REPLICA_CRASH: 0.01, Fault.SNAPSHOTS_GONE: 0.9},
    **{**OTHERS, "realtime": False, "faults": 30, "standbys": 0, "depth": FULL},
)


@pytest.mark.parametrize(("seed", "who"), [(1176, "2/0"), (119, "2/1")])
def test_an_instance_of_which_everything_is_gone_is_taken_for_new(seed: int, who: str) -> None:
    """A limit that the documentation states: its snapshots are removed, and its log store is lost, or damaged, so that
    nothing is left that could say that it has run."""
    report = run(GONE.plan(draw_plan(seed)))
    assert str(report.violation).startswith(f"I5: {who} consumed record 7 of 1/0 too early"), str(report)


def test_an_instance_without_standbys_does_a_copied_log_anew_whose_input_is_lost() -> None:
    """It had its log back from others, and before it had been sent again what that depends on, their stores were lost
    as well."""
    report = run_storm(5004694)
    assert report.right, str(report)


def test_a_copied_log_with_effects_is_not_done_anew_and_stops_where_its_input_is_lost() -> None:
    """A limit that the documentation states: what an effect did has been seen. Nothing wrong becomes visible."""
    report = run(replace(wide_storm(5000883), effects=True))
    assert report.outcome == "beyond", str(report)


def test_a_snapshot_of_another_history_that_an_older_checkpoint_has_brought_back_is_not_resumed_from() -> (
    None
):
    """Without standbys; the epoch had been run anew since that snapshot, and is run again as the store has it."""
    report = run(replace(wide_storm(7000195), standbys=0))
    assert report.right, str(report)

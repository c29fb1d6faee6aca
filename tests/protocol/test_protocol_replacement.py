"""From where a replacement may start, and what it must be sent."""

from __future__ import annotations

import pytest

from clonos.errors import InputForgotten, Where
from clonos.protocol.engine.bundle_gap_detector import BundleGapDetector
from clonos.protocol.fence import Fence
from clonos.protocol.recovery.causal.replacement import (
    binds,
    joins_known_log,
    of_same_attempt,
    stands_for_known_output,
)
from clonos.protocol.roles.conduit_model import (
    Conduit,
    Connect,
    Connected,
    Hello,
    Limits,
    Lost,
    Start,
    Welcome,
)


def unasked() -> int:
    raise AssertionError("the end of the epoch before need not be read")


def test_rows_of_a_snapshot_must_be_with_the_conduit_or_of_earlier_epochs() -> None:
    assert stands_for_known_output(7, emitted_output=7, before=unasked)
    assert not stands_for_known_output(8, emitted_output=7, before=lambda: 3)
    assert stands_for_known_output(3, emitted_output=0, before=lambda: 3)
    assert not stands_for_known_output(4, emitted_output=0, before=lambda: 3)


def test_what_follows_a_snapshot_must_join_the_log_that_the_conduit_keeps() -> None:
    assert joins_known_log(100, known_upto=0)
    assert joins_known_log(100, known_upto=100)
    assert not joins_known_log(101, known_upto=100)


def test_snapshots_inside_an_epoch_are_of_one_attempt() -> None:
    fence = Fence.of(2, 5)
    assert of_same_attempt(fence | 1, fence | 3)
    assert not of_same_attempt(fence | 1, Fence.of(2, 6, 1))
    assert not of_same_attempt(fence | 1, Fence.of(3, 5, 1))


def test_an_attempt_that_ended_binds_the_next_one_of_the_same_start() -> None:
    ended = Fence.of(2, 5)
    assert binds(ended | 1, Fence.of(2, 6))
    assert not binds(ended | 1, ended | 2), "its own replacements go on"
    assert not binds(ended | 1, Fence.of(3, 1)), "the next start runs everything again"


def test_a_hole_in_the_bundles_ends_the_attempt() -> None:
    where = Where("op", 0, 1)
    taken = BundleGapDetector(4)
    taken.take(3, where)  # comes again
    taken.take(5, where)
    taken.end(5, where)
    assert taken.upto == 5
    with pytest.raises(InputForgotten, match="forgotten the bundles up to 6"):
        taken.take(7, where)
    with pytest.raises(InputForgotten, match="forgotten the bundles up to 6"):
        taken.take(9, where, first=7)
    with pytest.raises(InputForgotten, match="up to bundle 5"):
        taken.end(6, where)
    taken.take(9, where, first=4)  # some of them come again
    assert taken.upto == 9


def test_a_conduit_stays_fresh_until_a_replica_has_recovered() -> None:
    conduit, first = Conduit(Limits()), Limits().fence
    assert conduit.handle(Start(), 0) == [Connect(first, True, 0)]
    assert Hello(first, True) in conduit.handle(Connected(), 1)
    assert Connect(first.next(), True, 0) in conduit.handle(Lost("it died while it recovered"), 2)
    assert Hello(first.next(), True) in conduit.handle(Connected(), 3)
    conduit.handle(Welcome(4, 1 << 20), 4)
    again = [action for action in conduit.handle(Lost("it died later"), 5) if isinstance(action, Connect)]
    assert [connect.fresh for connect in again] == [False]

"""When a host starts spare replica processes, and when it gives up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos.protocol.roles.death import KILLED, Death
from clonos.protocol.roles.spare_pool import (
    GIVES_UP_AFTER,
    LONGEST_PAUSE_SECONDS,
    PROVEN_SECONDS,
    SparePool,
)

FAILED = Death("exit", "an import failed", None, None, pid=1, at=0.0, uptime=0.1, code=70)


def given_up(now: float = 0.0) -> SparePool:
    pool = SparePool(2)
    for _ in range(GIVES_UP_AFTER):
        pool.died(FAILED, now)
    return pool


@pytest.mark.parametrize(
    ("spares", "recovering", "starts"),
    [(0, False, True), (1, False, True), (2, False, False), (0, True, True), (1, True, False)],
)
def test_one_spare_is_enough_while_an_instance_recovers(spares: int, recovering: bool, starts: bool) -> None:
    assert SparePool(2).starts_one(spares, 0.0, recovering=recovering) is starts


def test_it_is_tried_more_and_more_seldom() -> None:
    pool = SparePool(2)
    pauses = [pool.died(FAILED, 0.0) for _ in range(2_000)]
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS
    assert not pool.starts_one(0, LONGEST_PAUSE_SECONDS - 0.1, recovering=False)
    assert pool.starts_one(0, LONGEST_PAUSE_SECONDS, recovering=False)


def test_a_host_without_processes_is_asked_again_and_has_not_given_up() -> None:
    pool = SparePool(2)
    pauses = {pool.cannot_start(0.0) for _ in range(9)}
    assert len(pauses) == 1 and not pool.has_given_up


def test_a_spare_that_was_killed_from_outside_says_nothing() -> None:
    pool = SparePool(2)
    for _ in range(9):
        assert pool.died(replace(FAILED, kind="signal", code=None, signal=KILLED), 0.0) is None
    assert not pool.doubts and pool.starts_one(0, 0.0, recovering=False)


def test_behind_some_failures_only_a_proven_spare_serves() -> None:
    assert SparePool(2).may_serve(5.0, 5.0)
    pool = given_up()
    assert pool.has_given_up
    assert not pool.may_serve(5.0, 5.0 + PROVEN_SECONDS / 2)
    assert pool.may_serve(5.0, 5.0 + PROVEN_SECONDS)


def test_one_that_lives_shows_that_processes_start_again() -> None:
    pool = given_up()
    assert pool.doubts
    pool.lives()
    assert not pool.doubts and not pool.has_given_up and pool.may_serve(5.0, 5.0)

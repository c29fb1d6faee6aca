"""A clock that was set does not make young what is old, nor old what is young, until it has gone on steadily."""

from __future__ import annotations

import pytest

from clonos.protocol.archive.settled_clock import SettledClock

SECOND = 1_000_000
DAY = 24 * 3600 * SECOND
MONTH_S = 30 * 24 * 3600.0
NOW = 1_764_410_000 * SECOND


def test_until_it_has_settled_it_is_not_later_than_what_was_written_before() -> None:
    clock = SettledClock(MONTH_S, NOW, 10.0)
    assert clock.reads(NOW, 10.0, []) is None
    written = [NOW - 5 * DAY, NOW - 3 * DAY, NOW + SECOND]  # the last one by the process itself
    assert clock.reads(NOW + 599 * SECOND, 609.0, written) == NOW - 3 * DAY
    assert clock.reads(NOW + 601 * SECOND, 611.0, written) == NOW + 601 * SECOND
    assert clock.reads(NOW + 7201 * SECOND, 7210.0, []) == NOW + 7201 * SECOND, "it is corrected by a little"


@pytest.mark.parametrize("days", [31, -31])
def test_one_that_is_set_has_to_settle_again(days: int) -> None:
    clock = SettledClock(MONTH_S, NOW, 0.0)
    assert clock.reads(NOW + 700 * SECOND, 700.0, []) is not None
    wrong = NOW + days * DAY
    before, own = NOW + 690 * SECOND, wrong + 761 * SECOND
    assert clock.reads(wrong + 760 * SECOND, 760.0, [before, own]) == (before if days > 0 else None)
    assert clock.reads(NOW + 820 * SECOND, 820.0, [before, own]) == before
    assert clock.reads(NOW + 1421 * SECOND, 1421.0, [before, own]) == NOW + 1421 * SECOND


def test_what_is_kept_for_a_short_time_does_not_wait_for_longer() -> None:
    clock = SettledClock(30.0, NOW, 0.0)
    assert clock.reads(NOW + SECOND, 1.0, []) is None
    assert clock.reads(NOW + 3 * SECOND, 3.0, []) == NOW + 3 * SECOND

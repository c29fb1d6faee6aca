"""A clock that was set decides nothing about what is old until it has gone on steadily."""

from __future__ import annotations

import pytest

from clonos.protocol.archive.settled_clock import SettledClock

SECOND = 1_000_000
MONTH = 30 * 24 * 3600
NOW = 1_764_410_000 * SECOND


def test_it_decides_when_it_has_gone_on_for_ten_minutes() -> None:
    clock = SettledClock(MONTH)
    assert clock.reads(NOW, 10.0) is None
    assert clock.reads(NOW + 599 * SECOND, 609.0) is None
    assert clock.reads(NOW + 601 * SECOND, 611.0) == NOW + 601 * SECOND
    assert clock.reads(NOW + 7200 * SECOND + SECOND, 7210.0) == NOW + 7201 * SECOND, (
        "it is corrected by a little"
    )


@pytest.mark.parametrize("days", [31, -31])
def test_one_that_is_set_has_to_settle_again(days: int) -> None:
    clock = SettledClock(MONTH)
    clock.reads(NOW, 0.0)
    assert clock.reads(NOW + 700 * SECOND, 700.0) is not None
    wrong = NOW + days * 24 * 3600 * SECOND
    assert clock.reads(wrong + 760 * SECOND, 760.0) is None
    assert clock.reads(NOW + 820 * SECOND, 820.0) is None, "it is right again"
    assert clock.reads(NOW + 1421 * SECOND, 1421.0) == NOW + 1421 * SECOND


def test_what_is_kept_for_a_short_time_does_not_wait_for_longer() -> None:
    clock = SettledClock(30.0)
    assert clock.reads(NOW, 0.0) is None
    assert clock.reads(NOW + 3 * SECOND, 3.0) == NOW + 3 * SECOND

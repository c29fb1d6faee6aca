"""Leases: the host ends before the driver gives it up, whatever is lost or late on the way."""

from __future__ import annotations

from hypothesis import given, strategies as st

from clonos.protocol.roles.lease import DriverLease, HostLease

LENGTH, MARGIN = 100, 10


def test_a_lease_counts_from_the_last_answer_that_was_heard() -> None:
    host, driver = HostLease(LENGTH, 0), DriverLease(LENGTH, MARGIN, 5)
    assert host.renew(driver.heard, 40) == 1
    assert host.ends == LENGTH, "the driver has not heard answer 1 yet"
    driver.answered(1, 45)
    assert host.renew(driver.heard, 80) == 2
    assert host.ends == 40 + LENGTH and not host.is_over(139) and host.is_over(140)
    assert not driver.is_over(45 + LENGTH + MARGIN) and driver.is_over(46 + LENGTH + MARGIN)


def test_renewals_whose_answers_are_lost_prolong_nothing() -> None:
    host = HostLease(LENGTH, 0)
    for now in range(10, LENGTH, 10):
        host.renew(0, now)
    assert host.is_over(LENGTH)


Trip = st.tuples(st.integers(0, 400), st.integers(0, 300), st.booleans(), st.booleans())


@given(st.integers(0, 50), st.lists(Trip, max_size=30))
def test_the_host_ends_first(first: int, trips: list[tuple[int, int, bool, bool]]) -> None:
    """Each trip: how long after the last one it is begun, how long each way takes, which way is lost."""
    host, driver = HostLease(LENGTH, 0), DriverLease(LENGTH, MARGIN, first)
    events: list[tuple[int, int, str, int]] = []
    at = first
    for number, (pause, way, there, back) in enumerate(trips):
        at += pause
        events.append((at, number, "ask", way if not there else -1))
        if not there and not back:
            events.append((at + 2 * way, number, "hear", 0))
    answers: dict[int, int] = {}
    under_way: list[tuple[int, int, int]] = []
    for now, number, what, way in sorted(events):
        for arrives, question, heard in sorted(under_way):
            if arrives <= now and not host.is_over(arrives):
                answers[question] = host.renew(heard, arrives)
        under_way = [one for one in under_way if one[0] > now]
        if driver.is_over(now):
            assert host.is_over(now)
            return
        if what == "ask" and way >= 0:
            under_way.append((now + way, number, driver.heard))
        elif what == "hear" and number in answers:
            driver.answered(answers[number], now)

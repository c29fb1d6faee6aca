"""Which hosts count: until the query goes on without them, and then only with empty logs."""

from __future__ import annotations

import itertools

from clonos.protocol.roles.membership import Memberships, sets_aside


def memberships(**kept: str) -> Memberships:
    numbers = itertools.count()
    return Memberships(kept, lambda: f"new {next(numbers)}")


def test_a_host_of_the_last_start_counts_with_what_it_holds() -> None:
    known = memberships(one="old")
    assert known.token("one") == "old" and known.joins("one", "old")
    assert known.begins() == {"one": "old"} == known.counted


def test_a_host_that_the_query_began_without_counts_only_with_empty_logs() -> None:
    known = memberships(one="old")
    asked = known.token("one")
    assert known.begins() == {}
    assert not known.joins("one", asked)  # its answer came too late
    again = known.token("one")
    assert again == known.token("one") != "old"
    assert known.joins("one", again) and known.counted == {"one": again}


def test_a_host_that_the_query_goes_on_without_is_forgotten_in_the_checkpoint_first() -> None:
    known = memberships(one="old", two="other")
    assert known.joins("one", "old") and known.joins("two", "other")
    known.begins()
    assert known.without("one") == {"two": "other"} and "one" in known.counted
    known.leaves("one")
    assert known.counted == {"two": "other"} and known.token("one") == "new 0"
    assert known.joins("one", "new 0")
    known.leaves("one")
    assert known.token("one") == "new 1"


def test_a_server_that_is_started_again_in_time_keeps_its_membership() -> None:
    known = memberships()
    first = known.token("one")
    assert known.joins("one", first)
    known.begins()
    assert known.token("one") == first and known.joins("one", first)


def test_logs_are_set_aside_under_another_token() -> None:
    assert sets_aside("a", "b")
    assert not sets_aside("a", "a")
    assert not sets_aside(None, "a")  # of a version that kept no token
    assert not sets_aside("a", "")  # asked by a driver of such a version

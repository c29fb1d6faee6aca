"""Which hosts count: until the query goes on without them, and then only with empty logs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from clonos.errors import Fenced, StorageUnavailable
from clonos.protocol.roles.membership import Memberships, sets_aside


class Driver:
    """Memberships with a checkpoint, which may not be there, and a lead, which may be lost after so many looks."""

    def __init__(self, **kept: str) -> None:
        numbers = itertools.count()
        self.written: list[Mapping[str, str]] = []
        self.is_there = True
        self.leads_for = 99
        self.hosts = Memberships(
            kept, lambda: f"new {next(numbers)}", keep=self._keep, check_leads=self._check_leads
        )

    def _keep(self, memberships: Mapping[str, str]) -> None:
        if not self.is_there:
            raise StorageUnavailable("the checkpoint is away")
        self.written.append(dict(memberships))

    def _check_leads(self) -> None:
        self.leads_for -= 1
        if self.leads_for < 0:
            raise Fenced("another driver leads")


def test_a_host_of_the_last_start_counts_with_what_it_holds() -> None:
    driver = Driver(one="old")
    assert driver.hosts.token("one") == "old" and driver.hosts.joins("one", "old")
    assert not driver.written  # no instance asks yet
    assert not driver.hosts.begins()
    assert driver.written == [{"one": "old"}]


def test_a_host_that_the_query_began_without_counts_only_with_empty_logs() -> None:
    driver = Driver(one="old")
    known = driver.hosts
    asked = known.token("one")
    assert known.begins() == ["one"] and not known.begins()
    assert driver.written == [{}]
    assert not known.joins("one", asked)  # its answer came too late
    again = known.token("one")
    assert again == known.token("one") != "old"
    assert known.joins("one", again) and driver.written == [{}, {"one": again}]


def test_a_host_that_the_query_goes_on_without_is_forgotten_in_the_checkpoint_first() -> None:
    driver = Driver(one="old", two="other")
    known = driver.hosts
    assert known.joins("one", "old") and known.joins("two", "other")
    known.begins()
    driver.is_there = False
    with pytest.raises(StorageUnavailable):
        known.leaves("one")
    assert known.token("one") == "old"  # it counts
    driver.is_there = True
    known.leaves("one")
    assert driver.written[-1] == {"two": "other"} and known.token("one") == "new 0"
    assert known.joins("one", "new 0")
    known.leaves("one")
    assert known.token("one") == "new 1"


@pytest.mark.parametrize("looks", [0, 1])
def test_a_driver_that_does_not_lead_any_more_does_not_go_on(looks: int) -> None:
    """Also one that was taken over while it wrote: its successor may have read before that."""
    driver = Driver()
    assert driver.hosts.joins("one", driver.hosts.token("one"))
    driver.hosts.begins()
    driver.leads_for = looks
    with pytest.raises(Fenced):
        driver.hosts.leaves("one")
    assert driver.hosts.token("one") == "new 0"
    assert len(driver.written) == 1 + looks


def test_a_query_without_hosts_writes_nothing() -> None:
    driver = Driver()
    driver.hosts.begins()
    assert not driver.written


def test_a_host_that_cannot_be_written_down_does_not_count() -> None:
    driver = Driver()
    driver.hosts.begins()
    driver.is_there = False
    with pytest.raises(StorageUnavailable):
        driver.hosts.joins("one", driver.hosts.token("one"))
    driver.is_there = True
    assert driver.hosts.joins("two", driver.hosts.token("two")) and driver.written == [{"two": "new 1"}]


def test_a_server_that_is_started_again_in_time_keeps_its_membership() -> None:
    known = Driver().hosts
    first = known.token("one")
    assert known.joins("one", first)
    known.begins()
    assert known.token("one") == first and known.joins("one", first)


def test_logs_are_set_aside_under_another_token() -> None:
    assert sets_aside("a", "b")
    assert not sets_aside("a", "a")
    assert not sets_aside(None, "a")  # of a version that kept no token
    assert not sets_aside("a", "")  # asked by a driver of such a version

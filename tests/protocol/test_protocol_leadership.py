"""One driver leads: numbers are claimed once, one that is alive is left alone, one that is overtaken hears of it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from clonos.errors import AlreadyRunning, Fenced
from clonos.protocol.roles.leadership import (
    CLAIMS_KEPT,
    LEASE_SECONDS,
    Claim,
    Leadership,
    Lease,
    counts,
    is_overtaken,
)


@dataclass
class Storage:
    exclusive: bool
    last: int = 0
    claims: list[Claim] = field(default_factory=list)
    leases: dict[str, Lease] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)


class Reached:
    """A driver's way to the storage, and its own clock."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.time = 0.0
        self.random = Random(0)

    def floor(self) -> int:
        return self._storage.last

    def claims(self) -> list[Claim]:
        return list(self._storage.claims)

    def claim(self, claim: Claim) -> bool:
        if self._storage.exclusive and any(one.number == claim.number for one in self._storage.claims):
            return False
        self._storage.claims.append(claim)
        return True

    def withdraw(self, claim: Claim) -> None:
        self._storage.claims.remove(claim)

    def forget(self, claims: Collection[Claim], kept: Collection[str]) -> None:
        self._storage.claims = [one for one in self._storage.claims if one not in claims]
        self._storage.leases = {
            owner: lease for owner, lease in self._storage.leases.items() if owner in kept
        }

    def leases(self, owners: Collection[str]) -> Mapping[str, Lease]:
        return {owner: lease for owner, lease in self._storage.leases.items() if owner in owners}

    def keep(self, lease: Lease) -> None:
        self._storage.leases[lease.owner] = lease

    def is_dead(self, lease: Lease) -> bool:
        return lease.owner in self._storage.dead

    def now(self) -> float:
        return self.time

    def backoff(self) -> float:
        return self.random.uniform(0, 1)


def driver(storage: Storage, owner: str) -> tuple[Leadership, Reached]:
    reached = Reached(storage)
    return Leadership(reached, owner, f"process of {owner}"), reached


def carry_out(steps: Any, reached: Reached) -> Any:
    try:
        while True:
            reached.time += next(steps)
    except StopIteration as end:
        return end.value


def lead(storage: Storage, owner: str) -> tuple[Leadership, Reached]:
    rules, reached = driver(storage, owner)
    carry_out(rules.campaign(), reached)
    return rules, reached


@pytest.mark.parametrize("exclusive", [True, False])
def test_each_start_gets_the_next_number(exclusive: bool) -> None:
    storage = Storage(exclusive, last=7)
    rules, reached = lead(storage, "a")
    assert [rules.number, *(carry_out(rules.campaign(), reached) for _ in range(3))] == [8, 9, 10, 11]
    rules.release()
    other, clock = lead(storage, "b")
    assert other.number == 12 and clock.time == 0, "a released lease is not waited for"


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_driver_that_is_alive_is_left_alone(exclusive: bool) -> None:
    storage = Storage(exclusive)
    rules, reached = lead(storage, "a")
    second, clock = driver(storage, "b")
    steps = second.campaign()
    with pytest.raises(AlreadyRunning, match="process of a"):
        while True:
            clock.time += next(steps)
            carry_out(rules.renew(), reached)
    assert [one.owner for one in storage.claims] == ["a"] and set(storage.leases) == {"a"}
    rules.check()


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_silent_driver_is_taken_over_and_hears_of_it(exclusive: bool) -> None:
    storage = Storage(exclusive)
    rules, reached = lead(storage, "a")
    second, clock = lead(storage, "b")
    assert second.number == 2 and clock.time == pytest.approx(LEASE_SECONDS)
    for steps in (rules.renew(), rules.campaign()):
        with pytest.raises(Fenced, match="another driver has taken this query over: start 1"):
            carry_out(steps, reached)
    with pytest.raises(Fenced):
        rules.check()
    second.check()
    assert storage.leases["a"].renewals == 1, "it writes nothing any more"


def test_a_driver_that_is_known_to_be_dead_is_not_waited_for() -> None:
    storage = Storage(exclusive=True, dead={"a"})
    lead(storage, "a")
    assert lead(storage, "b")[1].time == 0


def test_who_has_claimed_and_has_no_lease_yet_is_waited_for() -> None:
    storage = Storage(exclusive=False)
    rules, reached = driver(storage, "a")
    steps = rules.campaign()
    while not storage.claims:
        next(steps)
    second, clock = lead(storage, "b")
    assert clock.time == pytest.approx(LEASE_SECONDS)
    with pytest.raises(AlreadyRunning, match="process of b"):  # it has come too late
        while True:
            reached.time += next(steps)
            carry_out(second.renew(), clock)


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("seed", range(200))
def test_no_number_is_given_twice_however_the_steps_fall(exclusive: bool, seed: int) -> None:
    """Of several drivers that begin at once, any number may be told that another one leads. Clocks differ in speed."""
    random = Random(seed)
    storage = Storage(exclusive, last=random.choice([0, 5]))
    drivers = [driver(storage, f"owner {at}") for at in range(random.randint(2, 4))]
    rates = [random.choice([0.5, 1.0, 3.0]) for _ in drivers]
    running = {at: rules.campaign() for at, (rules, _) in enumerate(drivers)}
    given, refused = [], []
    for _ in itertools.takewhile(lambda _: running, range(20_000)):
        at = random.choice(list(running))
        reached = drivers[at][1]
        reached.random = random
        try:
            passed = next(running[at])
        except StopIteration as end:
            given.append(end.value)
            del running[at]
        except (AlreadyRunning, Fenced):
            refused.append(at)
            del running[at]
        else:
            for other in drivers:
                other[1].time += passed * rates[drivers.index(other)]
    assert not running and given and len(set(given)) == len(given), (given, refused)
    assert min(given) > storage.last


def test_a_claim_counts_only_alone_and_on_top() -> None:
    mine = Claim(5, "a")
    assert counts(mine, [Claim(4, "b"), mine])
    assert not counts(mine, [mine, Claim(5, "b")])
    assert not counts(mine, [mine, Claim(6, "b")])
    assert not counts(mine, [Claim(4, "b")]), "who does not see its own claim has seen nothing"
    assert is_overtaken(5, "a", [mine, Claim(6, "b")])
    assert not is_overtaken(5, "a", [mine, Claim(6, "a"), Claim(5, "b")])


def test_old_claims_go_and_the_leases_with_them() -> None:
    storage = Storage(exclusive=True)
    first, _ = lead(storage, "a")
    first.release()
    rules, reached = lead(storage, "b")
    for _ in range(2 * CLAIMS_KEPT):
        carry_out(rules.campaign(), reached)
    assert len(storage.claims) <= CLAIMS_KEPT and set(storage.leases) == {"b"}

"""Which driver leads a query, and under which number.

Every start of a query claims a *generation*: a number above all that were ever claimed, which makes everything older
harmless, since generations are the high part of fences. No two starts get the same one, of one driver or of two: a
claim is a file that its maker creates exclusively where the storage can do that, and a claim counts only if its maker,
having written it, lists the claims and finds neither another one of that number nor a higher one. Of two that claim one
number at a time the second to write sees the first, so at most one of them counts; a driver whose claim does not count
withdraws it.

That alone is safe: an overtaken driver is *fenced*, and everything refuses it. It is not yet polite: a second driver
started by mistake would take a running query over. So a driver that leads keeps a *lease*, a counter that it raises
every now and then, and a driver that comes looks at it first. Where it rises, a driver leads, and the newcomer is
refused before it has touched anything. Where it does not rise for as long as the lease says, measured by the newcomer's
own clock alone, or where its owner is known to be dead or has released it, the way is free.

Steps of the storage are apart from each other, and time may pass in between; a runtime carries them out.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Protocol, TypeAlias, TypeVar

from clonos.errors import AlreadyRunning, Fenced
from clonos.protocol.fence import NO_GENERATION, Generation, generation_after

LEASE_SECONDS: Final = 10.0
RENEWALS_PER_LEASE: Final = 5
LOOKS_PER_LEASE: Final = 10
CLAIMS_KEPT: Final = 8

T = TypeVar("T")
Steps: TypeAlias = Generator[float, None, T]
"""Between any two steps of the storage, seconds to let pass."""


@dataclass(frozen=True, slots=True)
class Claim:
    """That a start of a query wants a number for itself. `owner` is random, one per driver."""

    number: Generation
    owner: str


@dataclass(frozen=True, slots=True)
class Lease:
    """That a driver is alive, by a counter that rises; `holder` says in words which driver that is."""

    owner: str
    renewals: int = 0
    seconds: float = LEASE_SECONDS
    released: bool = False
    holder: str = "a driver"


class Shelf(Protocol):
    """Where claims and leases are kept. Each call is one step of the storage."""

    def floor(self) -> Generation:
        """The last number that was used before there were claims."""
        ...

    def claims(self) -> list[Claim]: ...

    def claim(self, claim: Claim) -> bool:
        """Whether it was created; False where the storage says that there is one of that number."""
        ...

    def withdraw(self, claim: Claim) -> None: ...

    def forget(self, claims: Collection[Claim], kept: Collection[str]) -> None:
        """Claims that are of no use any more, and the leases of all owners but these."""
        ...

    def leases(self, owners: Collection[str]) -> Mapping[str, Lease]:
        """The leases of those owners that have one."""
        ...

    def keep(self, lease: Lease) -> None: ...

    def is_dead(self, lease: Lease) -> bool:
        """Whether its holder is known to be dead. False where that cannot be known."""
        ...

    def now(self) -> float:
        """The time of this driver's own clock, in seconds; it need not agree with another driver's."""
        ...

    def backoff(self) -> float:
        """Seconds, at random: two that were in each other's way shall not be so again."""
        ...


class Verdict(Enum):
    """What a newcomer knows of the drivers that may be leading."""

    OVER = "no driver leads"
    LIVE = "a driver leads"
    UNKNOWN = "its lease must be watched for longer"


def counts(claim: Claim, listed: Iterable[Claim]) -> bool:
    """Whether a claim that was written before `listed` was looked up gives its maker the number."""
    return [other for other in listed if other.number >= claim.number] == [claim]


def is_overtaken(number: Generation, owner: str, listed: Iterable[Claim]) -> bool:
    """Whether another driver has claimed a higher number than the one that `owner` leads under."""
    return any(other.number > number and other.owner != owner for other in listed)


class Watch:
    """What a newcomer has seen of the drivers that made the highest claim."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, Lease | None]] = {}

    def look(
        self, now: float, rivals: Collection[str], leases: Mapping[str, Lease], dead: Collection[str]
    ) -> tuple[Verdict, Lease | None]:
        """Whether one of the rivals leads, and the lease of the one that does."""
        self._since = {owner: seen for owner, seen in self._since.items() if owner in rivals}
        verdict = Verdict.OVER
        for owner in rivals:
            lease = leases.get(owner)
            since, first = self._since.setdefault(owner, (now, lease))
            if owner in dead or (lease is not None and lease.released):
                continue
            if lease != first:
                return Verdict.LIVE, lease
            # A driver that has claimed and has no lease yet may be about to write it.
            if now - since < (lease.seconds if lease is not None else LEASE_SECONDS):
                verdict = Verdict.UNKNOWN
        return verdict, None


class Leadership:
    """The leadership of one driver, from the start of a query to its end."""

    def __init__(self, shelf: Shelf, owner: str, holder: str) -> None:
        self.number = NO_GENERATION
        self._shelf = shelf
        self._owner = owner
        self._lease = Lease(owner, holder=holder)
        self._watch = Watch()

    def campaign(self, *, above: Generation = NO_GENERATION) -> Steps[Generation]:
        """Claim a generation for one more start, higher than all there are and than `above`. Raises AlreadyRunning
        where another driver leads, Fenced where another one has taken over from this one."""
        shelf = self._shelf
        while True:
            listed = shelf.claims()
            yield 0.0
            if self._must_wait(listed):
                yield LEASE_SECONDS / LOOKS_PER_LEASE
                continue
            yield 0.0
            highest = max((one.number for one in listed), default=NO_GENERATION)
            claim = Claim(generation_after(max(highest, shelf.floor(), above)), self._owner)
            if not shelf.claim(claim):
                continue
            yield 0.0
            listed = shelf.claims()
            yield 0.0
            if counts(claim, listed):
                self.number = claim.number
                shelf.keep(self._next_lease())
                self._tidy(listed)
                return claim.number
            shelf.withdraw(claim)
            yield shelf.backoff()

    def _must_wait(self, listed: list[Claim]) -> bool:
        """Whether to wait, because another driver may be leading."""
        if self.number:
            self._check(listed)
            return False
        highest = max((one.number for one in listed), default=NO_GENERATION)
        rivals = [one.owner for one in listed if one.number == highest]
        leases = self._shelf.leases(rivals)
        dead = [owner for owner, lease in leases.items() if self._shelf.is_dead(lease)]
        verdict, leader = self._watch.look(self._shelf.now(), rivals, leases, dead)
        if verdict is Verdict.LIVE:
            raise already_running(leader.holder if leader is not None else "a driver")
        return verdict is Verdict.UNKNOWN

    def renew(self) -> Steps[None]:
        """Say that this driver is alive. Raises Fenced where another one has taken over."""
        listed = self._shelf.claims()
        yield 0.0
        self._check(listed)
        self._shelf.keep(self._next_lease())

    def release(self) -> None:
        """The next driver need not wait."""
        self._shelf.keep(replace(self._next_lease(), released=True))

    def check(self) -> None:
        """Raises Fenced where another one has taken over."""
        self._check(self._shelf.claims())

    def _check(self, listed: Iterable[Claim]) -> None:
        if is_overtaken(self.number, self._owner, listed):
            raise Fenced(
                f"another driver has taken this query over: start {self.number} of it is not the last any more",
                hint="Let it run there; this driver's query is over",
            )

    def _next_lease(self) -> Lease:
        self._lease = replace(self._lease, renewals=self._lease.renewals + 1)
        return self._lease

    def _tidy(self, listed: list[Claim]) -> None:
        old = [one for one in listed if one.number <= self.number - CLAIMS_KEPT]
        self._shelf.forget(old, {one.owner for one in listed if one not in old})


def already_running(holder: str, *, on_this_host: bool = False) -> AlreadyRunning:
    """Another driver leads; one `on_this_host` holds a lock for as long as its process is there."""
    paused = "Stop that one first. It leads also while it is paused (SIGSTOP): continue it, or kill it"
    cut_off = (
        "Stop that one first; if its host is cut off from the checkpoint, this one may start when "
        f"{LEASE_SECONDS:g} s have passed without a sign of it"
    )
    return AlreadyRunning(
        f"this query is running already: {holder}", hint=paused if on_this_host else cut_off
    )

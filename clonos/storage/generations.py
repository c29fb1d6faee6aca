"""Claims of generations and the leases of drivers, in the checkpoint (`clonos.protocol.roles.leadership` has the
rules).

    <checkpoint>/clonos/generations/<number>            a claim, where files can be created exclusively
    <checkpoint>/clonos/generations/<number>-<owner>    a claim, where they cannot
    <checkpoint>/clonos/leases/<owner>                  a driver is alive: a counter that rises
    <checkpoint>/clonos/generation                      the last number of the format before

All are JSON with version and checksum. A claim is written once, a lease by its owner alone. `Machine` is what tells a
newcomer on the same host, without waiting, that a driver is dead: both name the file of the lock that its process held,
and a newcomer that gets the lock of a process whose lease is not released knows that the process has ended.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clonos.errors import CheckpointMismatch
from clonos.protocol.fence import NO_GENERATION, Generation
from clonos.protocol.roles.leadership import Claim, Lease
from clonos.storage.folder import Folder
from clonos.storage.sealed import sealed, unsealed

FLOOR: Final = "generation"
_CLAIMS: Final = "generations"
_LEASES: Final = "leases"
_NAME: Final = re.compile(r"(\d{20})(?:-([0-9a-f]{32}))?")
_LONGEST_BACKOFF: Final = 1.0
_ANOTHER: Final = (
    "It says only which driver has taken that start of the query, and keeps its number from being given again: where "
    "no driver of the query runs any more, copy the file of another start in that folder over it"
)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a driver runs, and the file whose lock it holds."""

    boot: str  # of this host, random at each of its starts; empty where it is not known
    lock: tuple[int, int]  # device and number of the file


class Generations:
    """The shelf of one checkpoint, as one driver uses it."""

    def __init__(self, folder: Folder, machine: Machine, about: Mapping[str, Any]) -> None:
        """`about` goes into claims, for people who read them: host, process, when it began."""
        self._folder = folder
        self._machine = machine
        self._about = dict(about)
        self._owners: dict[str, str] = {}  # of claims by name; they do not change
        self._machines: dict[str, Machine] = {}

    def floor(self) -> Generation:
        try:
            raw = self._folder.read(FLOOR)
        except FileNotFoundError:
            return NO_GENERATION
        return Generation(int(unsealed(raw, self._folder.path(FLOOR))["generation"]))

    def claims(self) -> list[Claim]:
        found = []
        for name in self._folder.sizes(_CLAIMS):
            match = _NAME.fullmatch(name)
            owner = match and (match[2] or self._owner(name))
            if match is not None and owner:
                found.append(Claim(Generation(int(match[1])), owner))
        return found

    def _owner(self, name: str) -> str | None:
        """None of a claim that has been withdrawn since it was listed."""
        if name not in self._owners:
            path = f"{_CLAIMS}/{name}"
            try:
                raw = self._folder.read(path)
            except FileNotFoundError:
                return None
            self._owners[name] = str(unsealed(raw, self._folder.path(path), _ANOTHER)["owner"])
        return self._owners[name]

    def claim(self, claim: Claim) -> bool:
        body = {"owner": claim.owner, **self._about, "at": time.time()}
        return self._folder.create(f"{_CLAIMS}/{self._name(claim)}", sealed(body))

    def withdraw(self, claim: Claim) -> None:
        self._folder.delete(f"{_CLAIMS}/{self._name(claim)}")

    def forget(self, claims: Collection[Claim], kept: Collection[str]) -> None:
        for claim in claims:
            self.withdraw(claim)
        for owner in self._folder.sizes(_LEASES):
            if owner not in kept:
                self._folder.delete(f"{_LEASES}/{owner}")

    def _name(self, claim: Claim) -> str:
        own = "" if self._folder.exclusive else f"-{claim.owner}"
        return f"{claim.number:020d}{own}"

    def leases(self, owners: Collection[str]) -> dict[str, Lease]:
        found = {}
        for owner in owners:
            name = f"{_LEASES}/{owner}"
            try:
                body = unsealed(self._folder.read(name), self._folder.path(name))
                self._machines[owner] = Machine(body["boot"], (body["lock"][0], body["lock"][1]))
                found[owner] = Lease(
                    owner,
                    int(body["renewals"]),
                    float(body["seconds"]),
                    bool(body["released"]),
                    body["holder"],
                )
            except FileNotFoundError:
                continue
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise CheckpointMismatch(f"{self._folder.path(name)} cannot be read: {error!r}") from error
        return found

    def keep(self, lease: Lease) -> None:
        body = {
            "renewals": lease.renewals,
            "seconds": lease.seconds,
            "released": lease.released,
            "holder": lease.holder,
            "boot": self._machine.boot,
            "lock": list(self._machine.lock),
        }
        self._folder.write(f"{_LEASES}/{lease.owner}", sealed(body))

    def is_dead(self, lease: Lease) -> bool:
        """Only one process at a time holds the lock that this driver holds now."""
        return bool(self._machine.boot) and self._machines.get(lease.owner) == self._machine

    def now(self) -> float:
        return time.monotonic()

    def backoff(self) -> float:
        return random.uniform(0, _LONGEST_BACKOFF)

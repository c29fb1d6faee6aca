"""Whether a driver leads a query, on whichever host: its lease in the checkpoint rises while it does."""

from __future__ import annotations

import time

from clonos.protocol.roles.leadership import LEASE_SECONDS, Lease
from clonos.storage.folder import Folder, resolve
from clonos.storage.generations import Generations, Machine


class LeaseWatch:
    """Of one checkpoint. Nothing is claimed, and nothing is written."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._last: Lease | None = None
        self._risen_at = float("-inf")

    def leader(self) -> str | None:
        """In words, the driver whose lease has risen lately, between two looks; None where none has."""
        storage, root = resolve(self._location)
        shelf = Generations(Folder(storage, f"{root}/clonos", tag="looking"), Machine("", (0, 0)), {})
        owners = [claim.owner for claim in sorted(shelf.claims(), key=lambda each: each.number)][-1:]
        lease = next(iter(shelf.leases(owners).values()), None)
        before, self._last = self._last, lease
        if lease is None or lease.released:
            self._risen_at = float("-inf")
            return None
        if before is not None and before.owner == lease.owner and before.renewals != lease.renewals:
            self._risen_at = time.monotonic()
        return lease.holder if time.monotonic() - self._risen_at < LEASE_SECONDS else None

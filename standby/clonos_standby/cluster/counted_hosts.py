"""Which hosts' logs count, as the driver keeps it in the checkpoint.

The rule is that of `clonos.protocol.roles.membership`.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable

from clonos.protocol.fence import NO_GENERATION, Generation
from clonos.protocol.roles.membership import Memberships
from clonos.storage.host_memberships import HostMemberships
from clonos_standby.server.log import about

LOG = logging.getLogger("clonos")


class CountedHosts:
    """Safe to use from several threads. `check_leads` raises Fenced where another driver leads the query."""

    def __init__(self, checkpoint: str, check_leads: Callable[[], None]) -> None:
        self._files = HostMemberships(checkpoint)
        self._lock = threading.Lock()
        self._generation = NO_GENERATION  # of the start whose instances ask those that count
        self._memberships = Memberships(
            self._files.last(),
            lambda: secrets.token_hex(16),
            keep=lambda memberships: self._files.keep(self._generation, memberships),
            check_leads=check_leads,
        )

    def token(self, host: str) -> str:
        """What a host is to be asked under."""
        with self._lock:
            return self._memberships.token(host)

    def joins(self, host: str, token: str) -> bool:
        """The host has granted what it was asked under this token; whether it counts. Raises StorageUnavailable."""
        with self._lock:
            return self._memberships.joins(host, token)

    def begins(self, generation: Generation) -> None:
        """A start of the query; its instances ask the hosts that count by now. Raises StorageUnavailable."""
        with self._lock:
            self._generation = generation
            left = self._memberships.begins()
        if left:
            LOG.warning(
                "logs on %s are not asked for any more: what an instance did there in the epoch that is under way, and "
                "no other host has recorded, is done anew, an effect perhaps with other values",
                ", ".join(left),
                extra=about("hosts_left", hosts=left),
            )

    def leaves(self, host: str) -> None:
        """The query may go on without a host when this returns. Raises StorageUnavailable, or Fenced."""
        with self._lock:
            self._memberships.leaves(host)

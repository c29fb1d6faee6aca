"""The driver's side of a replica server on another host, by the service that the configuration names.

It is there under a lease. While the driver can prolong it, the server counts; when it has not been able to for the
length of the lease, the query goes on without it: its standbys are asked for again and again by the conduits, and its
logs are not waited for. When the service answers again, the server is started again, at the same port where that is
free. Its logs count again if the query has not gone on without it (`protocol.roles.membership`).

A server whose lease is over ends, and its replicas with it. If it is stopped by a signal, and so is its service, it
cannot, and its replicas may run on. Nothing that they do counts: conduits go on under a later fence and take nothing
from them, snapshots that are claimed under it refuse theirs, and the membership of their logs is over.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from clonos.errors import ClonosError, StorageUnavailable
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, LogOffset, Origin
from clonos.protocol.roles.lease import DriverLease
from clonos.wire.admin_messages import (
    AdminRequest,
    BeginGeneration,
    CommitEpoch,
    CommitTold,
    Done,
    GetStatus,
    SetHolders,
    Status,
)
from clonos.wire.replica_client import ReplicaClient, Unreachable
from clonos.wire.replica_service import Granted, LeaseEnded, Wanted
from clonos.wire.server_status import PlacedStatus, placed
from clonos.wire.tls import Tls
from clonos_standby.cluster.address import ServerAddress
from clonos_standby.cluster.counted_hosts import CountedHosts
from clonos_standby.cluster.server_directory import ServerEntry
from clonos_standby.server import admin
from clonos_standby.server.admin import AnswerT
from clonos_standby.server.log import about

LOG = logging.getLogger("clonos")

_RENEWALS_PER_LEASE = 4
_ADMIN_SECONDS = 5.0
_MARGIN_SECONDS = 1.0
_LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServers:
    """The servers that a configuration names, `HOST:PORT` of each service, and how they are talked to."""

    services: tuple[str, ...] = ()
    service_token: str = ""
    token_file: str = ""  # where it was read
    tls: Tls | None = None


class LeasedServer:
    """One replica server of one query, on another host. Safe to use from several threads."""

    def __init__(
        self,
        place: str,
        remote: RemoteServers,
        wanted: Wanted,
        token: str,
        changed: Callable[[], None],
        hosts: CountedHosts,
        generation: Generation | None = None,
        may_ask: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when the server may have come, gone or moved. `hosts` says which hosts count.
        `generation` is the one that the query is in already. `may_ask` raises Fenced where another driver leads the
        query: a driver that asks takes over the server."""
        self._hosts = hosts
        self._counts = False
        self._found: str | None = None  # where its determinant service was last
        self._may_ask = may_ask
        self.place = place
        self._host = place.rpartition(":")[0]
        self._tls = remote.tls
        self._token_file = remote.token_file
        self._wanted = wanted
        self._token = token
        self._changed = changed
        self._client = ReplicaClient(place, remote.service_token, remote.tls)
        self._granted: Granted | None = None
        self._lease: DriverLease | None = None
        self._said = ""
        self._generation = generation
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"clonos-{place}", daemon=True)

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Asks the service for a server. One that refuses is an error; one that cannot be reached is asked again."""
        try:
            self._host_again()
        except Unreachable as error:
            self._warn("service_away", "the query goes on without a standby there for the time being", error)
        self._thread.start()

    def stop(self) -> None:
        """The server is gone when this returns, or will be when its lease has ended."""
        self._stopping.set()
        if self._granted is None:
            self._client.close()  # it may be in the middle of asking for one that is not there
        if self._thread.ident is not None:
            self._thread.join()
        granted, self._granted = self._granted, None
        if granted is not None:
            with contextlib.suppress(ClonosError):
                self._client.release(self._wanted.query, granted.lease)
        self._client.close()

    @property
    def granted(self) -> Granted | None:
        """None while it is lost."""
        return self._granted

    @property
    def socket(self) -> ServerAddress | None:
        """Where conduits find it, also while it is lost; None where it has not been reached yet."""
        if not self._wanted.port:
            return None
        kind = "tls" if self._tls is not None else "tcp"
        return ServerAddress(self._host, far=f"{kind}:{self._host}:{self._wanted.port}")

    @property
    def entry(self) -> ServerEntry | None:
        """Where commands that an operator of the query runs find this server; None while it is lost."""
        granted = self._granted
        if granted is None:
            return None
        return ServerEntry(self.place, f"{self._host}:{granted.port}", self._tls, self._token_file)

    @property
    def determinants(self) -> str | None:
        """Where its logs are asked for; None where the query goes on without them. While they count and the server is
        lost, a replica that asks there waits."""
        return self._found if self._counts else None

    def _keep(self) -> None:
        while not self._stopping.wait(self._pause()):
            counted = self._counts
            try:
                if self._granted is not None:
                    self._renew(self._granted)
                if self._granted is None:
                    self._go_on()
            except (ClonosError, OSError) as error:
                if not self._stopping.is_set():
                    self._warn("service_failed", "the replica service", error)
                if counted == self._counts:
                    continue
            self._changed()

    def _warn(self, event: str, what: str, error: ClonosError | OSError) -> None:
        """Once, however often it is so in a row."""
        said = f"{what}: {error.message if isinstance(error, ClonosError) else error}"
        if said != self._said:
            self._said = said
            LOG.warning("%s", said, extra=about(event, query=self._wanted.query))

    def _pause(self) -> float:
        granted = self._granted
        return granted.seconds / _RENEWALS_PER_LEASE if granted is not None else 1.0

    def _go_on(self) -> None:
        """The server is lost: with a new one, or, when its lease is over, without."""
        try:
            self._host_again()
        except (ClonosError, OSError):
            if self._counts and self._lease is not None and self._lease.is_over(time.monotonic()):
                self.leave()
            raise

    def leave(self) -> None:
        """The query goes on without this host. Raises StorageUnavailable where the checkpoint cannot keep that."""
        self._hosts.leaves(self.place)
        self._counts = False

    def _host_again(self) -> None:
        self._may_ask()
        token = self._hosts.token(self.place)
        granted = self._client.host(replace(self._wanted, membership=token))
        self._lease, self._said = DriverLease(granted.seconds, _MARGIN_SECONDS, time.monotonic()), ""
        self._wanted = replace(self._wanted, port=granted.port)
        self._granted = granted
        try:
            if self._generation is not None:
                self._ask(BeginGeneration(self._generation), Done)
            if not self._hosts.joins(self.place, token):
                raise StorageUnavailable(f"the query has begun without the server at {self.place} meanwhile")
        except (ClonosError, OSError):
            self._granted = None  # and asked for again
            raise
        self._found = f"{self._host}:{granted.determinants}"
        self._counts = True

    def _renew(self, granted: Granted) -> None:
        lease = self._lease
        assert lease is not None  # it came with what was granted
        try:
            renewed = self._client.renew(self._wanted.query, granted.lease, lease.heard)
        except LeaseEnded as error:
            self._warn("service_away", "the server there is gone, and is asked for again", error)
            self._granted = None
            return
        except Unreachable as error:
            if lease.is_over(time.monotonic()):
                self.leave()
                self._warn("service_away", "the query goes on without the server there", error)
                self._granted = None
            return
        lease.answered(renewed.answer, time.monotonic())
        self._granted, self._said = renewed, ""

    # ------------------------------------------------------------ requests

    def commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """A later one says the same and more, so one that does not get through is let go."""
        if self._granted is not None:
            with contextlib.suppress(ClonosError, OSError):
                self._ask(CommitEpoch(epoch, truncation_points), CommitTold)

    def set_generation(self, generation: Generation) -> None:
        """Older replicas are dead when this returns, because the server says so; or its lease has ended, and what still
        runs there does not count (see the module)."""
        self._generation = generation
        deadline = time.monotonic() + _LONGEST_WAIT
        while self._granted is not None:
            try:
                self._ask(BeginGeneration(generation), Done)
                return
            except (ClonosError, OSError) as error:
                if time.monotonic() > deadline:
                    raise StorageUnavailable(
                        f"the replica server at {self.place} does not answer: {error}"
                    ) from None
                time.sleep(0.1)

    def tell_holders(self, addresses: Sequence[str]) -> None:
        if self._granted is not None:
            self._ask(SetHolders(tuple(addresses)), Done)

    def status(self) -> PlacedStatus | None:
        """None where it does not answer."""
        if self._granted is None:
            return None
        with contextlib.suppress(ClonosError, OSError):
            return placed(self._ask(GetStatus(), Status).said, self.place)
        return None

    def _ask(self, request: AdminRequest, expected: type[AnswerT]) -> AnswerT:
        entry = self.entry
        if entry is None:
            raise StorageUnavailable(f"the replica server at {self.place} is lost")
        return admin.ask(entry.address, self._token, request, expected, _ADMIN_SECONDS, entry.tls)

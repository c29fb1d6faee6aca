"""The replica service of a host: one replica server per query that a driver asks for, for as long as it asks.

Drivers come and go, and their hosts fail; what they left running here must neither stay for ever nor act on. So a
query is hosted under a lease that its driver prolongs. A lease that ends takes the query's server along, and the server
sees to that itself, so that it also holds where this process hangs. A driver that has had no answer for as long may
therefore take it that its query is not served here any more, also if its questions still get here
(`protocol.roles.lease`). Where this process and the server are both stopped by a signal, replicas may run on; they are
fenced (`cluster.leased_server`). A driver that asks for the same query later takes over: it is the query's next one.

What a query's server keeps stays on disk, for the next time.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack

from clonos.errors import ClonosError, ConfigurationError, ReplicaLost, StorageUnavailable
from clonos.protocol.roles.lease import HostLease
from clonos.storage import object_store
from clonos.storage.folder import Folder, resolve
from clonos.storage.log_directory import claim_log_directory
from clonos.wire.replica_service import Granted, LeaseEnded, NoRoom, Wanted
from clonos.wire.server_status import ServerStatus
from clonos.wire.strikes import FaultCommand, Kind, NoProcess
from clonos.wire.tls import Tls
from clonos_standby.cluster.launcher import ReplicaServer
from clonos_standby.cluster.spec_file import VERSION
from clonos_standby.server import running
from clonos_standby.server.log import Level, log
from clonos_standby.server.metrics_place import MetricsPlace
from clonos_standby.server.strike import strike
from clonos_standby.service.environment import differences, environment
from clonos_standby.service.membership import SET_ASIDE, begin_membership

TIDY_SECONDS = 1.0
STRIKES = 4
"""At once: each has a thread of the service while it lasts, and leases are prolonged beside them."""


@dataclass(eq=False)
class _Hosted:
    """A query's place here: reserved before its server is up, so that two cannot take the same slots."""

    query: str
    instances: int
    lease: int = field(default_factory=lambda: secrets.randbits(63))
    since: float = field(default_factory=time.time)
    renewed: float = field(default_factory=time.monotonic)
    until: HostLease | None = None  # once its server is up
    server: ReplicaServer | None = None
    starting: threading.Lock = field(default_factory=threading.Lock)
    cut_off: bool = False  # on purpose: its driver is not answered


class Service:
    """What the service does; `clonos.wire.replica_service` is how it is asked."""

    def __init__(
        self,
        data: Path,
        host: str,
        slots: int,
        lease: float,
        tls: Tls | None,
        entry: str | None = None,
        has_metrics: bool = False,
    ) -> None:
        """With metrics, its servers have pages for this host, which `metrics_addresses` names."""
        self._data = data
        self._host = host
        self._slots = slots
        self._lease = lease
        self._tls = tls
        self._entry = entry
        self._has_metrics = has_metrics
        self.metrics: str | None = None  # the address of the page of all queries
        self._environment = environment()
        self._lock = threading.Lock()
        self._hosted: dict[str, _Hosted] = {}
        self._strikes = threading.BoundedSemaphore(STRIKES)
        self._closing = threading.Event()
        self._tidier = threading.Thread(target=self._tidy, name="clonos-leases", daemon=True)
        self._tidier.start()

    # ------------------------------------------------------------- what drivers ask for

    def host(self, wanted: Wanted) -> Granted:
        document = self._checked(wanted)
        hosted, old = self._reserve(wanted)
        with hosted.starting:
            try:
                if old is not None:
                    self._end(old, "another driver of it has come")
                hosted.server = self._start(wanted, document)
            except BaseException:
                self._forget(hosted)
                raise
            hosted.renewed = time.monotonic()
            hosted.until = HostLease(self._lease, hosted.renewed)
        if self._closing.is_set():
            self._end(hosted, "the service ends")
        said = f"query {wanted.query}: {wanted.instances} instances may have a replica here"
        log("query_admitted", said, level=Level.INFO, query=wanted.query)
        return self._granted(hosted, 0)

    def renew(self, query: str, lease: int, heard: int) -> Granted:
        hosted = self._find(query, lease)
        _check_reached(hosted)
        if hosted.server is not None and hosted.server.lease_ended:  # it stood still, or this process did
            self._end(hosted, "its server has ended, as it had not heard in time that it is still wanted")
            raise LeaseEnded(f"the server of query {query} has ended: it was not prolonged in time")
        answer = 0
        if hosted.server is not None and hosted.until is not None:
            now = hosted.renewed = time.monotonic()
            answer = hosted.until.renew(heard, now)
            hosted.server.prolong(hosted.until.ends - now)
        return self._granted(hosted, answer)

    def release(self, query: str, lease: int) -> None:
        self._end(self._find(query, lease), "its driver has ended it")

    def describe(self) -> dict[str, Any]:
        with self._lock:
            hosted = list(self._hosted.values())
        return {
            "metrics": self.metrics,
            "slots": self._slots,
            "free": self._slots - sum(one.instances for one in hosted),
            "environment": self._environment,
            "queries": [
                {
                    "query": one.query,
                    "instances": one.instances,
                    "since": one.since,
                    "renewed_ago": round(time.monotonic() - one.renewed, 3),
                    "pid": one.server.pid if one.server is not None else None,
                }
                for one in hosted
            ],
        }

    def metrics_addresses(self) -> list[tuple[str, str]]:
        """The pages of the servers that run, by query."""
        with self._lock:
            servers = {one.query: one.server for one in self._hosted.values()}
        found = {query: running.read(server.data) for query, server in servers.items() if server is not None}
        return [(query, said.metrics) for query, said in found.items() if said is not None and said.metrics]

    def strike(self, query: str, command: FaultCommand, name: str, gone: Callable[[], bool]) -> Iterator[str]:
        """One that is cut off is not answered to either, nor tidied up: its server sees to its lease by itself."""
        with self._lock:
            hosted = self._hosted.get(query)
        server = hosted.server if hosted is not None else None
        if hosted is None or server is None:
            raise NoProcess(f"query {query} has no server on {self._host} now")
        if not self._strikes.acquire(blocking=False):
            raise NoRoom(f"{STRIKES} strikes are going on already", hint="Wait until one of them is over")
        log("struck", f"query {query}: {command.kind.value} on purpose: {name}", query=query)
        hosted.cut_off = hosted.cut_off or command.kind is Kind.PARTITION

        def status() -> ServerStatus:
            try:
                return server.status()
            except ReplicaLost as error:
                raise NoProcess(str(error)) from None

        try:
            yield from strike(command, status, server.data, name, lambda: gone() or self._closing.is_set())
        finally:
            if command.kind is Kind.PARTITION:
                hosted.cut_off = False
            self._strikes.release()

    def close(self) -> None:
        """No query any more; conduits turn to their other server."""
        self._closing.set()
        with self._lock:
            hosted = list(self._hosted.values())
        for one in hosted:
            self._end(one, "the service ends")
        self._tidier.join()

    # ------------------------------------------------------------------------ checks

    def _checked(self, wanted: Wanted) -> dict[str, Any]:
        """The spec, if the query can run here as it runs at its driver. Raises ConfigurationError."""
        found = differences(wanted.environment, self._environment, wanted.modules)
        if found:
            raise ConfigurationError(
                f"query {wanted.query} would not run on {self._host} as it does at its driver: {'; '.join(found)}",
                hint="Install the same releases, and the modules of the query's functions, on both hosts",
            )
        try:
            document = msgpack.unpackb(wanted.spec, raw=False, strict_map_key=False)
            fits = document["version"] == VERSION and document["query"] == wanted.query
            checkpoint, token = str(document["checkpoint"]), document["token"]
        except Exception as error:  # msgpack raises many kinds
            raise ConfigurationError(f"that is not a query spec: {error!r}") from None
        if not fits or not isinstance(token, str) or not token:
            raise ConfigurationError(f"that is not the spec of query {wanted.query}")
        object_store.use(document.get("stores", {}))
        _check_storage(checkpoint, wanted.query)
        return dict(document)

    def _reserve(self, wanted: Wanted) -> tuple[_Hosted, _Hosted | None]:
        with self._lock:
            if self._closing.is_set():
                raise StorageUnavailable("the service is just ending")
            old = self._hosted.get(wanted.query)
            if old is not None:
                _check_reached(old)
            taken = sum(one.instances for one in self._hosted.values() if one is not old)
            if taken + wanted.instances > self._slots:
                raise NoRoom(
                    f"query {wanted.query} wants {wanted.instances} slots and {self._slots - taken} of {self._slots} "
                    "are free",
                    hint="Start the service with more --slots, or name another server",
                )
            hosted = self._hosted[wanted.query] = _Hosted(wanted.query, wanted.instances)
            return hosted, old

    # ----------------------------------------------------------------------- servers

    def _start(self, wanted: Wanted, document: dict[str, Any]) -> ReplicaServer:
        name = f"{wanted.query}-{wanted.history}" if wanted.history else wanted.query
        data = self._data / name
        claim_log_directory(data, str(document["checkpoint"]), wanted.query)
        if begin_membership(data, wanted.membership):
            said = f"query {wanted.query} has gone on without this host: its logs are in {data / SET_ASIDE}"
            log("logs_set_aside", said, query=wanted.query)
        spec = {
            **document,
            "data": str(data),
            "home": str(data),
            "driver_pids": [],  # of another host
            "left_behind": [],  # there, too
            "faults": "",
            "listen": self._host,
            "tls": self._tls.to_dict() if self._tls is not None else None,
            "metrics": MetricsPlace(shown_as=self.metrics or "").to_dict() if self._has_metrics else None,
        }

        def started(port: int) -> ReplicaServer:
            return ReplicaServer(
                spec,
                data,
                entry=self._entry,
                tcp=f"{self._host}:{port}",
                lease=self._lease,
                silence=self._lease,
            ).start()

        if wanted.port:
            with contextlib.suppress(ConfigurationError):  # another process has the port now
                return started(wanted.port)
        return started(0)

    def _granted(self, hosted: _Hosted, answer: int) -> Granted:
        server = hosted.server
        if server is None or server.tcp_address is None or server.grpc_address is None:
            raise StorageUnavailable(f"the server of query {hosted.query} is just starting")
        port, determinants = (
            int(address.rpartition(":")[2]) for address in (server.tcp_address, server.grpc_address)
        )
        return Granted(hosted.lease, self._lease, port, determinants, answer)

    def _find(self, query: str, lease: int) -> _Hosted:
        with self._lock:
            hosted = self._hosted.get(query)
        if hosted is None or hosted.lease != lease:
            raise LeaseEnded(f"query {query} is not hosted here under this lease")
        return hosted

    def _forget(self, hosted: _Hosted) -> None:
        with self._lock:
            if self._hosted.get(hosted.query) is hosted:
                del self._hosted[hosted.query]

    def _end(self, hosted: _Hosted, why: str) -> None:
        with hosted.starting if hosted.server is None else contextlib.nullcontext():
            server, hosted.server = hosted.server, None
        if server is not None:
            log("query_ended", f"query {hosted.query}: {why}", level=Level.INFO, query=hosted.query)
            server.stop()
        self._forget(hosted)

    def _tidy(self) -> None:
        """Frees the slots of leases that have ended."""
        while not self._closing.wait(min(TIDY_SECONDS, self._lease / 4)):
            with self._lock:
                hosted = list(self._hosted.values())
            for one in hosted:
                overdue = one.until is not None and one.until.is_over(time.monotonic())
                if one.server is not None and not one.cut_off and overdue:
                    try:
                        self._end(one, "its driver has not been heard of any more")
                    except ClonosError as error:
                        log("query_not_ended", str(error), query=one.query)


def _check_reached(hosted: _Hosted) -> None:
    if hosted.cut_off:
        raise StorageUnavailable(f"the server of query {hosted.query} is cut off, on purpose")


def _check_storage(checkpoint: str, query: str) -> None:
    filesystem, path = resolve(checkpoint)
    try:
        shape = Folder(filesystem, path, tag=f"service-{os.getpid()}").read("clonos/query.json")
    except (ClonosError, FileNotFoundError) as error:
        raise ConfigurationError(
            f"the checkpoint {checkpoint} cannot be read here: {error}",
            hint="Snapshots are handed over through it: put it on storage that every host sees under this name",
        ) from None
    if query.encode() not in shape:
        raise ConfigurationError(
            f"the checkpoint {checkpoint} that this host sees is not the one of query {query}",
            hint="Snapshots are handed over through it: put it on storage that every host sees under this name",
        )

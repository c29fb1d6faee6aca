"""The replica servers of a query: one on the driver's host, and for standbys another there, or those that are named, or
one beside each executor.

A standby is never on the server of its primary, so that losing a server loses one of them. Each has a data directory of
its own; the first one's is also the home of what the servers of one host have in common. With several remote servers
the instances of each operator are spread over them.

A replica that recovers asks every determinant service of the query. Where servers are on several hosts only the driver
knows them all, and which of them are lost for good, so it tells each of them whenever that changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack

from clonos.errors import ClonosError, StorageUnavailable
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, LogOffset, Origin
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.protocol.roles.instance_moves import may_have_moved
from clonos.wire.replica_service import Wanted
from clonos.wire.server_status import ServersStatus, merged, placed
from clonos_standby.cluster import server_directory
from clonos_standby.cluster.address import ServerAddress
from clonos_standby.cluster.counted_hosts import CountedHosts
from clonos_standby.cluster.launcher import ReplicaServer
from clonos_standby.cluster.leased_server import LOG, LeasedServer, RemoteServers
from clonos_standby.cluster.left_behind import forget, left_behind
from clonos_standby.cluster.spec import QuerySpec
from clonos_standby.replica.holders import server_folder
from clonos_standby.server.log import about
from clonos_standby.service.environment import environment, modules_of

_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Placement:
    """Where replicas go: whether there are standbys, how many instances may have a replica on each remote server, what
    Spark calls the driver's host, whether conduits are on others, too, and whether it is executors that have the remote
    servers: then there are those that there are, if any at all, and who refuses is left out."""

    remote: RemoteServers
    instances: tuple[int, ...] = ()
    standbys: bool = False
    history: int = 0
    host: str = ""
    spread: bool = False
    executors: bool = False


class ReplicaServers:
    """Started when made."""

    def __init__(
        self,
        spec: QuerySpec,
        placement: Placement,
        *,
        entry: str | None = None,
        silence: float | None = None,
        may_ask: Callable[[], None] = lambda: None,
    ) -> None:
        """A server on this host that has not answered for `silence` seconds is replaced. `may_ask` raises Fenced where
        another driver leads the query."""
        self._silence = silence
        self._may_ask = may_ask
        on_other_hosts = placement.standbys and (placement.executors or bool(placement.remote.services))
        self._hosts = CountedHosts(spec.checkpoint, may_ask)
        servers = 2 if placement.standbys and not on_other_hosts else 1
        former = left_behind(Path(spec.data), servers)
        self._spec = spec = replace(
            spec,
            servers=servers,
            told=on_other_hosts or placement.spread,
            left_behind=former,
            may_have_moved=may_have_moved(
                other_servers=on_other_hosts or servers > 1, left_behind=bool(former)
            ),
        )
        self._host = placement.host
        self._spread = placement.spread
        self._local: list[ReplicaServer] = []
        self._remote: list[LeasedServer] = []
        self._generation: Generation | None = None
        self._refused: set[str] = set()
        self._told: dict[tuple[object, int], list[str]] = {}
        self._telling = threading.Lock()
        self._committed: tuple[Epoch, Mapping[Origin, LogOffset]] | None = None
        self._look = threading.Event()
        self._stopping = False
        self._teller = threading.Thread(target=self._keep_telling, name="clonos-holders", daemon=True)
        try:
            Path(spec.data, server_directory.FILE).unlink(missing_ok=True)  # of an earlier start
            for number in range(servers):
                data = str(server_folder(Path(spec.data), number))
                self._local.append(self._started(self._document(number, data), data, entry))
            self._start_named(placement)
            if spec.told:
                self._tell_holders()
                self._teller.start()
        except BaseException:
            self.stop()
            raise

    def _document(self, number: int, data: str) -> Mapping[str, Any]:
        """What a server of this host is told. Each has a page of metrics, at one port after the other."""
        document, place = {**self._spec.to_document(), "data": data}, self._spec.metrics
        if place is not None and place.port:
            document["metrics"] = replace(place, port=place.port + number).to_dict()
        return document

    def _started(self, document: Mapping[str, Any], data: str, entry: str | None) -> ReplicaServer:
        return ReplicaServer(
            document,
            data,
            entry=entry,
            tcp=f"{self._spec.listen}:0" if self._spread else None,
            silence=self._silence,
            on_restart=lambda _: self._look.set(),
        ).start()

    def _start_named(self, placement: Placement) -> None:
        """All at once: each of them has a process to start. Those that are there already are left alone."""
        there = {server.place for server in self._remote} | self._refused
        remote = placement.remote if placement.standbys else RemoteServers()
        new = [one for one in zip(remote.services, placement.instances) if one[0] not in there]
        if not new:
            return
        raw = msgpack.packb(self._spec.to_document(), use_bin_type=True)
        ours, modules = environment(), modules_of(self._spec.nodes.values())
        fresh = []
        for place, instances in new:
            wanted = Wanted(self._spec.query, placement.history, instances, raw, ours, modules)
            token, look = self._spec.token, self._look.set
            fresh.append(
                LeasedServer(
                    place, remote, wanted, token, look, self._hosts, self._generation, may_ask=self._may_ask
                )
            )
        self._remote = [*self._remote, *fresh]
        with ThreadPoolExecutor(min(len(fresh), _AT_ONCE), thread_name_prefix="clonos-hosts") as pool:
            errors = list(pool.map(_refusal, fresh))
        for server, error in zip(fresh, errors):
            if error is not None and not placement.executors:
                raise error
            if error is not None:
                said = "%s; the query goes on without a standby there"
                LOG.warning(said, error.message, extra=about("service_refused", query=self._spec.query))
                if not isinstance(error, StorageUnavailable):  # that may be otherwise the next time
                    self._refused.add(server.place)
                self._give_up([server])

    def settle(self, placement: Placement) -> None:
        """Between two starts of the Spark query: services that are gone for good are given up, new ones are taken."""
        self._give_up([one for one in self._remote if one.place not in placement.remote.services])
        self._start_named(placement)
        self._tell_holders()

    def _give_up(self, servers: Sequence[LeasedServer]) -> None:
        self._remote = [one for one in self._remote if one not in servers]
        for server in servers:
            server.stop()
            server.leave()
        with self._telling:
            self._told = {key: said for key, said in self._told.items() if key[0] not in servers}

    @property
    def _all(self) -> list[ReplicaServer | LeasedServer]:
        return [*self._local, *self._remote]

    @property
    def addresses(self) -> tuple[ServerAddress | None, ...]:
        """By the number of the server, that of the driver's host first; None of one that has not been reached yet."""
        return (*map(self._address, self._local), *(server.socket for server in self._remote))

    def _address(self, server: ReplicaServer) -> ServerAddress:
        """Over TCP by the name that others have for this host: a certificate may not know its number."""
        far = None
        if server.tcp_address is not None:
            kind, port = "tls" if self._spec.tls is not None else "tcp", server.tcp_address.rpartition(":")[2]
            far = f"{kind}:{self._spec.listen}:{port}"
        return ServerAddress(self._host, f"unix:{server.socket_path}", far)

    def stop(self) -> None:
        """Servers, replicas and sockets are gone when this returns."""
        self._stopping = True
        self._look.set()
        if self._teller.ident is not None:
            self._teller.join()
        for leased in self._remote:
            leased.stop()
        for server in self._local:
            server.stop()

    def commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """Remote servers hear of it a little later: one that stands still must not hold up the driver's thread that
        watches the commits."""
        for server in self._local:
            server.commit(epoch, truncation_points)
        if self._remote:
            self._committed = epoch, truncation_points
            self._look.set()

    def exchange_rounds(self, generation: Generation, rounds: Rounds) -> Mapping[Origin, StoredRound]:
        """As `launcher.ReplicaServer.exchange_rounds`. Instances are on this host: where a lost process is not replaced
        there are no standbys, and so no servers elsewhere."""
        return {
            origin: stored
            for server in self._local
            for origin, stored in server.exchange_rounds(generation, rounds).items()
        }

    def forget_left_behind(self) -> None:
        """Remove the logs of former servers, which no recovery asks for any more. Raises StorageUnavailable."""
        for logs in self._spec.left_behind:
            forget(Path(logs))

    def set_generation(self, generation: Generation) -> None:
        self._generation = generation
        for server in self._all:
            server.set_generation(generation)

    def begins(self, generation: Generation) -> None:
        """Instances of this start begin after that, and ask the hosts that count by now."""
        self._hosts.begins(generation)

    def status(self) -> ServersStatus:
        """The merged status of all servers that answer; each replica says on which server it is."""
        here = [placed(server.status(), None) for server in self._local]
        there = [status for server in self._remote if (status := server.status()) is not None]
        return merged(*here, *there)

    def _keep_telling(self) -> None:
        """Whenever a remote server has been heard of or lost, or an epoch has committed. On a thread of its own: leases
        do not wait for it."""
        told = None
        while self._look.wait() and not self._stopping:
            self._look.clear()
            self._tell_holders()
            committed = self._committed
            if committed is not None and committed is not told:
                for server in self._remote:
                    server.commit(*committed)
                told = committed

    def _tell_holders(self) -> None:
        """Tell each server where the determinant services are; one that is not reached is told the next time."""
        with self._telling:
            self._tell_each()

    def _tell_each(self) -> None:
        server_directory.write(
            Path(self._spec.data), [one for server in self._remote if (one := server.entry) is not None]
        )
        found = list(self._spec.determinants)
        found += [server.grpc_address for server in self._local if server.grpc_address is not None]
        found += [server.determinants for server in self._remote if server.determinants is not None]
        for server in self._all:
            granted = server.granted if isinstance(server, LeasedServer) else None
            key = (server, granted.lease if granted is not None else 0)
            if self._told.get(key) != found:
                try:
                    server.tell_holders(found)
                except (ClonosError, OSError) as error:
                    LOG.warning("a replica server could not be told who holds logs; trying again: %s", error)
                else:
                    self._told[key] = found


def _refusal(server: LeasedServer) -> ClonosError | None:
    """Starts it, or says why not."""
    try:
        server.start()
    except ClonosError as error:
        return error
    return None

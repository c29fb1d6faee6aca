"""`clonos inject` at replicas on another host: through the service there, which alone takes hold of processes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from operated import make_checkpoint, serve
from services import TOKEN, Authority
from standby_conduit import PATIENCE, SPEC, Conduit, Watched, until
from test_inject import FIRST, inject, injecting

from clonos.errors import ConfigurationError, ProtocolError, Unauthenticated
from clonos.storage.log_store import LogStore
from clonos.tools.live_query import find
from clonos.tools.status.describe import describe
from clonos.wire.replica_client import ReplicaClient
from clonos.wire.replica_service import ReplicaService, Wanted
from clonos.wire.strikes import FaultCommand, Kind, NoProcess, Role
from clonos.wire.tls import Tls
from clonos_standby.cluster import server_directory
from clonos_standby.cluster.counted_hosts import CountedHosts
from clonos_standby.cluster.leased_server import LeasedServer, RemoteServers
from clonos_standby.server import running
from clonos_standby.server.processes import look_at
from clonos_standby.service.environment import environment
from clonos_standby.service.replica_service import STRIKES, Service

LOCAL = "127.0.0.1"
LEASE = 1.0


@dataclass
class Remote:
    """A query whose driver's host runs instance 0 of its operator, and a service the rest."""

    checkpoint: Path
    query: str
    address: str
    leased: LeasedServer
    data: Path
    here: Conduit
    primary: Conduit
    standby: Conduit
    tls: Tls

    def server(self) -> Any:
        """As conduits of this test find the one of the service."""
        found = until(lambda: running.read(self.data))
        return SimpleNamespace(socket_path=found.socket)


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    folder = tmp_path_factory.mktemp("remote")
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    query, _ = make_checkpoint(checkpoint).shape()
    tls = Authority(folder / "tls").issue("host")
    token = folder / "token"
    token.write_text(TOKEN)
    service = Service(folder / "service", LOCAL, 8, LEASE, tls, entry="standby_replica:main")
    asked = ReplicaService(service, TOKEN, LOCAL, 0, tls)
    spec = msgpack.packb({**SPEC, "query": query, "checkpoint": str(checkpoint)})
    wanted = Wanted(query, 0, 2, spec, environment(), {})
    to = RemoteServers(services=(asked.address,), service_token=TOKEN, token_file=str(token), tls=tls)
    hosts = CountedHosts(str(checkpoint), lambda: None)
    with serve(checkpoint) as server:
        leased = LeasedServer(asked.address, to, wanted, str(SPEC["token"]), lambda: None, hosts)
        leased.start()
        assert leased.entry is not None
        server_directory.write(server.data, [leased.entry])
        data = folder / "service" / query
        with Conduit(server, epoch=5).welcome() as here:
            over: Any = SimpleNamespace(socket_path=until(lambda: running.read(data)).socket)
            primary = Conduit(over, instance=1, epoch=5).welcome()
            standby = Conduit(over, epoch=5, standby=True).welcome()
            yield Remote(checkpoint, query, asked.address, leased, data, here, primary, standby, tls)
        leased.stop()
    asked.stop()
    service.close()


@pytest.fixture
def client(remote: Remote) -> Iterator[ReplicaClient]:
    asking = ReplicaClient(remote.address, TOKEN, remote.tls)
    yield asking
    asking.close()


def test_a_primary_and_a_standby_there_are_stopped_and_go_on(remote: Remote) -> None:
    for conduit, whom, name in (
        (remote.primary, ("--operator", "review", "--instance", "1"), "review/1"),
        (remote.standby, (*FIRST, "--standby"), "review/0 (standby)"),
    ):
        pid = conduit.ask("pid")
        with injecting(remote.checkpoint, "--stop", "0.5", *whom) as process:
            until(lambda pid=pid: look_at(pid).stopped)
            out, _ = process.communicate(timeout=PATIENCE)
        assert not look_at(pid).stopped and conduit.ask("pid") == pid
        place = f" (on {remote.address})"
        said = [f"{name}, process {pid}: stopped for 0.5 s{place}", f"{name}, process {pid}: goes on{place}"]
        assert re.findall(r"Z  (.*)", out) == said
    assert not look_at(remote.here.ask("pid")).stopped


def test_what_is_stopped_there_goes_on_when_the_command_is_ended(remote: Remote) -> None:
    pid = remote.primary.ask("pid")
    arguments = ("--stop", "600", "--operator", "review", "--instance", "1")
    with injecting(remote.checkpoint, *arguments) as process:
        until(lambda: look_at(pid).stopped)
        process.kill()
    until(lambda: not look_at(pid).stopped)
    assert remote.primary.ask("pid") == pid


def test_a_log_there_is_damaged_and_its_owner_killed(remote: Remote) -> None:
    over = remote.server()
    remote.primary = Conduit(over, instance=1, epoch=5).welcome()
    pid = remote.primary.ask("pid")
    folder = remote.data / "logs" / "1" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    store = LogStore(str(folder))
    store.append([], (0, b"x" * 1000))
    store.close()
    said = inject(remote.checkpoint, "--corrupt-log", "--operator", "review", "--instance", "1")
    assert re.search(
        rf"review/1, process {pid}: \d+ files? of its causal log damaged in {folder}, then killed", said
    )
    assert remote.primary.lost()
    remote.primary = Conduit(over, instance=1, epoch=5).welcome()


def test_whom_an_instance_has_left_behind_is_not_it(remote: Remote) -> None:
    """The instance has moved there, and its old process here has not been told anything."""
    over = remote.server()
    old = remote.here.ask("pid")
    moved = Conduit(over, node=2, instance=0, epoch=5).welcome()  # the sink, for what it is worth
    assert describe(find(str(remote.checkpoint)))["operators"][1]["instances"][0]["pid"] == moved.ask("pid")
    with Conduit(over, epoch=6).welcome() as moved_operator:
        pid = moved_operator.ask("pid")
        assert f"review/0, process {pid}: killed (on {remote.address})" in inject(
            remote.checkpoint, "--kill", *FIRST
        )
    assert remote.here.ask("pid") == old


def test_a_server_there_is_killed_and_started_again(remote: Remote) -> None:
    before = running.read(remote.data)
    assert before is not None
    old = Watched(before.pid)
    assert f"replica server on {remote.address}, process {before.pid}: killed" in inject(
        remote.checkpoint, "--server", remote.address
    )
    assert old.gone()
    until(lambda: (found := running.read(remote.data)) is not None and found.pid != before.pid)


@pytest.mark.soak
def test_a_service_that_is_cut_off_is_lost_to_its_driver_until_the_partition_is_over(
    remote: Remote,
) -> None:
    until(lambda: remote.leased.status() is not None)
    with injecting(remote.checkpoint, "--partition", str(3 * LEASE), "--server", remote.address) as process:
        until(lambda: remote.leased.granted is None)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert f"cut off, with all that it runs, for {3 * LEASE:g} s (on {remote.address})" in out
    until(lambda: remote.leased.status() is not None)


# ------------------------------------------------------------------------- who may, and what


def command(**changes: Any) -> FaultCommand:
    return FaultCommand(**{"kind": Kind.STOP, "role": Role.SERVER, "seconds": 1.0, **changes})


UNKNOWN = SimpleNamespace(
    kind=SimpleNamespace(value="burn"), role=Role.SERVER, node=0, instance=0, seconds=1.0, factor=1.0
)


def test_without_the_token_no_process_is_struck(remote: Remote) -> None:
    stranger = ReplicaClient(remote.address, "another", remote.tls)
    with pytest.raises(Unauthenticated, match="token is missing or not the one of this service"):
        list(stranger.strike(remote.query, command(), "x"))
    stranger.close()


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        (command(kind=Kind.CORRUPT_LOG), ConfigurationError, "a server has none of its own"),
        (command(kind=Kind.PARTITION, role=Role.PRIMARY), ConfigurationError, "cannot be cut off"),
        (command(seconds=2e6), ConfigurationError, "not a time"),
        (command(seconds=-1.0), ConfigurationError, "not a time"),
        (command(kind=Kind.SLOW, factor=0.5), ConfigurationError, "not a factor"),
        (command(role=Role.PRIMARY, node=7), NoProcess, "x has no process now"),
        (UNKNOWN, ProtocolError, "'burn' is not a valid Kind"),
    ],
)
def test_what_makes_no_sense_is_refused_there_too(
    remote: Remote, client: ReplicaClient, asked: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        list(client.strike(remote.query, asked, "x"))


def test_a_strike_at_a_query_that_is_not_there_is_refused(client: ReplicaClient) -> None:
    with pytest.raises(NoProcess, match="query q9 has no server"):
        list(client.strike("q9", command(), "x"))


def test_so_many_strikes_at_once(remote: Remote, client: ReplicaClient) -> None:
    with Conduit(remote.server(), instance=1, epoch=5).welcome():
        under_way = [
            client.strike(remote.query, command(role=Role.PRIMARY, node=1, instance=1, seconds=600.0), "x")
            for _ in range(STRIKES)
        ]
        for one in under_way:
            assert "stopped for 600 s" in next(one)
        with pytest.raises(ConfigurationError, match="4 strikes are going on already"):
            list(client.strike(remote.query, command(), "x"))
        assert remote.leased.granted is not None, "its lease is prolonged beside them"
        for one in under_way:
            one.close()

        def another() -> list[str]:
            with contextlib.suppress(ConfigurationError):  # one of them may just be ending
                return list(client.strike(remote.query, command(seconds=0.1), "x"))
            return []

        until(another)

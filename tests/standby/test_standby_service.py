"""The replica service as drivers and strangers see it: real processes and sockets."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import grpc
import msgpack
import pytest
import standby_conduit as fake
from services import LEASE, TOKEN, Authority, Service, service
from standby_conduit import Watched, hello, until

from clonos.errors import (
    ClonosError,
    ConfigurationError,
    Fenced,
    ProtocolError,
    Unauthenticated,
)
from clonos.storage.log_directory import OWNER
from clonos.wire import messages
from clonos.wire._gen import replicas_pb2, replicas_pb2_grpc
from clonos.wire.admin_messages import GetStatus, Status
from clonos.wire.boundary import bearer
from clonos.wire.framing import FrameType, read_frame, send_frames, to_bytes
from clonos.wire.replica_client import ReplicaClient, Unreachable
from clonos.wire.replica_service import Granted, LeaseEnded, Wanted
from clonos.wire.tls import Tls
from clonos_standby.cluster.counted_hosts import CountedHosts
from clonos_standby.cluster.launcher import ReplicaServer
from clonos_standby.cluster.leased_server import LeasedServer, RemoteServers
from clonos_standby.cluster.spec import QuerySpec
from clonos_standby.cluster.spec_file import read_document
from clonos_standby.server import admin
from clonos_standby.service.environment import environment, modules_of

LOCAL = "127.0.0.1"


def wanted(folder: Path, query: str = "q1", instances: int = 2) -> Wanted:
    """A query with its checkpoint."""
    checkpoint = folder / f"checkpoint-{query}"
    (checkpoint / "clonos").mkdir(parents=True, exist_ok=True)
    (checkpoint / "clonos" / "query.json").write_text(json.dumps({"query": query}))
    spec = QuerySpec(
        query=query, token=fake.TOKEN, checkpoint=str(checkpoint), data="there", driver_pids=(1,)
    )
    return Wanted(query, 0, instances, msgpack.packb(spec.to_document()), environment(), {})


def hosts(folder: Path) -> CountedHosts:
    return CountedHosts(str(folder / "checkpoint-q1"), lambda: None)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """For tests that leave it as they found it."""
    with service(tmp_path_factory.mktemp("service"), slots=4) as running:
        yield running


@pytest.fixture
def client(shared: Service) -> Iterator[ReplicaClient]:
    asking = ReplicaClient(shared.address, TOKEN)
    yield asking
    for one in asking.describe()["queries"]:
        with pytest.raises(LeaseEnded):
            asking.release(one["query"], 1)
    asking.close()
    for mark in shared.data.glob(f"*/{OWNER}"):
        mark.unlink()  # tests have queries of the same names, each with its own checkpoint


def status(granted: Granted, tls: Tls | None = None) -> dict[str, Any]:
    answer = admin.ask(f"{LOCAL}:{granted.port}", fake.TOKEN, GetStatus(), Status, 10.0, tls)
    return dict(answer.said)


def test_a_query_is_hosted_renewed_taken_over_and_released(
    shared: Service, client: ReplicaClient, tmp_path: Path
) -> None:
    first = client.host(wanted(tmp_path))
    assert client.renew("q1", first.lease, 0) == replace(first, answer=1)
    old = Watched(status(first)["pid"])
    second = client.host(replace(wanted(tmp_path), port=first.port))
    assert old.gone(0) and second.port == first.port, "the next driver finds it where it was"
    with pytest.raises(LeaseEnded, match="not hosted here under this lease"):
        client.renew("q1", first.lease, 1)
    (file,) = (shared.data / "q1").glob("spec-*.msgpack")  # the first one's is gone
    spec = read_document(file)
    assert spec["driver_pids"] == [] and spec["data"] == str(shared.data / "q1")
    assert file.stat().st_mode & 0o077 == 0
    assert client.describe()["free"] == 2
    client.release("q1", second.lease)
    assert client.describe()["free"] == 4
    with pytest.raises(OSError):
        status(second)


def test_there_are_so_many_slots(client: ReplicaClient, tmp_path: Path) -> None:
    first = client.host(wanted(tmp_path, "q1", 3))
    with pytest.raises(ConfigurationError, match="query q2 wants 2 slots and 1 of 4 are free"):
        client.host(wanted(tmp_path, "q2", 2))
    client.release("q1", first.lease)


def changed(**other: str) -> Callable[[Wanted], Wanted]:
    return lambda said: replace(said, environment={**said.environment, **other})


def elsewhere(said: Wanted) -> Wanted:
    document = msgpack.unpackb(said.spec, strict_map_key=False)
    return replace(said, spec=msgpack.packb({**document, "checkpoint": "/nowhere/to/be/seen"}))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (changed(pyarrow="1.0"), "pyarrow is 1.0 at the driver and [0-9.]+ here"),
        (changed(python="2.7"), "python is 2.7 at the driver"),
        (changed(numpy="0.1", pandas="0.2"), "numpy .*; pandas "),
        (
            lambda said: replace(said, modules={"no_such_module": "0" * 64}),
            "module no_such_module, .* is not here",
        ),
        (
            lambda said: replace(said, modules={"ledger_job": "0" * 64}),
            "ledger_job has digest 000000000000 at",
        ),
        (elsewhere, "/nowhere/to/be/seen cannot be read here"),
        (lambda said: replace(said, spec=b"\x01"), "not a query spec"),
        (lambda said: replace(said, query="q2"), "not the spec of query q2"),
    ],
)
def test_a_query_that_would_run_otherwise_is_refused(
    shared: Service, client: ReplicaClient, tmp_path: Path, change: Callable[[Wanted], Wanted], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        client.host(change(wanted(tmp_path)))
    assert shared.address in str(refused.value)
    assert client.describe()["free"] == 4


def test_what_a_function_is_named_by_is_found() -> None:
    def by_value(row: Any) -> Any:
        return fake.PATIENCE, json.dumps(row)

    by_value.__module__ = "__main__"
    assert set(modules_of([cloudpickle.dumps(fake.until)])) == {"standby_conduit"}
    assert set(modules_of([cloudpickle.dumps((by_value, by_value))])) == {"standby_conduit"}
    assert modules_of([cloudpickle.dumps({"standby_conduit": "a text is no name"})]) == {}


# ------------------------------------------------------------------------- strangers


@pytest.mark.parametrize("token", ["", "another", TOKEN + "x"])
def test_without_the_token_nothing_is_answered(shared: Service, tmp_path: Path, token: str) -> None:
    stranger = ReplicaClient(shared.address, token)
    for what in (
        stranger.describe,
        lambda: stranger.host(wanted(tmp_path)),
        lambda: stranger.renew("q1", 1, 0),
        lambda: stranger.release("q1", 1),
    ):
        with pytest.raises(Unauthenticated, match="token is missing or not the one of this service"):
            what()
    stranger.close()


@pytest.mark.parametrize("query", ["", "../q1", "q/1", "q" * 65, "q\n"])
def test_a_name_that_is_no_query_id_is_refused(client: ReplicaClient, tmp_path: Path, query: str) -> None:
    with pytest.raises(ProtocolError, match="is not the id of a query"):
        client.host(replace(wanted(tmp_path), query=query))


def test_another_version_is_refused(shared: Service) -> None:
    with grpc.insecure_channel(shared.address) as channel:
        stub = replicas_pb2_grpc.ReplicasStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError) as refused:
            stub.Describe(replicas_pb2.DescribeRequest(version=2), metadata=bearer(TOKEN), timeout=120)
    assert "version 2 is not spoken here, 1 is" in refused.value.details()


def big(size: int) -> Iterator[bytes]:
    piece = bytes(1 << 20)
    for _ in range(size >> 20):
        yield piece


def flood(sock: socket.socket, head: bytes) -> bytes:
    """Sends what claims to be 1 GB until the peer has had enough; what it answered."""
    sock.settimeout(120)
    try:
        sock.sendall(head)
        for piece in big(1 << 30):
            sock.sendall(piece)
        raise AssertionError("all of it was taken")
    except OSError:
        pass
    answer = b""
    try:
        while data := sock.recv(65536):
            answer += data
    except OSError:
        pass
    return answer


def test_a_message_of_1_gb_is_refused_before_it_is_read(
    shared: Service, client: ReplicaClient, tmp_path: Path
) -> None:
    before = resident(shared)
    with pytest.raises(ConfigurationError, match="larger than max"):
        client.host(replace(wanted(tmp_path), spec=bytes(100 << 20)))
    granted = client.host(wanted(tmp_path))
    with socket.create_connection((LOCAL, granted.port)) as sock:
        flood(sock, struct.pack("<IB", 1 << 30, FrameType.HELLO.value))
    with socket.create_connection(shared.address.rsplit(":", 1)) as sock:
        flood(sock, b"POST / HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n")
    assert resident(shared) - before < 200 << 20
    assert status(granted)["pid"]
    client.release("q1", granted.lease)


def resident(running: Service) -> int:
    fields = Path(f"/proc/{running.process.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def test_conduits_without_the_token_or_sense_are_refused(
    shared: Service, client: ReplicaClient, tmp_path: Path
) -> None:
    granted = client.host(wanted(tmp_path))
    refusals = {
        "token": messages.pack_hello(replace(hello(), token="another")),
        "version": messages.pack_hello(replace(hello(), version=messages.VERSION + 1)),
    }
    for reason, frame in refusals.items():
        with socket.create_connection((LOCAL, granted.port), 10) as sock:
            send_frames(sock, [frame])
            answer = read_frame(sock)
            assert answer is not None and answer.type is FrameType.ERROR
            assert reason in json.loads(bytes(answer.payload))["message"]
    with socket.create_connection((LOCAL, granted.port), 10) as sock:
        sock.sendall(os.urandom(4096))
        assert gone(sock)
    for port in (granted.port, int(shared.address.rpartition(":")[2])):
        with socket.create_connection((LOCAL, port), 10) as sock:
            sock.sendall(b"\xff" * 4096)
            assert gone(sock)
    assert status(granted)["replicas"] == []
    client.release("q1", granted.lease)


def gone(sock: socket.socket) -> bool:
    try:
        while sock.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


# ------------------------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def test_with_tls_only_certificates_of_the_authority_count(authority: Authority, tmp_path: Path) -> None:
    own, other = authority.issue("own"), authority.issue("other", "DNS:elsewhere")
    stranger = Authority(tmp_path / "stranger").issue("stranger")
    with service(tmp_path / "service", tls=own) as running:
        client = ReplicaClient(running.address, TOKEN, other)
        granted = client.host(wanted(tmp_path))
        assert status(granted, other)["pid"], "a client need not be the host of its certificate"
        mixed = replace(stranger, ca=own.ca)
        for wrong in (None, stranger, mixed):
            refused = ReplicaClient(running.address, TOKEN, wrong)
            with pytest.raises(Unreachable):
                refused.describe()
            refused.close()
            with pytest.raises((OSError, ClonosError)):
                status(granted, wrong)
        with socket.create_connection((LOCAL, granted.port), 10) as sock:
            sock.sendall(b"no handshake at all, but long enough for a record of it")
            assert gone(sock)
        said = (running.data / "q1" / "server.err").read_text()
        assert f"a connection from {LOCAL} was refused" in said
        assert status(granted, other)["pid"]
        client.release("q1", granted.lease)
        client.close()
    with service(tmp_path / "service", tls=other) as running:
        deceived = ReplicaClient(running.address, TOKEN, own)
        with pytest.raises(Unreachable):
            deceived.describe()
        deceived.close()


def test_a_gate_passes_on_what_it_gets_and_who_goes(authority: Authority, tmp_path: Path) -> None:
    tls = authority.issue("gate")
    spec = {**fake.SPEC, "tls": tls.to_dict()}
    options: dict[str, Any] = {"entry": "standby_replica:main", "tcp": f"{LOCAL}:0", "determinants": False}
    with ReplicaServer(spec, tmp_path / "data", **options) as server:
        address = server.tcp_address
        assert address is not None
        with dialled(address, tls) as sock:
            sock.sendall(to_bytes(messages.pack_hello(hello())) + to_bytes(messages.pack_resume(0, 0)))
            assert received(sock) is FrameType.WELCOME
            bundle = messages.pack_bundle(1, 1, [b"facts".ljust(8 << 20)])
            sock.sendall(to_bytes(bundle))
            assert received(sock) is FrameType.OUTPUT
            os.kill(server.status()["pid"], signal.SIGKILL)
            assert gone(sock), "the end of the server is the end of the connection"
        until(lambda: server.restarts)
        assert server.tcp_address == address
        assert admin.ask(address, fake.TOKEN, GetStatus(), Status, 10.0, tls).said["pid"] == server.pid


def dialled(address: str, tls: Tls) -> ssl.SSLSocket:
    host, _, port = address.rpartition(":")
    raw = socket.create_connection((host, int(port)), 30)
    return tls.client_context().wrap_socket(raw, server_hostname=host)


def received(sock: socket.socket) -> FrameType | None:
    frame = read_frame(sock)
    return None if frame is None else frame.type


# -------------------------------------------------------------------- life and death


def test_a_lease_that_is_not_prolonged_ends(tmp_path: Path) -> None:
    with service(tmp_path / "service", lease=LEASE) as running:
        client = ReplicaClient(running.address, TOKEN)
        granted = client.host(wanted(tmp_path))
        assert granted.seconds == LEASE
        assert Watched(status(granted)["pid"]).gone()
        until(lambda: client.describe()["free"] == 16)
        with pytest.raises(LeaseEnded):
            client.renew("q1", granted.lease, 0)
        # The server sees to it itself where the service cannot.
        granted = client.host(wanted(tmp_path))
        server = Watched(status(granted)["pid"])
        running.process.send_signal(signal.SIGSTOP)
        assert server.gone()
        running.process.send_signal(signal.SIGCONT)
        until(lambda: client.describe()["free"] == 16)
        assert (running.data / "q1" / "server.err").read_text().count("has not been heard of") <= 2
        client.close()


def test_a_lease_that_its_driver_hears_nothing_of_is_not_prolonged(tmp_path: Path) -> None:
    """Its renewals come, and the answers are lost: it goes on without the server, which must not go on by itself."""
    with service(tmp_path / "service", lease=LEASE) as running:
        client = ReplicaClient(running.address, TOKEN)
        granted = client.host(wanted(tmp_path))
        server, renewals = Watched(status(granted)["pid"]), 0

        def renewed() -> bool:
            nonlocal renewals
            try:
                client.renew("q1", granted.lease, 0)
            except (LeaseEnded, Unreachable):
                return False
            renewals += 1
            return True

        until(lambda: not renewed())
        assert renewals > 2 and server.gone()
        client.close()


def started_driver(running: Service, folder: Path) -> tuple[LeasedServer, Watched]:
    """The driver's end of a server at the service, and that server's process."""
    remote = RemoteServers(services=(running.address,), service_token=TOKEN)
    driver = LeasedServer(running.address, remote, wanted(folder), fake.TOKEN, lambda: None, hosts(folder))
    driver.start()
    first = driver.status()
    assert first is not None
    return driver, Watched(first["pid"])


def test_a_server_that_has_ended_by_itself_is_not_taken_for_one_that_runs(tmp_path: Path) -> None:
    """It stood still for longer than its lease, and so did the service, or it would have replaced the server."""
    with service(tmp_path / "service", lease=LEASE) as running:
        driver, server = started_driver(running, tmp_path)
        running.process.send_signal(signal.SIGSTOP)
        os.kill(server.pid, signal.SIGSTOP)
        over = time.monotonic() + 2 * LEASE
        until(lambda: time.monotonic() > over)
        os.kill(server.pid, signal.SIGCONT)
        running.process.send_signal(signal.SIGCONT)
        assert server.gone()
        until(lambda: driver.status())
        driver.stop()


def test_a_stopped_host_is_gone_on_without_although_its_processes_are_there(tmp_path: Path) -> None:
    """Their lease is over, and they cannot notice it. What they do does not count; the fences see to that."""
    with service(tmp_path / "service", lease=LEASE) as running:
        driver, server = started_driver(running, tmp_path)
        running.process.send_signal(signal.SIGSTOP)
        os.kill(server.pid, signal.SIGSTOP)
        driver.set_generation(4)  # returns without an answer
        assert driver.granted is None and driver.determinants is None
        os.kill(server.pid, 0)  # it is there
        os.kill(server.pid, signal.SIGCONT)
        running.process.send_signal(signal.SIGCONT)
        assert server.gone()
        until(lambda: (driver.status() or {}).get("generation") == 4)
        driver.stop()


def test_a_server_that_stands_still_is_replaced(tmp_path: Path) -> None:
    with service(tmp_path / "service", lease=LEASE) as running:
        driver, server = started_driver(running, tmp_path)
        os.kill(server.pid, signal.SIGSTOP)
        assert server.gone()
        until(lambda: driver.status())
        driver.stop()


def test_an_overtaken_driver_does_not_take_its_successor_s_server_back(tmp_path: Path) -> None:
    """Its lease has ended because another driver of the query has come; only who leads asks again."""
    with service(tmp_path / "service", lease=LEASE) as running:
        remote = RemoteServers(services=(running.address,), service_token=TOKEN)
        overtaken, asked = threading.Event(), threading.Event()

        def may_ask() -> None:
            if overtaken.is_set():
                asked.set()
                raise Fenced("another driver leads")

        old = LeasedServer(
            running.address,
            remote,
            wanted(tmp_path),
            fake.TOKEN,
            lambda: None,
            hosts(tmp_path),
            may_ask=may_ask,
        )
        old.start()
        overtaken.set()
        client = ReplicaClient(running.address, TOKEN)
        new = client.host(wanted(tmp_path))
        heard = [new.answer]

        def kept_and_asked() -> bool:
            heard[0] = client.renew("q1", new.lease, heard[0]).answer
            return asked.is_set()

        until(kept_and_asked)
        assert old.granted is None
        old.stop()
        client.close()


@pytest.mark.parametrize("how", ["end", "kill"])
def test_the_end_of_the_service_is_the_end_of_its_servers(tmp_path: Path, how: str) -> None:
    running = Service(tmp_path / "service")
    client = ReplicaClient(running.address, TOKEN)
    servers = [Watched(status(client.host(wanted(tmp_path, name)))["pid"]) for name in ("q1", "q2")]
    if how == "end":
        assert running.end() == 0
        assert all(server.gone(0) for server in servers)
    else:
        running.kill()
        assert all(server.gone() for server in servers)
    with pytest.raises(Unreachable):
        client.describe()
    client.close()
    running.close()


def test_a_signal_ends_the_service_whichever_of_its_threads_takes_it(tmp_path: Path) -> None:
    """The kernel may give it to any."""
    tgkill = getattr(ctypes.CDLL(None), "tgkill", None)
    if tgkill is None:
        pytest.skip("this system sends no signals to threads")
    running = Service(tmp_path / "service")
    pid = running.process.pid
    others = [int(thread) for thread in os.listdir(f"/proc/{pid}/task") if int(thread) != pid]
    assert others and tgkill(pid, others[-1], signal.SIGTERM) == 0
    assert running.process.wait(120) == 0
    running.close()


def test_the_driver_s_side_goes_on_without_a_server_and_finds_it_again(tmp_path: Path) -> None:
    running = Service(tmp_path / "service", lease=LEASE)
    port = int(running.address.rpartition(":")[2])
    looks: list[str | None] = []
    remote = RemoteServers(services=(running.address,), service_token=TOKEN)
    server = LeasedServer(
        running.address,
        remote,
        wanted(tmp_path),
        fake.TOKEN,
        lambda: looks.append(server.determinants),
        hosts(tmp_path),
    )
    server.start()
    first = server.socket
    server.set_generation(3)
    running.kill()
    server.set_generation(4)  # returns when the lease has ended
    assert server.granted is None and server.socket == first and server.status() is None
    until(lambda: looks and looks[-1] is None)
    running.close()
    running = Service(tmp_path / "service", lease=LEASE, port=port)
    until(lambda: looks[-1] is not None)
    assert server.socket == first
    until(lambda: (server.status() or {}).get("generation") == 4)
    server.tell_holders(["somewhere:1"])
    assert json.loads((running.data / "q1" / "holders.json").read_text())["addresses"] == ["somewhere:1"]
    server.stop()
    assert ReplicaClient(running.address, TOKEN).describe()["queries"] == []
    running.close()


def test_logs_of_a_host_that_the_query_went_on_without_are_set_aside(tmp_path: Path) -> None:
    """And those of one that it did not go on without are not, whichever driver asks."""
    remote, logs, aside = (
        RemoteServers(service_token=TOKEN),
        "q1/logs/2/0/CURRENT",
        "q1/set-aside/2/0/CURRENT",
    )

    def driver(running: Service, counted: CountedHosts) -> LeasedServer:
        to = replace(remote, services=(running.address,))
        return LeasedServer(running.address, to, wanted(tmp_path), fake.TOKEN, lambda: None, counted)

    running = Service(tmp_path / "service", lease=LEASE)
    port = int(running.address.rpartition(":")[2])
    first = driver(running, counted := hosts(tmp_path))
    first.start()
    counted.begins(1)
    first.set_generation(1)
    kept = running.data / logs
    kept.parent.mkdir(parents=True)
    kept.write_text("what an instance recorded")
    first.stop()

    second = driver(running, counted := hosts(tmp_path))  # another driver, over the same checkpoint
    second.start()
    counted.begins(2)
    second.set_generation(2)
    assert kept.exists() and second.determinants is not None

    running.kill()
    until(lambda: second.determinants is None)  # the lease is over, and the query goes on
    assert hosts(tmp_path).token(running.address) != counted.token("another")
    running.close()
    running = Service(tmp_path / "service", lease=LEASE, port=port)
    until(lambda: second.determinants is not None)
    assert not kept.exists() and (running.data / aside).read_text() == "what an instance recorded"
    second.stop()

    third = driver(running, counted := hosts(tmp_path))
    counted.begins(3)  # it has not been asked: the query begins without it
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("what was recorded later")
    third.start()
    assert not kept.exists() and (running.data / aside).read_text() == "what was recorded later"
    third.stop()
    running.close()


def test_a_copy_of_a_checkpoint_does_not_use_the_logs_of_the_original(
    client: ReplicaClient, tmp_path: Path
) -> None:
    first = client.host(wanted(tmp_path))
    client.release("q1", first.lease)
    (tmp_path / "copy").mkdir()
    with pytest.raises(ConfigurationError, match="is a copy of it"):
        client.host(wanted(tmp_path / "copy"))
    shutil.rmtree(tmp_path / "checkpoint-q1")  # it was moved
    moved = client.host(wanted(tmp_path / "copy"))
    client.release("q1", moved.lease)


def test_hosts_that_a_start_begins_without_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = hosts(tmp_path)
    for host in ("one:1", "two:2"):
        assert first.joins(host, first.token(host))
    first.begins(1)
    assert not caplog.records
    second = hosts(tmp_path)
    assert second.joins("one:1", second.token("one:1"))
    second.begins(2)
    (said,) = caplog.records
    assert said.getMessage().startswith("logs on two:2 are not asked for any more")
    second.begins(3)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--listen", "nowhere"], "Say HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--slots", "0"], "must be above 0"),
        (
            ["--listen", "127.0.0.1:0", "--tls-ca", "x"],
            "of --tls-ca, --tls-cert and --tls-key some are given",
        ),
        (
            ["--listen", "127.0.0.1:0", "--tls-ca", "x", "--tls-cert", "y", "--tls-key", "z"],
            "TLS file cannot be read",
        ),
        (["--listen", "192.0.2.1:0"], "cannot listen at 192.0.2.1"),
    ],
)
def test_options_that_cannot_be(
    tmp_path: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from clonos.cli import main

    token = tmp_path / "token"
    token.write_text("t")
    assert main(["standby", "--data", str(tmp_path / "data"), "--token-file", str(token), *arguments]) == 1
    assert says in capsys.readouterr().err


def test_one_service_per_directory_and_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from clonos.cli import main

    with service(tmp_path / "service") as running:
        common = ["standby", "--token-file", str(running.token_file)]
        assert main([*common, "--listen", running.address, "--show"]) == 0
        assert json.loads(capsys.readouterr().out)["free"] == 16
        assert main([*common, "--listen", "127.0.0.1:0", "--data", str(running.data)]) == 1
        assert "another replica service uses" in capsys.readouterr().err
        assert main([*common, "--listen", running.address, "--data", str(tmp_path / "other")]) == 1
        assert "the port is taken" in capsys.readouterr().err
        (tmp_path / "empty").write_text("\n")
        empty = ["standby", "--token-file", str(tmp_path / "empty"), "--listen", "127.0.0.1:0"]
        assert main([*empty, "--data", str(tmp_path / "third")]) == 1
        assert "is empty" in capsys.readouterr().err

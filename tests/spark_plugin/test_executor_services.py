"""What the driver takes the executors' services for: the settings, who is asked, and who is left out or comes later."""

from __future__ import annotations

import logging
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import standby_conduit as fake
from operated import make_checkpoint
from services import LEASE, TOKEN, Service, service
from standby_conduit import Watched

from clonos.errors import ConfigurationError
from clonos.protocol.ids import Origin
from clonos.spark.executors import ExecutorServices, executor_services
from clonos.spark.remote_servers import TOKEN_FILE, executors_servers, reached_at, remote_servers
from clonos.spark.settings import read_settings
from clonos.wire.replica_client import ReplicaClient
from clonos_standby.cluster.leased_server import LeasedServer, RemoteServers
from clonos_standby.cluster.servers import Placement, ReplicaServers
from clonos_standby.cluster.spec import QuerySpec

ON_EXECUTORS = {"spark.clonos.replica.servers": " Executors"}


class List:
    """The plugin's list, as it is seen from Python."""

    def __init__(
        self, *places: str, refusals: tuple[str, ...] = (), unanswered: tuple[str, ...] = ()
    ) -> None:
        self._places, self._refusals, self._unanswered = places, refusals, unanswered
        self.asked: list[tuple[int, int]] = []

    def token(self) -> str:
        return TOKEN

    def awaitAnswers(self, least: int, millis: int) -> bool:
        self.asked.append((least, millis))
        return not self._unanswered

    def places(self) -> tuple[str, ...]:
        return self._places

    def refusals(self) -> tuple[str, ...]:
        return self._refusals

    def unanswered(self) -> tuple[str, ...]:
        return self._unanswered


def session(*, local: bool, services: List | None, **conf: str) -> tuple[Any, Any]:
    """A Spark session and its JVM, as far as they are asked."""
    context = SimpleNamespace(
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isLocal=lambda: local)),
        master="local[4]" if local else "spark://host-a:7077",
        getConf=lambda: conf,
    )
    plugin = SimpleNamespace(Services=SimpleNamespace(current=lambda: services))
    spark = SimpleNamespace(executor=plugin)
    jvm = SimpleNamespace(org=SimpleNamespace(clonos=SimpleNamespace(spark=spark)))
    return SimpleNamespace(sparkContext=context), jvm


def test_the_setting_takes_executors_or_names() -> None:
    assert read_settings(ON_EXECUTORS).on_executors
    named = read_settings({"spark.clonos.replica.servers": "executors:7077"})
    assert named.replica_servers == ("executors:7077",) and not named.on_executors
    assert not read_settings({}).on_executors
    with pytest.raises(ConfigurationError, match="must be executors, or HOST:PORT"):
        read_settings({"spark.clonos.replica.servers": "executors,host:1"})


def test_no_token_file_and_no_way_are_looked_for() -> None:
    settings = read_settings(ON_EXECUTORS)
    assert remote_servers(settings, spread=True) == RemoteServers()
    assert reached_at(settings, "") == "127.0.0.1" and reached_at(settings, "host-a") == "host-a"


def test_where_there_are_no_executors_the_setting_is_refused() -> None:
    settings = read_settings(ON_EXECUTORS)
    with pytest.raises(ConfigurationError, match=r"in local\[4\] there are none .*Leave the setting out"):
        executor_services(*session(local=True, services=None), settings)
    with pytest.raises(ConfigurationError, match=r"Say it before the session is there"):
        executor_services(*session(local=False, services=None), settings)
    assert executor_services(*session(local=True, services=None), read_settings({})) is None


def test_executors_are_waited_for_and_who_has_no_service_is_named(caplog: pytest.LogCaptureFixture) -> None:
    said = List("h:1", refusals=("executor 2 on b: no Python",), unanswered=("executor 3 on c",))
    spark, jvm = session(local=False, services=said, **{"spark.executor.instances": "3"})
    services = executor_services(spark, jvm, read_settings(ON_EXECUTORS))
    assert services is not None
    with caplog.at_level(logging.WARNING):
        services.await_answers(2.0)
    assert said.asked == [(3, 2000)]
    assert caplog.messages == [
        "no replica service at executor 2 on b: no Python",
        "no replica service at executor 3 on c: it has not answered within 2 s",
    ]
    caplog.clear()
    ExecutorServices(List(), 1).await_answers(2.0)
    assert "goes on without standbys" in caplog.text


def test_the_token_is_left_for_operators(tmp_path: Path) -> None:
    remote = executors_servers(RemoteServers(), ExecutorServices(List("h:1"), 1), str(tmp_path))
    path = tmp_path / TOKEN_FILE
    assert remote == RemoteServers(services=("h:1",), service_token=TOKEN, token_file=str(path))
    assert path.read_text() == TOKEN and path.stat().st_mode & 0o777 == 0o600


# ------------------------------------------------------------- between two starts of the query


def placement(*places: str, token: str = TOKEN) -> Placement:
    remote = RemoteServers(services=places, service_token=token)
    return Placement(remote, (2,) * len(places), standbys=True, host="127.0.0.1", spread=True, executors=True)


@pytest.fixture
def spec(tmp_path: Path) -> QuerySpec:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    query, _ = make_checkpoint(checkpoint).shape()
    return QuerySpec(
        query=query,
        token=fake.TOKEN,
        checkpoint=str(checkpoint),
        data=str(tmp_path / "data"),
        driver_pids=(1,),
    )


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path / "first", lease=LEASE) as running:
        yield running


def hosted(running: Service) -> list[dict[str, Any]]:
    client = ReplicaClient(running.address, TOKEN)
    try:
        return list(client.describe()["queries"])
    finally:
        client.close()


def test_servers_come_and_go_between_two_starts(
    tmp_path: Path, spec: QuerySpec, first: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is gone, one that is new, one that stays, and one that refuses."""
    with (
        service(tmp_path / "second", lease=LEASE) as second,
        service(tmp_path / "third", lease=LEASE, slots=1) as full,
    ):
        servers = ReplicaServers(spec, placement(first.address))
        try:
            servers.set_generation(1)
            assert len(servers.addresses) == 2  # none but the driver's and the executor's
            servers.set_generation(2)
            servers.settle(placement(first.address, second.address, full.address))
            assert [one["query"] for one in hosted(first) + hosted(second)] == [spec.query] * 2
            assert "the query goes on without a standby there" in caplog.text
            caplog.clear()
            gone = Watched(hosted(first)[0]["pid"])
            servers.set_generation(3)
            servers.settle(placement(second.address, full.address))
            assert gone.gone(0) and not hosted(first)
            assert [address.host for address in servers.addresses if address is not None] == ["127.0.0.1"] * 2
            assert servers.status()["others"][0]["place"] == second.address
            assert not caplog.records  # who has refused is not asked again
            first.kill()
            second.kill()
            servers.set_generation(4)
            servers.settle(placement())
            assert len(servers.addresses) == 1
        finally:
            servers.stop()


def test_a_server_that_stands_still_does_not_hold_up_commits(
    spec: QuerySpec, first: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: queue.Queue[int] = queue.Queue()
    goes_on = threading.Event()

    def commit(self: LeasedServer, epoch: int, truncation_points: Mapping[Origin, int]) -> None:
        goes_on.wait(120)
        heard.put(epoch)

    monkeypatch.setattr(LeasedServer, "commit", commit)
    servers = ReplicaServers(spec, placement(first.address))
    try:
        servers.commit(0, {})
        servers.commit(1, {})
        assert heard.empty()
        goes_on.set()
        while heard.get(timeout=120) < 1:
            pass
    finally:
        goes_on.set()
        servers.stop()


def test_a_query_without_standbys_has_none_on_executors(spec: QuerySpec, first: Service) -> None:
    wanted = placement(first.address)
    alone = Placement(wanted.remote, (), spread=True, executors=True)
    servers = ReplicaServers(spec, alone)
    try:
        servers.settle(alone)
        assert len(servers.addresses) == 1 and not hosted(first)
    finally:
        servers.stop()


def test_a_service_ends_with_the_process_that_holds_its_input(tmp_path: Path) -> None:
    running = Service(tmp_path / "service", until_eof=True)
    assert running.process.stdin is not None
    running.process.stdin.write(b"a word does not end it\n")
    running.process.stdin.close()
    assert running.process.wait(120) == 0
    running.close()
    unheld = Service(tmp_path / "service", until_eof=True, stdin=subprocess.DEVNULL)
    assert unheld.process.wait(120) == 0
    unheld.close()

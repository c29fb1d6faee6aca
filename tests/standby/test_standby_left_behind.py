"""Logs in the data directory of a server that is not started any more, since standbys were switched off."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from standby_conduit import SPEC

from clonos.errors import ConfigurationError
from clonos.protocol.ids import LOG_BEGIN, InstanceId, NodeId, Origin
from clonos.protocol.recovery.causal.own_log import Writer
from clonos.storage.log_store import LogStore
from clonos.wire.determinant_client import fetch
from clonos_standby.cluster.leased_server import RemoteServers
from clonos_standby.cluster.left_behind import forget, left_behind
from clonos_standby.cluster.servers import Placement, ReplicaServers
from clonos_standby.cluster.spec import QuerySpec, load
from clonos_standby.server import running
from clonos_standby.server.holdings import Holdings

ORIGIN = Origin.of(2, 5)
SECOND = Writer(9, LOG_BEGIN)


def write(data: Path, log: bytes) -> None:
    """What an instance has written to the server with this data directory."""
    store = LogStore(str(data / "logs" / "2" / "5"))
    store.begin(SECOND)
    store.append([], (LOG_BEGIN, log))
    store.close()


def test_only_servers_that_are_not_started_leave_logs_behind(tmp_path: Path) -> None:
    assert left_behind(tmp_path / "nowhere", 1) == ()
    write(tmp_path, b"here")
    write(tmp_path / "server-1", b"there")
    (tmp_path / "server-2" / "logs").mkdir(parents=True)
    (tmp_path / "server-x" / "logs" / "2" / "5").mkdir(parents=True)
    assert left_behind(tmp_path, 1) == (str(tmp_path / "server-1" / "logs"),)
    assert left_behind(tmp_path, 2) == ()


def test_a_store_that_was_just_being_replaced_is_finished(tmp_path: Path) -> None:
    write(tmp_path / "server-1", b"what can be read")
    store = tmp_path / "server-1" / "logs" / "2" / "5"
    store.rename(f"{store}.new")
    assert left_behind(tmp_path, 1) == (str(tmp_path / "server-1" / "logs"),)
    assert store.is_dir() and not Path(f"{store}.new").exists()


def test_a_server_that_is_dying_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "server-1", b"there")
    lock = running.lock_data(tmp_path / "server-1")
    monkeypatch.setattr(running, "_LOCK_SECONDS", 0.1)
    with pytest.raises(ConfigurationError, match=r"another replica server uses .*server-1"):
        left_behind(tmp_path, 1)
    monkeypatch.setattr(running, "_LOCK_SECONDS", 120.0)
    found: list[tuple[str, ...]] = []
    looking = threading.Thread(target=lambda: found.append(left_behind(tmp_path, 1)))
    looking.start()
    os.close(lock)
    looking.join()
    assert found == [(str(tmp_path / "server-1" / "logs"),)]
    os.close(running.lock_data(tmp_path / "server-1"))  # and no process holds it now


def test_both_of_an_instance_s_stores_are_told(tmp_path: Path) -> None:
    write(tmp_path, b"older")
    write(tmp_path / "server-1", b"older and newer")
    held = Holdings(
        tmp_path / "logs", "here", LogStore.read_only, left_behind=[tmp_path / "server-1" / "logs"]
    )
    own = held.lookup(ORIGIN, LOG_BEGIN).own
    assert sorted(log for store in own for _, log in store.segments) == [b"older", b"older and newer"]


@contextlib.contextmanager
def started(data: Path, *, standbys: bool = False) -> Iterator[QuerySpec]:
    """The servers that a driver starts, and what replicas are told."""
    spec = QuerySpec(query="tests", token=SPEC["token"], checkpoint=str(data), data=str(data))
    servers = ReplicaServers(spec, Placement(RemoteServers(), standbys=standbys))
    try:
        (told,) = data.glob("spec-*.msgpack")
        yield load(str(told))
    finally:
        servers.stop()


def test_logs_left_behind_are_removed_when_no_instance_asks_for_them_any_more(tmp_path: Path) -> None:
    logs = tmp_path / "server-1" / "logs"
    forget(logs)  # nothing is there
    write(tmp_path / "server-1", b"there")
    (logs.parent / "logs-to-remove" / "2").mkdir(parents=True)  # by a driver that died over it
    forget(logs)
    assert not logs.exists() and not (logs.parent / "logs-to-remove").exists()
    assert left_behind(tmp_path, 1) == ()
    write(tmp_path / "server-1", b"of a server that was started again")
    held = Holdings(tmp_path / "logs", "here", LogStore.read_only, left_behind=[logs])
    assert len(held.lookup(ORIGIN, LOG_BEGIN).own) == 1
    forget(logs)
    assert held.lookup(ORIGIN, LOG_BEGIN).own == ()


def test_an_instance_may_have_moved_wherever_there_is_or_was_another_server(tmp_path: Path) -> None:
    """Also where its own operator has no standby, or has none any more: another one of the query has."""
    with started(tmp_path) as alone:
        assert not alone.may_have_moved
    with started(tmp_path, standbys=True) as with_standbys:
        assert with_standbys.may_have_moved and with_standbys.left_behind == ()
    with started(tmp_path) as without_standbys:
        assert not without_standbys.may_have_moved
    write(tmp_path / "server-1", b"gone on there")
    with started(tmp_path) as switched_off:
        assert switched_off.may_have_moved


def test_the_first_server_answers_for_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data / "server-1", b"gone on there")
    with started(data) as spec:
        port = int((data / "determinants.port").read_text())
        found = fetch([f"127.0.0.1:{port}"], spec.token, NodeId(2), InstanceId(5), LOG_BEGIN, query="tests")
        (reply,) = found.replies.values()
        assert [store.segments for store in reply.own] == [[(LOG_BEGIN, b"gone on there")]]

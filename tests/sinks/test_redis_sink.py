"""The Redis sink over a real server: writers that die, stop or race, answers that are lost, servers that die, and what
is refused."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from lossy_proxy import LossyProxy
from redis_server import RedisServer, redis_server, until
from sink_child import NODE, bundle, make_sink
from sink_support import (
    QUERY,
    assert_covered,
    child,
    events,
    expected,
    kill_at_any_moment,
    opened,
    race,
    run_child,
    stopped_writer,
)

from clonos.errors import Fenced, SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch
from clonos.sinks import redis_store

pytestmark = pytest.mark.redis

UPTO = 60
KILLED = -signal.SIGKILL


class Place:
    """A stream of its own."""

    def __init__(self, server: RedisServer, **arguments: Any) -> None:
        self.server, self.name = server, server.fresh_name()
        self.arguments = {"url": server.url, "name": self.name, "patience": 60, **arguments}
        self.spec: dict[str, Any] = {"sink": "redis", "arguments": self.arguments, "upto": UPTO}

    def sink(self, **arguments: Any) -> Any:
        return make_sink({"sink": "redis", "arguments": {**self.arguments, **arguments}})

    def rows(self) -> list[tuple[Any, ...]]:
        with closing(self.server.client(decode_responses=True)) as client:
            found = [fields for _, fields in client.xrange(self.name)]
        assert all(row["clonos_id"].startswith(f"{QUERY}/") for row in found)
        return [(row["clonos_id"].removeprefix(f"{QUERY}/"), row["card"], int(row["n"])) for row in found]


@pytest.fixture(autouse=True)
def nothing_said_before() -> None:
    """A process warns once of a server at an address, which the server of an earlier test may have had."""
    redis_store._warn.cache_clear()


@pytest.fixture
def server(redis_of: Callable[..., RedisServer]) -> RedisServer:
    return redis_of()


@pytest.fixture
def mortal() -> Iterator[RedisServer]:
    """A server for one test, which kills it or sets it up in another way."""
    with redis_server() as running:
        yield running


@pytest.fixture
def place(server: RedisServer) -> Place:
    return Place(server)


def told(server: RedisServer, *command: str) -> Any:
    with closing(server.client()) as client:
        return client.execute_command(*command)


# ------------------------------------------------------------------ deaths


@pytest.mark.parametrize(
    ("moment", "at"),
    [("before", 1), ("before", 3), ("within", 1), ("within", 3), ("after", 0), ("after", 3)],
)
def test_a_writer_dies(tmp_path: Path, place: Place, moment: str, at: int) -> None:
    crash = {"crash": {"point": f"redis.{moment}", "at": at}}
    assert run_child(tmp_path, {**place.spec, "fence": 1, **crash})[0] == KILLED
    visible = place.rows()
    assert visible == expected(10 * (at - 1 if moment == "before" else at))
    assert_covered(place.sink(), visible)
    status, said = run_child(tmp_path, {**place.spec, "fence": 2})
    assert (status, said[0]["at"], said[-1]["at"]) == (0, len(visible), UPTO)
    assert place.rows() == expected(UPTO)
    assert_covered(place.sink(), place.rows())


def test_writers_killed_at_any_moment(tmp_path: Path, place: Place) -> None:
    spec = {**place.spec, "upto": 10_000}
    least = kill_at_any_moment(tmp_path, spec)
    sink = place.sink()
    with closing(sink.writer()) as writer:
        at = writer.open(query=QUERY, node=NODE, instance=0, fence=Fence(99)).cursors[3]
    assert at >= least
    assert place.rows() == expected(at)
    assert_covered(sink, place.rows())


def test_two_processes_race(tmp_path: Path, place: Place) -> None:
    race(tmp_path, place.spec, 2000)
    assert place.rows() == expected(2000)


@pytest.mark.parametrize(("moment", "done"), [("before", 10), ("within", 20)])
def test_a_stopped_writer_cannot_keep_its_successor_out(
    tmp_path: Path, place: Place, moment: str, done: int
) -> None:
    hang = {"crash": {"point": f"redis.{moment}", "at": 2}}
    spec = {**place.spec, "upto": 40}
    with stopped_writer(tmp_path, {**spec, **hang}) as (zombie, said):
        status, after = run_child(tmp_path, {**spec, "fence": 2})
        assert (status, after[0]["at"], after[-1]["at"]) == (0, done, 40)
        os.kill(zombie.pid, signal.SIGCONT)
        assert list(said)[-1]["error"] == "Fenced"
    assert place.rows() == expected(40)


# --------------------------------------------------------- the way to the server


@pytest.mark.parametrize(
    "losses", [["request"], ["answer"], ["answer", "request", "answer"], ["nothing", "answer"]]
)
def test_what_is_lost_on_the_way_is_found_out(place: Place, losses: list[str]) -> None:
    with LossyProxy(place.server.port, of=b"EVALSHA") as proxy:
        sink = place.sink(url=f"redis://127.0.0.1:{proxy.port}/0")
        proxy.lose(*losses)
        with closing(opened(sink, 1)) as writer:
            for first in range(1, 50, 10):
                proxy.lose(*losses)
                writer.write(**bundle(first, first + 9))
        proxy.lose(*losses)
        sink.record_commit(QUERY, Fence(1), Epoch(1), b"one")
        proxy.lose(*losses)
        sink.raise_fence(QUERY, Fence(2))
        proxy.lose(*losses)
        assert sink.truncate(QUERY, Fence(2), lambda delta: delta == b"delta up to 50") == 4
        assert (sink.standing_fence(QUERY), sink.last_commit(QUERY)) == (2, (1, b"one"))
    assert place.rows() == expected(50)
    with closing(place.sink().log_reader(QUERY)) as reader:
        assert list(reader.deltas()) == [b"delta up to 50"]


def test_a_server_that_forgets_its_scripts_is_told_them_again(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        for first in (1, 11, 21):
            writer.write(**bundle(first, first + 9))
            told(place.server, "SCRIPT", "FLUSH")
    assert place.rows() == expected(30)


def test_a_server_is_killed_again_and_again(tmp_path: Path, mortal: RedisServer) -> None:
    place = Place(mortal, patience=240)
    spec = {**place.spec, "upto": 1500}
    with child(tmp_path, {**spec, "fence": 1}) as process:
        said = events(process)
        for _ in range(3):
            for event in said:
                assert event["event"] in ("open", "written"), event
                if event["at"] % 70 == 0:
                    break
            mortal.kill()
            mortal.start()
        assert list(said)[-1] == {"event": "written", "at": 1500}
    assert place.rows() == expected(1500)
    assert_covered(place.sink(), place.rows())


def test_a_server_that_stays_away_is_waited_for_as_long_as_was_said(mortal: RedisServer) -> None:
    place = Place(mortal, patience=0.5)
    writer = opened(place.sink(), 1)
    writer.write(**bundle(1, 10))
    mortal.kill()
    for act in (lambda: writer.write(**bundle(11, 20)), lambda: place.sink().standing_fence(QUERY)):
        with pytest.raises(
            SinkUnavailable, match=rf"127\.0\.0\.1:{mortal.port}/0 cannot be reached now.*tried"
        ):
            act()
    mortal.start()
    writer.write(**bundle(11, 20))  # the very same bundle, as the query does
    writer.close()
    assert place.rows() == expected(20)


def test_a_server_that_hangs_is_waited_for(mortal: RedisServer) -> None:
    """A bundle is under way when the server stops; it is answered once the server goes on."""
    place = Place(mortal, patience=240, options={"socket_timeout": 1})
    with closing(opened(place.sink(), 1)) as writer:
        mortal.pause()
        working = threading.Thread(target=lambda: writer.write(**bundle(1, 10)))
        working.start()
        impatient = place.sink(patience=0)
        with pytest.raises(SinkUnavailable, match="cannot be reached now"):
            impatient.standing_fence(QUERY)
        mortal.resume()
        working.join()
        writer.write(**bundle(11, 20))
    assert place.rows() == expected(20)


# ------------------------------------------------------- what the server promises


def test_a_server_without_append_only_file_is_refused(mortal: RedisServer) -> None:
    told(mortal, "CONFIG", "SET", "appendonly", "no")
    place = Place(mortal)
    for act in (lambda: opened(place.sink(), 1), lambda: place.sink().raise_fence(QUERY, Fence(1))):
        with pytest.raises(
            SinkError, match=r"has no append-only file.*CONFIG SET appendonly yes.*durable=False"
        ):
            act()
    opened(place.sink(durable=False), 1).close()
    told(mortal, "CONFIG", "SET", "appendonly", "yes")
    opened(place.sink(), 2).close()


def test_a_server_that_syncs_now_and_then_is_told_of(
    mortal: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(mortal)
    opened(place.sink(), 1).close()
    assert caplog.text == ""
    told(mortal, "CONFIG", "SET", "appendfsync", "everysec")
    for fence in (2, 3):
        opened(place.sink(), fence).close()
    assert caplog.text.count("appendfsync is everysec, not always") == 1


def test_a_server_that_removes_keys_is_refused(mortal: RedisServer) -> None:
    place = Place(mortal)
    told(mortal, "CONFIG", "SET", "maxmemory", "100mb")
    told(mortal, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(SinkError, match=r"maxmemory-policy is allkeys-lru.*noeviction"):
        opened(place.sink(), 1)
    for policy in ("noeviction", "volatile-lru"):
        told(mortal, "CONFIG", "SET", "maxmemory-policy", policy)
        opened(place.sink(), 2 + len(policy)).close()


def test_without_memory_nothing_is_written_and_it_goes_on_when_there_is_some(mortal: RedisServer) -> None:
    place = Place(mortal, patience=0.1)
    sink = place.sink()
    with closing(opened(sink, 1)) as writer:
        writer.write(**bundle(1, 10))
        writer.write(**bundle(11, 20))
        told(mortal, "CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(SinkUnavailable, match=r"takes no writes now: .*maxmemory.*raise maxmemory"):
            writer.write(**bundle(21, 30))
        assert place.rows() == expected(20)
        assert sink.truncate(QUERY, Fence(1), lambda delta: delta == b"delta up to 20") == 1
        told(mortal, "CONFIG", "SET", "maxmemory", "0")
        writer.write(**bundle(21, 30))
    assert place.rows() == expected(30)
    assert_covered(sink, place.rows())


def test_a_server_that_has_too_few_replicas_by_its_own_rule_is_waited_for(mortal: RedisServer) -> None:
    place = Place(mortal, patience=0)
    with closing(opened(place.sink(), 1)) as writer:
        told(mortal, "CONFIG", "SET", "min-replicas-to-write", "1")
        with pytest.raises(SinkUnavailable, match=r"takes no writes now: .*NOREPLICAS"):
            writer.write(**bundle(1, 10))
        assert place.rows() == []
        told(mortal, "CONFIG", "SET", "min-replicas-to-write", "0")
        writer.write(**bundle(1, 10))
    assert place.rows() == expected(10)


def test_a_server_is_reached_by_a_socket_of_this_host(tmp_path: Path) -> None:
    with redis_server(unixsocket=str(tmp_path / "redis")) as server:
        place = Place(server)
        sink = place.sink(url=f"unix://{tmp_path}/redis")
        with closing(opened(sink, 1)) as writer:
            writer.write(**bundle(1, 10))
        assert place.rows() == expected(10)
        assert repr(sink) == f"RedisSink('{tmp_path}/redis/0', '{place.name}')"


def test_a_server_that_ended_without_its_data_is_told(mortal: RedisServer) -> None:
    told(mortal, "CONFIG", "SET", "appendonly", "no")
    mortal.settings["appendonly"] = "no"
    place = Place(mortal, durable=False)
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
        mortal.kill()
        mortal.start()
        with pytest.raises(SinkError, match="the fence of sink node 5 is gone"):
            writer.write(**bundle(11, 20))


# ----------------------------------------------------------------- replicas


@pytest.fixture
def replica(mortal: RedisServer) -> Iterator[RedisServer]:
    """Of `mortal`, and up to date."""
    with redis_server(replicaof=f"127.0.0.1 {mortal.port}") as running:
        told(mortal, "SET", "probe", "1")
        with closing(running.client()) as client:
            until(lambda: client.get("probe") is not None)
        yield running


def test_a_replica_takes_no_writes_and_gives_no_old_answers(
    mortal: RedisServer, replica: RedisServer
) -> None:
    place = Place(replica, patience=0)
    for act in (lambda: opened(place.sink(), 1), lambda: place.sink().last_commit(QUERY)):
        with pytest.raises(SinkUnavailable, match=f"{replica.port}/0 is a replica, and takes no writes"):
            act()


def test_a_server_that_becomes_a_replica_is_waited_for(mortal: RedisServer) -> None:
    place = Place(mortal, patience=0)
    with closing(opened(place.sink(), 1)) as writer:
        writer.write(**bundle(1, 10))
        told(mortal, "REPLICAOF", "127.0.0.1", "1")
        for says in ("takes no writes now: .*read only replica", "is a replica"):
            with pytest.raises(SinkUnavailable, match=says):
                writer.write(**bundle(11, 20))
        told(mortal, "REPLICAOF", "NO", "ONE")
        writer.write(**bundle(11, 20))
    assert place.rows() == expected(20)


def test_replicas_are_waited_for(mortal: RedisServer) -> None:
    place = Place(mortal, patience=0, replicas=1)
    with pytest.raises(SinkUnavailable, match="0 of 1 replicas of Redis at"):
        opened(place.sink(), 1)
    with redis_server(replicaof=f"127.0.0.1 {mortal.port}") as replica:
        with closing(opened(place.sink(patience=240), 2)) as writer:
            writer.write(**bundle(1, 10))
        with closing(replica.client()) as client:
            assert client.xlen(place.name) == 10


def test_a_bundle_that_no_replica_had_is_shown_once_when_one_has_it(mortal: RedisServer) -> None:
    with redis_server(replicaof=f"127.0.0.1 {mortal.port}") as replica:
        place = Place(mortal, replicas=1)
        sink = place.sink(patience=240)
        with closing(opened(sink, 1)) as writer:
            told(replica, "REPLICAOF", "NO", "ONE")
            writer._patience.seconds = 0
            for _ in range(2):
                with pytest.raises(SinkUnavailable, match="0 of 1 replicas"):
                    writer.write(**bundle(1, 10))
            assert place.rows() == expected(10)
            told(replica, "REPLICAOF", "127.0.0.1", str(mortal.port))
            writer._patience.seconds = 240
            writer.write(**bundle(1, 10))
            with closing(replica.client()) as client:
                assert client.xlen(place.name) == 10
        assert place.rows() == expected(10)


def test_a_replica_that_lagged_and_took_over_is_told(mortal: RedisServer, replica: RedisServer) -> None:
    """Rows that were visible are gone with the old server: the query stops. The next start goes on from the new one."""
    place = Place(mortal)
    with LossyProxy(mortal.port, of=b"EVALSHA") as proxy:
        sink = place.sink(url=f"redis://127.0.0.1:{proxy.port}/0")
        with closing(opened(sink, 1)) as writer:
            writer.write(**bundle(1, 10))
            with closing(replica.client()) as client:
                until(lambda: client.xlen(place.name) == 10)
            told(replica, "REPLICAOF", "NO", "ONE")
            writer.write(**bundle(11, 20))
            proxy.target = replica.port
            proxy.cut()
            with pytest.raises(SinkError, match="gone back to an older copy of itself"):
                writer.write(**bundle(21, 30))
        with closing(sink.writer()) as writer:
            position = writer.open(query=QUERY, node=NODE, instance=0, fence=Fence(2))
            assert position.cursors == {3: 10}


# ------------------------------------------------------------- who may write


def test_a_password_that_is_missing_or_wrong_is_told_and_never_shown(mortal: RedisServer) -> None:
    told(mortal, "CONFIG", "SET", "requirepass", "right")
    place = Place(mortal)
    for user in ("", ":wrong@", "me:wrong@"):
        with pytest.raises(
            SinkError, match=r"refuses the user or the password.*redis://user:password@"
        ) as caught:
            opened(place.sink(url=f"redis://{user}127.0.0.1:{mortal.port}/0"), 1)
        assert "wrong@" not in str(caught.value)
    sink = place.sink(url=f"redis://default:right@127.0.0.1:{mortal.port}/0")
    opened(sink, 1).close()
    assert "right" not in repr(sink)
    assert "right" not in str(sink.target)


NEEDED = "+evalsha +eval +type +xadd +hset +hget +hdel +zadd +zrem +zrangebylex +set +info +wait +ping"


@pytest.mark.parametrize("lacks", ["xadd", "hset", "hdel", "zadd", "zrem", "set", "evalsha", "nothing"])
def test_a_user_who_may_not_write_everything_writes_nothing(mortal: RedisServer, lacks: str) -> None:
    place = Place(mortal)
    rights = [*NEEDED.split(), f"-{lacks}"][: None if lacks != "nothing" else -1]
    told(mortal, "ACL", "SETUSER", "me", "on", ">pw", f"~{place.name}*", "~clonos:*", *rights)
    sink = place.sink(url=f"redis://me:pw@127.0.0.1:{mortal.port}/0")
    if lacks == "nothing":  # as the hint says
        with closing(opened(sink, 1)) as writer:
            writer.write(**bundle(1, 10))
        assert sink.truncate(QUERY, Fence(1), lambda _: False) == 1
        assert place.rows() == expected(10)
        return
    with closing(opened(place.sink(), 1)) as rightful:
        writer = sink.writer()
        with (
            closing(writer),
            pytest.raises(SinkError, match=r"does not permit it.*It needs ~<stream or prefix>") as caught,
        ):
            writer.open(query=QUERY, node=NODE, instance=0, fence=Fence(2))
            writer.write(**bundle(1, 10))
        assert NEEDED in str(caught.value)
        assert place.rows() == []
        if lacks != "xadd":
            rightful.write(**bundle(1, 10))  # not even its fence was taken


def test_a_user_who_may_not_ask_how_the_server_is_set_up_is_told(
    mortal: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(mortal)
    rights = [right for right in NEEDED.split() if right != "+info"]
    told(mortal, "ACL", "SETUSER", "me", "on", ">pw", f"~{place.name}*", "~clonos:*", *rights)
    with closing(opened(place.sink(url=f"redis://me:pw@127.0.0.1:{mortal.port}/0"), 1)) as writer:
        writer.write(**bundle(1, 10))
    assert "does not permit INFO: whether it keeps what is written is not checked" in caplog.text
    told(mortal, "ACL", "SETUSER", "me", "+info")
    opened(place.sink(url=f"redis://me:pw@127.0.0.1:{mortal.port}/0"), 2).close()
    assert "appendfsync is not known, not always" in caplog.text


def test_a_key_that_holds_something_else_is_named_and_nothing_is_written(place: Place) -> None:
    with closing(opened(place.sink(), 1)) as writer:
        told(place.server, "SET", place.name, "something else")
        with pytest.raises(SinkError, match=f"{place.name} is a string and not a stream"):
            writer.write(**bundle(1, 10))
        told(place.server, "DEL", place.name)
        writer.write(**bundle(1, 10))
    assert place.rows() == expected(10)


def test_a_zombie_of_an_older_start_is_refused(place: Place) -> None:
    with closing(opened(place.sink(), Fence.of(1, 5))) as zombie:
        place.sink().raise_fence(QUERY, Fence.of(2))
        with pytest.raises(Fenced):
            zombie.write(**bundle(1, 10))
        with closing(opened(place.sink(), Fence.of(2, 1))) as writer:
            writer.write(**bundle(1, 10))
    assert place.rows() == expected(10)

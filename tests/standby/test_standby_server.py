"""The replica server as its conduits and its driver see it: real processes, sockets and signals."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import standby_conduit as fake
from standby_conduit import (
    PATIENCE,
    TOKEN,
    Conduit,
    Watched,
    children_states,
    connect,
    hello,
    until,
    watch_all,
)

from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.wire import messages
from clonos.wire.admin_messages import Done, ReportFailure, StopServer
from clonos.wire.framing import FrameType, pack, read_frame, send_frames, to_bytes
from clonos_standby.cluster.launcher import ReplicaServer
from clonos_standby.cluster.spec import QuerySpec


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaServer]:
    """One server for all tests that leave it as they found it."""
    data = tmp_path_factory.mktemp("data")
    with ReplicaServer(fake.SPEC, data, entry="standby_replica:main", determinants=False) as server:
        yield server


_instance = iter(range(1, 10_000))


@pytest.fixture
def instance() -> int:
    """An instance that no other test uses."""
    return next(_instance)


def test_a_replica_is_warm_alone_and_holds_nothing_of_its_server(
    shared: ReplicaServer, instance: int
) -> None:
    with Conduit(shared, instance=instance).welcome() as conduit:
        facts = conduit.ask("facts")
        said = conduit.ask("said")
    assert facts["modules"] == ["pyarrow", "rocksdict", "msgpack", "cloudpickle"]
    assert facts["threads"] == 1 and facts["group"] and facts["stdin"] == "/dev/null"
    assert [facts["spec"]] == [str(path) for path in shared.data.glob("spec-*.msgpack")]
    assert len([name for name in facts["fds"].values() if not name.startswith("/proc")]) == 2, facts["fds"]
    assert said[0] == {"kind": "Assign", "origin": [1, instance]}
    assert said[1]["hello"]["instance"] == instance and said[1]["previous"] is None


def test_replicas_do_not_share_a_random_state(shared: ReplicaServer) -> None:
    draws = set()
    for _ in range(3):
        with Conduit(shared, instance=next(_instance)).welcome() as conduit:
            draws.add(conduit.ask("facts")["draw"])
    assert len(draws) == 3


def test_a_killed_replica_is_replaced_and_its_death_told(shared: ReplicaServer, instance: int) -> None:
    with Conduit(shared, instance=instance).welcome() as conduit:
        pid = conduit.ask("pid")
        os.kill(pid, signal.SIGKILL)
        assert conduit.lost()
    with Conduit(shared, instance=instance, fresh=False).welcome() as conduit:
        assert conduit.ask("pid") != pid
        previous = conduit.ask("said")[-1]["previous"]
    assert previous["pid"] == pid and previous["signal"] == "SIGKILL"
    assert "not sent by its server" in previous["message"] or previous["kind"] == "oom"
    lines = (shared.data / "deaths.jsonl").read_text().splitlines()
    assert pid in [json.loads(line)["pid"] for line in lines]
    assert "Z" not in children_states(shared.pid or 0).values()


def test_without_the_watcher_a_death_shows_when_it_is_reaped(shared: ReplicaServer, instance: int) -> None:
    with Conduit(shared, instance=instance).welcome() as conduit:
        pid = conduit.ask("pid")
        status = shared.status()
        known = {*status["spares"], *(replica["pid"] for replica in status["replicas"])}
        for watcher in children_states(shared.pid or 0).keys() - known:
            os.kill(watcher, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        assert conduit.lost()


@pytest.mark.parametrize(
    ("command", "kind", "detail", "trace"),
    [
        ("exit 3", "exit", "exit code 3", "leaving on purpose"),
        ("segfault", "signal", "SIGSEGV", "Segmentation fault"),
        ("raise poison", "exit", "exit code 70", "ValueError: poison"),
    ],
)
def test_the_cause_of_a_death_is_named(
    shared: ReplicaServer, instance: int, command: str, kind: str, detail: str, trace: str
) -> None:
    with Conduit(shared, instance=instance).welcome() as conduit:
        conduit.say(command)
        assert conduit.lost()
    with Conduit(shared, instance=instance, fresh=False).welcome() as conduit:
        previous = conduit.ask("said")[-1]["previous"]
    assert previous["kind"] == kind and detail in previous["message"] and trace in previous["stderr"]
    assert trace in (shared.data / "replicas" / f"1-{instance}.err").read_text()


def hang(stuck: Conduit, mark: Path) -> None:
    stuck.say(f"hang {mark}")
    until(mark.exists)


def test_a_hanging_replica_is_dumped_killed_and_replaced(
    shared: ReplicaServer, instance: int, tmp_path: Path
) -> None:
    with Conduit(shared, instance=instance).welcome() as stuck:
        old = Watched(stuck.ask("pid"))
        hang(stuck, tmp_path / "hangs")
        with Conduit(shared, instance=instance, fresh=False).welcome() as conduit:
            assert old.gone(0), "the old one must be dead before the new one is served"
            previous = conduit.ask("said")[-1]["previous"]
        assert stuck.lost()
    assert previous["kind"] == "hang" and "hang_in_user_function" in previous["stderr"]


def test_a_stopped_replica_is_killed_at_once(shared: ReplicaServer, instance: int) -> None:
    with Conduit(shared, instance=instance).welcome() as stuck:
        old = Watched(stuck.ask("pid"))
        os.kill(old.pid, signal.SIGSTOP)
        with Conduit(shared, instance=instance, fresh=False).welcome() as conduit:
            assert old.gone(0)
            assert conduit.ask("said")[-1]["previous"]["kind"] == "hang"


@pytest.mark.parametrize("later", [5, 9])
def test_a_replica_at_the_end_of_its_epoch_goes_on_with_a_later_one(
    shared: ReplicaServer, instance: int, later: int
) -> None:
    with Conduit(shared, instance=instance, epoch=4).welcome() as conduit:
        pid = conduit.ask("pid")
        conduit.end()
    with Conduit(shared, instance=instance, epoch=later).welcome() as conduit:
        assert conduit.ask("pid") == pid
        conduit.end()


@pytest.mark.parametrize(
    ("epoch", "fresh", "generation"), [(5, False, 0), (4, True, 0), (3, True, 0), (5, True, 1)]
)
def test_a_replica_that_stands_elsewhere_is_replaced(
    shared: ReplicaServer, instance: int, epoch: int, fresh: bool, generation: int
) -> None:
    with Conduit(shared, instance=instance, epoch=4).welcome() as conduit:
        old = Watched(conduit.ask("pid"))
        conduit.end()
    changes = {"instance": instance, "epoch": epoch, "fresh": fresh, "generation": generation}
    with Conduit(shared, **changes).welcome() as conduit:
        assert old.gone(0) and conduit.ask("pid") != old.pid


def test_another_attempt_replaces_a_busy_replica_without_calling_it_a_death(
    shared: ReplicaServer, instance: int
) -> None:
    before = shared.status()["deaths"]
    with Conduit(shared, instance=instance).welcome() as conduit:
        pid = conduit.ask("pid")
        with Conduit(shared, instance=instance).welcome() as later:
            assert later.ask("pid") != pid
        assert conduit.lost()
    assert shared.status()["deaths"] == before


def test_an_old_fence_is_refused(shared: ReplicaServer, instance: int) -> None:
    with Conduit(shared, instance=instance).welcome() as conduit:
        for fence in (conduit.hello.fence, Fence(conduit.hello.fence - 1)):
            with Conduit(shared, instance=instance, fence=fence) as late:
                message = late.message()
                assert isinstance(message, messages.Error)
                assert message.error == "Fenced" and not message.retryable
        assert conduit.ask("pid") > 0, "the newer one is not disturbed"


def test_a_standby_that_is_promoted_acts_under_its_fence_alone(shared: ReplicaServer, instance: int) -> None:
    with Conduit(shared, instance=instance).welcome() as conduit:
        assert conduit.ask("promote")["is_granted"]
        with Conduit(shared, instance=instance, fence=conduit.hello.fence.next()) as late:
            message = late.message()
            assert isinstance(message, messages.Error) and message.error == "Fenced"


def test_a_promotion_that_cannot_be_kept_is_not_granted_and_ends_no_process(tmp_path: Path) -> None:
    with (
        ReplicaServer(fake.SPEC, tmp_path, entry="standby_replica:main", determinants=False) as server,
        Conduit(server).welcome() as conduit,
    ):
        pid = server.status()["pid"]
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, limits[1]))
        refused = conduit.ask("promote")
        assert not refused["is_granted"] and "fence file" in refused["cannot"]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
        assert conduit.ask("promote")["is_granted"]


def test_the_later_of_two_that_wait_is_served(shared: ReplicaServer, instance: int, tmp_path: Path) -> None:
    with Conduit(shared, instance=instance).welcome() as stuck:
        stuck.ask("pid")
        hang(stuck, tmp_path / "hangs")
        first, second = (Conduit(shared, instance=instance, fresh=False) for _ in range(2))
        with first, second:
            second.welcome()
            assert second.ask("pid") > 0
            overtaken = first.message()
            assert overtaken is None or isinstance(overtaken, messages.Error | messages.Welcome)


def test_what_a_replica_has_started_dies_with_it(shared: ReplicaServer, instance: int) -> None:
    with Conduit(shared, instance=instance).welcome() as conduit:
        grandchild = Watched(conduit.ask("grandchild"))
        os.kill(conduit.ask("pid"), signal.SIGKILL)
        assert grandchild.gone()


def test_output_of_a_replica_is_bounded(shared: ReplicaServer, instance: int) -> None:
    with Conduit(shared, instance=instance).welcome() as conduit:
        conduit.ask("print 40000")
        conduit.say("exit 1")
        assert conduit.lost()
    with Conduit(shared, instance=instance, fresh=False).welcome() as conduit:
        previous = conduit.ask("said")[-1]["previous"]
    assert "line 39999" in previous["stderr"] and len(previous["stderr"]) <= 20_000
    files = list((shared.data / "replicas").glob(f"1-{instance}.err*"))
    assert len(files) == 2 and all(file.stat().st_size < 1_200_000 for file in files)


# -- who may come in ---------------------------------------------------------------------------------------------


def refusal(server: ReplicaServer, said: bytes) -> messages.Error | None:
    """What the server answers before it closes."""
    with connect(server.socket_path) as sock:
        sock.sendall(said)
        try:
            frame = read_frame(sock)
        except ConnectionResetError:
            return None
        if frame is None:
            return None
        message = messages.parse(frame)
        assert isinstance(message, messages.Error)
        assert sock.recv(1) == b""
        return message


def test_a_wrong_token_is_refused(shared: ReplicaServer) -> None:
    for token in ("", "wrong", TOKEN + "x", "\N{SNOWMAN}"):
        error = refusal(shared, to_bytes(messages.pack_hello(hello(token=token))))
        assert error is not None and error.error == "Unauthenticated" and not error.retryable
        error = refusal(shared, to_bytes(messages.pack_admin(token, StopServer())))
        assert error is not None and error.error == "Unauthenticated"


def test_a_bad_hello_is_told_what_is_wrong(shared: ReplicaServer) -> None:
    good = hello().to_dict()
    for change, word in [({"version": 1}, "version"), ({"node": 64}, "node"), ({"fresh": 1}, "fresh")]:
        said = to_bytes(messages.pack_json(FrameType.HELLO, {**good, **change}))
        error = refusal(shared, said)
        assert error is not None and error.error == "ProtocolError" and word in error.message


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 64,
        b"\xff" * 64,
        to_bytes(pack(FrameType.TICK)),
        to_bytes(pack(FrameType.HELLO, b"{}"))[:-1] + b"x",
        (300 * 1024).to_bytes(4, "little") + b"\x01",
    ],
    ids=["http", "zeros", "ones", "tick", "checksum", "oversized"],
)
def test_what_is_not_the_protocol_is_dropped(shared: ReplicaServer, said: bytes, instance: int) -> None:
    assert refusal(shared, said.ljust(16, b"\0")) is None
    with Conduit(shared, instance=instance).welcome() as conduit:
        assert conduit.ask("pid") > 0


def test_a_hello_may_come_in_pieces_and_only_it_is_read(shared: ReplicaServer, instance: int) -> None:
    packed = to_bytes(messages.pack_hello(hello(instance=instance)))
    with connect(shared.socket_path) as sock:
        for at in range(len(packed)):
            sock.sendall(packed[at : at + 1])
        send_frames(sock, [messages.pack_resume(0, 0)])
        frame = read_frame(sock)
        assert frame is not None and frame.type is FrameType.WELCOME


def test_silent_peers_hold_up_no_conduit_and_are_dropped(tmp_path: Path) -> None:
    with ReplicaServer(
        fake.SPEC, tmp_path, entry="standby_replica:main", determinants=False, hello_timeout=3.0
    ) as server:
        silent = [connect(server.socket_path) for _ in range(100)]
        silent[0].send(b"\x20\x00")
        with Conduit(server).welcome() as conduit:
            assert conduit.ask("pid") > 0
        for sock in silent:
            assert sock.recv(1) == b""
            sock.close()


# -- the driver's requests ---------------------------------------------------------------------------------------


def test_a_commit_reaches_the_replicas(shared: ReplicaServer, instance: int) -> None:
    with Conduit(shared, instance=instance).welcome() as conduit:
        assert shared.commit(7, {Origin(1, 0): 100}) >= 1
        said = {"kind": "Committed", "epoch": 7, "truncation_points": [[1, 0, 100]]}
        until(lambda: said in conduit.ask("said"))


def test_status_tells_who_runs(shared: ReplicaServer, instance: int) -> None:
    with Conduit(shared, instance=instance, epoch=9).welcome() as conduit:
        pid = conduit.ask("pid")
        status = shared.status()
        mine = next(replica for replica in status["replicas"] if replica["instance"] == instance)
        assert mine["pid"] == pid and mine["epoch"] == 9 and mine["busy"] == 9 and mine["at_end"] is None
        conduit.end()
    assert status["pid"] == shared.pid
    until(lambda: len(shared.status()["spares"]) == 2)


def test_what_a_conduit_fails_with_stands_in_the_status(shared: ReplicaServer, instance: int) -> None:
    why = {"error": "ProtocolError", "message": "emitted already"}
    said = {"generation": 1, "node": 1, "instance": instance, "epoch": 3, **why}
    before = time.time()
    shared._ask(ReportFailure(Origin(1, instance), generation=1, epoch=3, **why), Done)
    failure = shared.status()["failures"][-1]
    assert before <= failure.pop("at") <= time.time()
    assert failure == said


def test_a_request_that_means_nothing_is_refused(shared: ReplicaServer) -> None:
    for request in ({}, {"kind": "Dance"}, {"kind": "BeginGeneration", "generation": -1}):
        said = {"version": messages.VERSION, "token": TOKEN, "admin": request}
        error = refusal(shared, to_bytes(messages.pack_json(FrameType.HELLO, said)))
        assert error is not None and error.error == "ProtocolError" and "admin request" in error.message


def test_a_raised_generation_ends_what_is_older(tmp_path: Path) -> None:
    with ReplicaServer(fake.SPEC, tmp_path, entry="standby_replica:main", determinants=False) as server:
        with Conduit(server, generation=1).welcome() as older:
            old = Watched(older.ask("pid"))
            with Conduit(server, instance=1, generation=2).welcome() as newer:
                newer.ask("pid")
                server.set_generation(2)
                assert old.gone(0), "it must be dead when the answer comes"
                assert newer.ask("pid") > 0
            assert older.lost()
        with Conduit(server, generation=1) as late:
            message = late.message()
            assert isinstance(message, messages.Error) and message.error == "Fenced"
        with Conduit(server, generation=2).welcome() as current:
            assert current.ask("pid") > 0


def test_a_dead_spare_is_replaced(shared: ReplicaServer, instance: int) -> None:
    spares = until(lambda: len(found := shared.status()["spares"]) == 2 and found)
    for spare in [Watched(pid) for pid in spares]:
        os.kill(spare.pid, signal.SIGKILL)
        assert spare.gone()
    with Conduit(shared, instance=instance).welcome() as conduit:
        assert conduit.ask("pid") not in spares
    until(lambda: len(set(shared.status()["spares"]) - set(spares)) == 2)


class Function:
    """Does something when it is loaded."""

    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> Any:
        return self._call[0], self._call[1:]


def serving(base: Path, *functions: Function) -> ReplicaServer:
    """A server with real replicas, of operators 1 and so on."""
    spec = QuerySpec(
        query="query",
        token=TOKEN,
        checkpoint=str(base / "checkpoint"),
        data=str(base / "data"),
        nodes={number: cloudpickle.dumps(function) for number, function in enumerate(functions, 1)},
    )
    return ReplicaServer(spec.to_document(), base / "data", determinants=False)


def test_spares_have_imported_what_functions_need(tmp_path: Path) -> None:
    """Before a conduit waits for them; a module that cannot be imported does not keep the others from it."""
    imported = tmp_path / "imported"
    imported.mkdir()

    def note(folder: str) -> None:
        Path(folder, str(os.getpid())).touch()

    def fail() -> None:
        raise ImportError("no such module")

    with serving(tmp_path, Function(fail), Function(note, str(imported))) as server:
        spares = until(lambda: len(found := server.status()["spares"]) == 2 and found)
        until(lambda: {int(path.name) for path in imported.iterdir()} >= set(spares))
        with Conduit(server) as conduit:
            message = conduit.message()
        assert isinstance(message, messages.Error)
        assert not message.retryable and "no such module" in message.message


def test_a_slow_import_is_not_taken_for_a_lost_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    def wait(path: str) -> None:
        Path(path).read_bytes()

    with serving(tmp_path, Function(wait, str(tmp_path / "fifo"))) as server, Conduit(server) as conduit:
        for _ in range(2):
            assert isinstance(conduit.message(), messages.Heartbeat)


def test_replicas_that_do_not_start_are_reported_with_their_trace(tmp_path: Path) -> None:
    with ReplicaServer(fake.SPEC, tmp_path, entry="standby_replica:broken", determinants=False) as server:
        until(lambda: server.status()["deaths"] >= 3)
        with Conduit(server) as conduit:
            message = conduit.message()
        assert isinstance(message, messages.Error)
        assert message.error == "ConfigurationError" and not message.retryable
        assert "no such operator library" in message.message
        assert server.status()["deaths"] < 50, "it must not fork as fast as they die"


def test_replicas_that_end_in_their_work_do_not_count_as_not_starting(shared: ReplicaServer) -> None:
    for _ in range(5):
        with Conduit(shared, instance=next(_instance)).welcome() as conduit:
            conduit.say("exit 70")
            assert conduit.lost()
    with Conduit(shared, instance=next(_instance)).welcome() as conduit:
        assert conduit.ask("pid") > 0


def test_many_come_at_once(shared: ReplicaServer) -> None:
    conduits = [Conduit(shared, instance=next(_instance)) for _ in range(12)]
    pids = {conduit.welcome().ask("pid") for conduit in conduits}
    assert len(pids) == 12
    for conduit in conduits:
        conduit.close()


def test_it_can_be_reached_by_tcp_too(tmp_path: Path) -> None:
    with ReplicaServer(
        fake.SPEC, tmp_path, entry="standby_replica:main", determinants=False, tcp="127.0.0.1:0"
    ) as server:
        host, _, port = (server.tcp_address or "").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as sock:
            send_frames(sock, [messages.pack_hello(hello()), messages.pack_resume(0, 0)])
            frame = read_frame(sock)
            assert frame is not None and frame.type is FrameType.WELCOME


def test_a_stop_request_ends_everything(tmp_path: Path) -> None:
    server = ReplicaServer(fake.SPEC, tmp_path, entry="standby_replica:main", determinants=False)
    with server:
        with Conduit(server).welcome() as conduit:
            conduit.ask("pid")
            watched = watch_all(server.status())
            server._stopping.set()
            server._ask(StopServer(), Done)
            assert all(process.gone() for process in watched)
            assert conduit.lost()
        assert not os.path.exists(server.socket_path)

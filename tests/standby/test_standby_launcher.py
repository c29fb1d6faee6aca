"""Life and death of the replica server: nothing is left behind, whether it or the driver dies first."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from standby_conduit import PATIENCE, SPEC, Conduit, Watched, until, watch_all

from clonos.errors import ConfigurationError
from clonos.wire import messages
from clonos.wire.determinant_client import fetch
from clonos_standby.cluster.launcher import ReplicaServer

ENTRY = "standby_replica:main"
SILENCE = 2.0


def test_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    server = ReplicaServer(SPEC, tmp_path, entry=ENTRY).start()
    with Conduit(server).welcome() as conduit:
        conduit.ask("pid")
        watched = watch_all(server.status())
        assert len(watched) >= 4
        server.stop()
        assert all(process.gone(0) for process in watched)
        assert conduit.lost()
    assert not os.path.exists(os.path.dirname(server.socket_path))
    assert not server.alive and server.pid is None
    server.stop()


def test_the_spec_with_its_token_is_private(tmp_path: Path) -> None:
    with ReplicaServer(SPEC, tmp_path, entry=ENTRY, determinants=False) as server:
        (spec,) = tmp_path.glob("spec*")
        assert spec.stat().st_mode & 0o077 == 0
        assert os.stat(os.path.dirname(server.socket_path)).st_mode & 0o077 == 0
        assert SPEC["token"] not in " ".join(Path(f"/proc/{server.pid}/cmdline").read_text().split("\0"))


def test_a_server_has_a_spec_of_its_own_which_goes_with_it(tmp_path: Path) -> None:
    """One that is still ending starts no replica by what its successor was told."""
    other = {**SPEC, "token": "another"}
    with ReplicaServer(SPEC, tmp_path / "a", entry=ENTRY, determinants=False):
        (first,) = (tmp_path / "a").glob("spec*")
        said = first.read_bytes()
        with ReplicaServer(other, tmp_path / "b", entry=ENTRY, determinants=False):
            (second,) = (tmp_path / "b").glob("spec*")
            assert first.name != second.name and first.read_bytes() == said
    assert not list(tmp_path.glob("*/spec*"))


def damage_spec(data: Path) -> None:
    for spec in data.glob("spec*"):
        spec.write_bytes(b"\0garbage")


@pytest.mark.parametrize("damage", [shutil.rmtree, damage_spec])
def test_a_server_whose_directory_was_removed_or_damaged_begins_anew_with_the_next_start(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    data = tmp_path / "data"
    with ReplicaServer(SPEC, data, entry=ENTRY, determinants=False) as server:
        (spec,) = data.glob("spec*")
        said, before = spec.read_bytes(), server.pid
        server.set_generation(6)
        assert server.pid == before
        damage(data)
        server.set_generation(7)
        assert server.pid != before and server.restarts == 1
        assert spec.read_bytes() == said
        assert (data / "running.json").exists() and server.status()["generation"] == 7


def test_a_damaged_spec_is_written_again_while_the_server_runs(tmp_path: Path) -> None:
    """Replicas that are started meanwhile would find it damaged; the query goes on without a restart."""
    data = tmp_path / "data"
    with ReplicaServer(SPEC, data, entry=ENTRY, determinants=False, silence=1.0) as server:
        (spec,) = data.glob("spec*")
        said = spec.read_bytes()
        damage_spec(data)
        until(lambda: spec.read_bytes() == said)
        shutil.rmtree(data)  # that is another matter: the server's own files are gone
        server.set_generation(7)
        assert server.restarts == 1 and (data / "running.json").exists()


def test_a_killed_server_takes_its_replicas_along_and_comes_back_with_its_fences(tmp_path: Path) -> None:
    restarted: list[ReplicaServer] = []
    with ReplicaServer(SPEC, tmp_path, entry=ENTRY, on_restart=restarted.append) as server:
        path, grpc = server.socket_path, server.grpc_address
        server.set_generation(1)
        with Conduit(server, generation=1).welcome() as conduit:
            conduit.ask("pid")
            watched = watch_all(server.status())
            os.kill(server.pid or 0, signal.SIGKILL)
            assert all(process.gone() for process in watched)
            assert conduit.lost()
            until(lambda: restarted)
            assert server.socket_path == path and server.grpc_address == grpc and server.restarts == 1
            with Conduit(server, generation=1, fence=conduit.hello.fence) as late:
                message = late.message()
                assert isinstance(message, messages.Error) and message.error == "Fenced"
            with Conduit(server, generation=0) as older:
                message = older.message()
                assert isinstance(message, messages.Error) and message.error == "Fenced"
            with Conduit(server, generation=1, fresh=False).welcome() as again:
                assert again.ask("pid") > 0
        assert server.status()["generation"] == 1, "requests work again"


def test_a_stopped_server_is_killed_with_its_replicas_and_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ReplicaServer(SPEC, tmp_path, entry=ENTRY, silence=SILENCE) as server:
        stopped = server.pid or 0
        server.set_generation(1)
        with Conduit(server, generation=1).welcome() as conduit:
            conduit.ask("pid")
            watched = watch_all(server.status())
            os.kill(stopped, signal.SIGSTOP)
            # Waits for the next one, which may answer before it has said that it is ready
            server.set_generation(2)
            until(lambda: server.restarts == 1)
            assert server.pid != stopped
            assert all(process.gone() for process in watched)
            assert conduit.lost()
        with Conduit(server, generation=2).welcome() as again:
            assert again.ask("pid") > 0
    (said,) = [record.getMessage() for record in caplog.records if "has not answered" in record.getMessage()]
    assert f"(process {stopped})" in said and "stopped by a signal" in said and "replaced" in said


def test_a_stopped_server_ends_in_order_when_it_is_to_end(tmp_path: Path) -> None:
    server = ReplicaServer(SPEC, tmp_path, entry=ENTRY).start()
    watched = watch_all(server.status())
    os.kill(server.pid or 0, signal.SIGSTOP)
    server.stop()
    assert all(process.gone(0) for process in watched)
    assert not (tmp_path / "running.json").exists(), "it has tidied up by itself"


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_the_determinant_service_is_restarted_at_its_address(tmp_path: Path, sent: signal.Signals) -> None:
    with ReplicaServer(SPEC, tmp_path, entry=ENTRY) as server:
        address = server.grpc_address or ""
        pid = server.status()["grpc_pid"]
        os.kill(pid, sent)
        until(lambda: server.status()["grpc_pid"] not in (pid, None))
        fetched = fetch([address], SPEC["token"], 1, 0, timeout=PATIENCE, wait_for_ready=True)
        assert not fetched.unreachable and len(fetched.replies) == 1
        status = server.status()
        assert status["grpc"] == address and status["grpc_pid"] != pid


def test_a_forked_replica_can_use_grpc(tmp_path: Path) -> None:
    with ReplicaServer(SPEC, tmp_path, entry=ENTRY) as server:
        for instance in range(2):
            with Conduit(server, instance=instance).welcome() as conduit:
                assert conduit.ask(f"fetch {server.grpc_address}") == 1
    assert "threads run" not in (tmp_path / "server.err").read_text()


DRIVER = """
    import json, sys
    from standby_conduit import SPEC, Conduit
    from clonos_standby.cluster.launcher import ReplicaServer
    server = ReplicaServer(SPEC, sys.argv[1], entry="standby_replica:main").start()
    conduit = Conduit(server).welcome()
    conduit.ask("pid")
    print(json.dumps({"status": server.status(), "socket": server.socket_path}), flush=True)
    {ending}
"""


def driver(tmp_path: Path, ending: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    code = textwrap.dedent(DRIVER).replace("{ending}", ending)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def test_a_killed_driver_leaves_nothing_behind(tmp_path: Path) -> None:
    process, said = driver(tmp_path, "import time; time.sleep(600)")
    with process:
        watched = watch_all(said["status"])
        process.kill()
    assert all(one.gone() for one in watched)
    until(lambda: not os.path.exists(os.path.dirname(said["socket"])))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux continues a process when its parent dies")
def test_a_driver_that_is_killed_while_its_server_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    process, said = driver(tmp_path, "import time; time.sleep(600)")
    with process:
        watched = watch_all(said["status"])
        os.kill(said["status"]["pid"], signal.SIGSTOP)
        process.kill()
    assert all(one.gone() for one in watched)
    until(lambda: not os.path.exists(os.path.dirname(said["socket"])))


def test_a_driver_that_ends_or_raises_leaves_nothing_behind(tmp_path: Path) -> None:
    process, said = driver(tmp_path, "raise SystemExit(7)")
    with process:
        watched = watch_all(said["status"])
        assert process.wait(PATIENCE) == 7
    assert all(one.gone() for one in watched)
    assert not os.path.exists(os.path.dirname(said["socket"]))


def test_a_fork_of_the_driver_that_keeps_its_pipe_does_not_keep_the_server(tmp_path: Path) -> None:
    ending = (
        "import os, time; pid = os.fork(); pid or time.sleep(600); print(pid, flush=True); time.sleep(600)"
    )
    process, said = driver(tmp_path, ending)
    with process:
        assert process.stdout is not None
        fork = int(process.stdout.readline())
        try:
            watched = watch_all(said["status"])
            process.kill()
            assert all(one.gone() for one in watched)
        finally:
            os.kill(fork, signal.SIGKILL)
            Watched(fork).gone()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({**SPEC, "version": 99}, "spec version 99"),
        ({**SPEC, "settings": {"spares": "many"}}, "setting spares is 'many'"),
        ({**SPEC, "token": ""}, "no token"),
    ],
)
def test_a_server_that_does_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any], words: str
) -> None:
    short = tmp_path / "t"
    short.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    server = ReplicaServer(spec, tmp_path / "data", entry=ENTRY, determinants=False)
    with pytest.raises(ConfigurationError, match=words):
        server.start()
    assert not list(short.iterdir())


def test_a_server_that_hangs_while_it_starts_is_told_of_and_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hangs = tmp_path / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 600\n")
    hangs.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(hangs))
    server = ReplicaServer(SPEC, tmp_path / "data", entry=ENTRY, determinants=False, start_timeout=0.6)
    with pytest.raises(ConfigurationError, match=r"was not ready within 0\.6 s"):
        server.start()
    (told,) = [record for record in caplog.records if "slow to start" in record.message]
    (pid,) = re.findall(r"process (\d+)", told.message)
    assert not os.path.exists(f"/proc/{pid}")


def test_two_servers_do_not_share_a_data_directory(tmp_path: Path) -> None:
    with ReplicaServer(SPEC, tmp_path, entry=ENTRY, determinants=False):
        second = ReplicaServer(SPEC, tmp_path, entry=ENTRY, determinants=False)
        with pytest.raises(ConfigurationError, match="another replica server uses"):
            second.start()


def test_a_long_temporary_directory_is_avoided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with ReplicaServer(SPEC, tmp_path, entry=ENTRY, determinants=False) as server:
        assert len(server.socket_path) < 100
        with Conduit(server).welcome() as conduit:
            assert conduit.ask("pid") > 0
    assert not list(deep.iterdir())

"""`clonos status` over real server processes: who runs, who has died, how long it took, and what it cannot show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from operated import TOPOLOGY, make_checkpoint, serve
from standby_conduit import PATIENCE, SPEC, Conduit, Watched, until

from clonos import cli
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.source_progress import sources_of
from clonos.tools import live_query
from clonos.tools.status.text import size, span, table
from clonos_standby.cluster.launcher import ReplicaServer
from clonos_standby.server import running


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def server(checkpoint: Path) -> Iterator[ReplicaServer]:
    """One for all tests that leave it running."""
    with serve(checkpoint) as started:
        yield started


def status(checkpoint: Path) -> dict[str, Any]:
    """As another process sees it."""
    command = [sys.executable, "-m", "clonos.cli", "status", str(checkpoint), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_it_tells_who_runs_and_who_has_died(
    checkpoint: Path, server: ReplicaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with Conduit(server, instance=1, epoch=5).welcome() as conduit:
        os.kill(conduit.ask("pid"), signal.SIGKILL)
        assert conduit.lost()
    log = checkpoint / "clonos" / "local" / "logs" / "1" / "1"
    log.mkdir(parents=True)
    letters = checkpoint / "clonos" / "dead_letters" / "1" / "1"
    letters.mkdir(parents=True)
    (letters / "65-7.letter").write_bytes(b"CLDL")
    (log / "000001.log").write_bytes(b"x" * 3000)
    second = checkpoint / "clonos" / "local" / "server-1" / "logs" / "1" / "1"
    second.mkdir(parents=True)
    (second / "000001.log").write_bytes(b"x" * 200)
    with Conduit(server, instance=1, epoch=5, fresh=False).welcome() as conduit:
        pid = conduit.ask("pid")
        until(lambda: server.status()["replicas"][0]["records"] == 14)
        said = status(checkpoint)
        assert cli.main(["status", str(checkpoint)]) == 0
        text = capsys.readouterr().out
    assert (said["committed"], said["epoch"], said["server"]["pid"]) == (4, 5, server.pid)
    review, sink = said["operators"]
    assert (review["operator"], sink["operator"], sink["kind"]) == ("review", "out", "sink")
    none, one = review["instances"]
    assert none["state"] == "none" and none["pid"] is None
    assert one["pid"] == pid and one["state"] == "busy" and one["resident"] > 1 << 20
    assert (one["log_bytes"], one["log_disk"], one["spill_disk"]) == (1234, 3200, 0)
    death, recovery = said["recent_deaths"][-1], said["recoveries"][-1]
    assert death["operator"] == "review" and death["signal"] == "SIGKILL"
    assert recovery["phases"] == {"state": 3.0, "log": 2.0, "function": 1.0, "replay": 6.0}
    assert 12.0 <= recovery["since_death_ms"] < PATIENCE * 1000
    assert SPEC["token"] not in text + json.dumps(said)
    assert (none["dead_letters"], one["dead_letters"]) == (0, 1) and "dead letters: review/1: 1\n" in text
    assert "epoch 4 committed" in text and "epoch 5 under way" in text
    assert f"review/1: process {death['pid']} was killed by SIGKILL, not sent by its server" in text
    assert "(state 3, log 2, function 1, replay 6; 99 B repeated)" in text


@pytest.mark.parametrize(
    ("metrics", "behind", "unit"),
    [
        ({"avgOffsetsBehindLatest": "410.666", "maxOffsetsBehindLatest": "1000"}, 1232, "records"),
        ({"bytesBehindLatest": "17"}, 17, "bytes"),
        ({}, None, None),
        (None, None, None),
    ],
)
def test_a_source_says_how_far_it_is_behind_or_not(
    tmp_path: Path, metrics: dict[str, str] | None, behind: int | None, unit: str | None
) -> None:
    progress = {"endOffset": {"one": {"0": 5, "1": 7}, "two": {"0": 1}}, "metrics": metrics}
    said = {"version": 1, "at": 12.5, "sources": [{"node": 3, "progress": progress}]}
    (tmp_path / "sources.json").write_text(json.dumps(said))
    assert sources_of(tmp_path) == [{"node": 3, "at": 12.5, "behind": behind, "unit": unit}]


@pytest.mark.parametrize("text", ["", '{"version": 2}', '{"version": 1}', '{"version": 1, "sources": [7]}'])
def test_what_cannot_be_read_of_sources_is_not_known(tmp_path: Path, text: str) -> None:
    assert sources_of(tmp_path) == []
    (tmp_path / "sources.json").write_text(text)
    assert sources_of(tmp_path) == []


def test_a_stopped_process_is_called_stopped(checkpoint: Path, server: ReplicaServer) -> None:
    with Conduit(server, epoch=5).welcome() as conduit:
        pid = conduit.ask("pid")
        os.kill(pid, signal.SIGSTOP)
        until(lambda: server.status()["replicas"][0]["stopped"])
        assert status(checkpoint)["operators"][0]["instances"][0]["state"] == "stopped"
        os.kill(pid, signal.SIGCONT)


def test_spilled_bundles_are_counted_though_their_files_have_no_name(
    checkpoint: Path, server: ReplicaServer
) -> None:
    folder = server.data / "spill"
    folder.mkdir()
    with (folder / "1-1-5-77-0.spill").open("wb") as file:
        file.write(b"x" * 5000)
        file.flush()
        os.unlink(file.name)
        assert live_query.find(str(checkpoint)).spilled() == {(1, 1): 5000}


def test_the_way_to_the_server_is_private_and_leads_to_its_successor_too(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    with serve(tmp_path) as server:
        path = server.data / running.FILE
        assert path.stat().st_mode & 0o777 == 0o600
        before = running.read(server.data)
        assert before is not None and before.token == SPEC["token"] and before.pid == server.pid
        os.kill(before.pid, signal.SIGKILL)
        until(lambda: server.restarts)
        found = live_query.find(str(tmp_path))
        assert found.running.pid == found.status()["pid"] == server.pid != before.pid
    assert not path.exists(), "it goes with the server"


def test_a_killed_server_leaves_a_stale_file_that_is_recognised(tmp_path: Path) -> None:
    data = tmp_path / "data"
    code = (
        "import sys, time; from standby_conduit import SPEC\n"
        "from clonos_standby.cluster.launcher import ReplicaServer\n"
        "s = ReplicaServer(SPEC, sys.argv[1], entry='standby_replica:main', determinants=False).start()\n"
        "print(s.pid, flush=True); time.sleep(600)"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    driver = subprocess.Popen(
        [sys.executable, "-c", code, str(data)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert driver.stdout is not None
    pid = Watched(int(driver.stdout.readline()))
    driver.send_signal(signal.SIGSTOP)  # so that it does not start another one
    os.kill(pid.pid, signal.SIGKILL)
    until(lambda: running.read(data) is None)
    assert (data / running.FILE).exists()
    driver.kill()
    driver.wait()
    driver.stdout.close()


@pytest.mark.parametrize(
    ("make", "code", "word"),
    [
        (lambda folder: None, 1, "CheckpointMismatch.*not the checkpoint of a causal query"),
        (make_checkpoint, 3, "NotRunning.*is not running"),
        (lambda folder: Checkpoint(str(folder)).open(TOPOLOGY), 3, "NotRunning.*never been started"),
    ],
    ids=["no query", "not running", "never started"],
)
def test_what_cannot_be_shown_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Any, code: int, word: str
) -> None:
    import re

    make(tmp_path)
    assert cli.main(["status", str(tmp_path)]) == code
    assert re.search(word, capsys.readouterr().err)


def test_the_query_of_another_user_is_refused(
    checkpoint: Path,
    server: ReplicaServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def denied(*_: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(running.Path, "read_text", denied)  # root may read everything
    assert cli.main(["status", str(checkpoint)]) == 1
    assert "belongs to user" in capsys.readouterr().err


def test_a_query_of_another_host_says_where_it_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.node", lambda: "far-away")
    make_checkpoint(tmp_path)
    monkeypatch.undo()
    assert cli.main(["status", str(tmp_path)]) == 3
    assert "started last on far-away; ask there" in capsys.readouterr().err


def test_a_copied_checkpoint_does_not_show_the_query_it_was_copied_from(
    checkpoint: Path, server: ReplicaServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("copy")
    (copy / "clonos").mkdir()
    for name in ("query.json", "place"):
        (copy / "clonos" / name).write_bytes((checkpoint / "clonos" / name).read_bytes())
    assert cli.main(["status", str(copy)]) == 3


def test_it_watches_until_it_is_interrupted(checkpoint: Path, server: ReplicaServer) -> None:
    command = [sys.executable, "-m", "clonos.cli", "status", str(checkpoint), "--json", "--watch", "0.1"]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert watcher.stdout is not None
    seen = [json.loads(watcher.stdout.readline()) for _ in range(2)]
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(PATIENCE) == 0
    watcher.stdout.close()
    assert [each["server"]["pid"] for each in seen] == [server.pid] * 2


@pytest.mark.parametrize(
    ("given", "words"), [(0.04, "0.0s"), (9.96, "10.0s"), (75, "75s"), (600, "10min"), (9e5, "10d")]
)
def test_times_are_short(given: float, words: str) -> None:
    assert span(given) == words


@pytest.mark.parametrize(
    ("given", "words"),
    [(None, "-"), (0, "0 B"), (1234, "1.2 KiB"), (50 << 20, "50 MiB"), (3 << 50, "3072 TiB")],
)
def test_sizes_are_short(given: int | None, words: str) -> None:
    assert size(given) == words


def test_columns_are_as_wide_as_what_they_hold() -> None:
    assert table(("name", "n"), [("a", "100"), ("long name", "2")]) == [
        "name         n",
        "a          100",
        "long name    2",
    ]

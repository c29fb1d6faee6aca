"""`clonos inject` over real server processes: what it does, to whom, and what it does not touch."""

from __future__ import annotations

import dataclasses
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from operated import make_checkpoint, serve
from standby_conduit import PATIENCE, Conduit, Watched, until

from clonos import cli
from clonos.errors import ConfigurationError, LogCorrupt
from clonos.storage.log_store import LogStore
from clonos.tools import live_query
from clonos.tools.inject.plan import Action, Server, Strike, draw, targets
from clonos.tools.inject.strike import strike
from clonos.wire.strikes import Kind, NoProcess
from clonos_standby.cluster.launcher import ReplicaServer
from clonos_standby.server.processes import look_at

NODES = (live_query.LiveNode(1, "review", "operator", 2), live_query.LiveNode(2, "out", "sink", 1))
FIRST = ("--operator", "review", "--instance", "0")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def server(checkpoint: Path) -> Iterator[ReplicaServer]:
    with serve(checkpoint) as started:
        yield started


@pytest.fixture
def conduit(server: ReplicaServer) -> Iterator[Conduit]:
    """Instance 0 of the operator has a process."""
    with Conduit(server, epoch=5).welcome() as connected:
        yield connected


def injecting(checkpoint: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "clonos.cli", "inject", str(checkpoint), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def inject(checkpoint: Path, *arguments: str) -> str:
    """What it printed."""
    with injecting(checkpoint, *arguments) as process:
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        return out


def test_kill(checkpoint: Path, server: ReplicaServer, conduit: Conduit) -> None:
    pid = conduit.ask("pid")
    assert f"review/0, process {pid}: killed" in inject(checkpoint, "--kill", *FIRST)
    assert conduit.lost()
    until(lambda: [death["pid"] for death in server.status()["recent_deaths"]][-1:] == [pid])


def test_what_is_stopped_goes_on(checkpoint: Path, conduit: Conduit) -> None:
    pid = conduit.ask("pid")
    with injecting(checkpoint, "--stop", "3", *FIRST) as process:
        until(lambda: look_at(pid).stopped)
        out, _ = process.communicate(timeout=PATIENCE)
    assert not look_at(pid).stopped and conduit.ask("pid") == pid
    assert re.findall(r"review/0, process \d+: (.*)", out) == ["stopped for 3 s", "goes on"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_stopped_goes_on_when_the_command_is_ended(
    checkpoint: Path, conduit: Conduit, number: signal.Signals
) -> None:
    pid = conduit.ask("pid")
    with injecting(checkpoint, "--stop", "600", *FIRST) as process:
        until(lambda: look_at(pid).stopped)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 130
    assert not look_at(pid).stopped and conduit.ask("pid") == pid


def test_a_stopped_process_that_is_replaced_is_not_waited_for(
    checkpoint: Path, server: ReplicaServer, conduit: Conduit
) -> None:
    pid = conduit.ask("pid")
    with injecting(checkpoint, "--stop", "600", *FIRST) as process:
        until(lambda: look_at(pid).stopped)
        with Conduit(server, epoch=5, fresh=False).welcome() as successor:
            out, _ = process.communicate(timeout=PATIENCE)
            assert successor.ask("pid") != pid
    assert "has been killed and replaced meanwhile" in out


def test_slow(checkpoint: Path, conduit: Conduit) -> None:
    pid = conduit.ask("pid")
    with injecting(checkpoint, "--slow", "5", "--for", "0.5", *FIRST) as process:
        until(lambda: look_at(pid).stopped)
        until(lambda: not look_at(pid).stopped)
        assert conduit.ask("pid") == pid
        out, _ = process.communicate(timeout=PATIENCE)
    assert not look_at(pid).stopped
    assert "slowed 5 times for 0.5 s" in out and "is as quick as before" in out


def test_a_log_is_damaged_and_its_owner_killed(
    checkpoint: Path, server: ReplicaServer, conduit: Conduit
) -> None:
    pid = conduit.ask("pid")
    folder = server.data / "logs" / "1" / "0"
    folder.mkdir(parents=True)
    store = LogStore(str(folder))
    store.append([], (0, b"x" * 1000))
    store.close()
    assert f"process {pid}: 1 files of its causal log damaged in {folder}, then killed" in inject(
        checkpoint, "--corrupt-log", *FIRST
    )
    assert conduit.lost()
    with pytest.raises(LogCorrupt):
        damaged = LogStore(str(folder))
        try:
            list(damaged.own())
        finally:
            damaged.close()


def test_where_there_is_no_log_nothing_is_killed(
    checkpoint: Path, server: ReplicaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with Conduit(server, instance=1).welcome() as conduit:
        pid = conduit.ask("pid")
        arguments = ["--corrupt-log", "--operator", "review", "--instance", "1"]
        assert cli.main(["inject", str(checkpoint), *arguments]) == 1
        assert "there is nothing yet in" in capsys.readouterr().err
        assert not look_at(pid).stopped and conduit.ask("pid") == pid


def test_the_server_is_killed_and_comes_back(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    with serve(tmp_path) as server:
        pid = server.pid
        assert f"replica server, process {pid}: killed" in inject(tmp_path, "--server")
        until(lambda: server.restarts == 1)


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        ([], 2, "one of --kill"),
        (["--kill", "--stop", "1", "--server"], 2, "one of --kill"),
        (["--kill", "--server", "--standby"], 2, "either a server is struck or an instance"),
        (["--kill", "--server", "host-b:7077"], 1, "no server 'host-b:7077'. It has 0"),
        (["--corrupt-log", "--server"], 1, "a server has none of its own"),
        (["--partition", "1", "--server"], 1, "is on the driver's host"),
        (["--partition", "1", *FIRST], 1, "a single instance cannot be cut off"),
        (["--kill", "--standby", *FIRST], 1, r"review/0 \(standby\) has no process now"),
        (["--kill"], 2, "--operator is needed, or --server: review, out"),
        (["--kill", "--operator", "review"], 2, "--instance is needed: 0 to 1"),
        (["--kill", "--operator", "reviews", "--instance", "0"], 1, "no operator 'reviews'.*'review', 'out'"),
        (["--kill", "--operator", "review", "--instance", "7"], 1, "no instance 7; .* 0 to 1"),
        (["--kill", "--operator", "out"], 1, "out/0 has no process now"),
        (["--corrupt-log", "--operator", "out"], 1, "out/0 is a sink"),
        (["--random", "--corrupt-log", "--operator", "out"], 1, "none .* can suffer corrupt-log"),
        (["--stop", "-1", *FIRST], 2, "not a time"),
        (["--slow", "1", *FIRST], 2, "not a factor"),
    ],
)
def test_what_makes_no_sense_is_refused(
    checkpoint: Path,
    server: ReplicaServer,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    word: str,
) -> None:
    try:
        found = cli.main(["inject", str(checkpoint), *arguments])
    except SystemExit as stopped:
        found = int(stopped.code or 0)
    assert found == code
    assert re.search(word, capsys.readouterr().err)


def test_without_a_running_query_there_is_nothing_to_strike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_checkpoint(tmp_path)
    assert cli.main(["inject", str(tmp_path), "--kill", *FIRST]) == 3
    assert "is not running" in capsys.readouterr().err


def test_a_process_that_is_no_longer_the_instances_is_not_touched(
    checkpoint: Path, server: ReplicaServer, conduit: Conduit
) -> None:
    """The number may already be another process's."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    query = live_query.find(str(checkpoint))
    true = server.status()
    stale = {**true, "replicas": [{**true["replicas"][0], "pid": bystander.pid}]}
    answers = iter((stale, stale, true))

    class Told(live_query.LiveServer):
        def status(self) -> dict[str, Any]:
            return next(answers)

    class Query(live_query.LiveQuery):
        @property
        def servers(self) -> tuple[live_query.LiveServer, ...]:
            return tuple(
                Told(**{field.name: getattr(one, field.name) for field in dataclasses.fields(one)})
                for one in query.servers
            )

    told = Query(**{field.name: getattr(query, field.name) for field in dataclasses.fields(query)})
    target = targets(NODES, "review", 0)[0]
    with pytest.raises(NoProcess, match="another process"):
        strike(told, Strike(0.0, Action(Kind.KILL), target), lambda text: None)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    assert conduit.ask("pid") == true["replicas"][0]["pid"]


# -- at random -----------------------------------------------------------------------------------------------------


def test_a_plan_depends_on_its_seed_alone() -> None:
    actions = [
        Action(Kind.KILL),
        Action(Kind.STOP, 1.0),
        Action(Kind.CORRUPT_LOG),
        Action(Kind.PARTITION, 1.0),
    ]
    among = [*targets(NODES, None, None), *targets(NODES, "review", 0, True), Server(0), Server(1, "b:7077")]
    names = [
        "review/0",
        "review/1",
        "out/0",
        "review/0 (standby)",
        "replica server",
        "replica server on b:7077",
    ]
    assert list(map(str, among)) == names
    plans = [draw(actions, among, seed=seed, every=2.0, seconds=200.0) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert [strike.at for strike in plans[0]] == [2.0 * number for number in range(1, 101)]
    assert {strike.action.kind for strike in plans[0]} == {action.kind for action in actions}
    suffering = {Kind.KILL: names, Kind.CORRUPT_LOG: [*names[:2], names[3]], Kind.PARTITION: names[5:]}
    for kind, whom in suffering.items():
        assert {str(each.target) for each in plans[0] if each.action.kind is kind} == set(whom)


def test_only_what_is_named_is_drawn() -> None:
    assert {str(target) for target in targets(NODES, "review", None)} == {"review/0", "review/1"}
    with pytest.raises(ConfigurationError, match="there is no instance"):
        targets(NODES, "out", 1)


def test_a_random_run_makes_the_same_choices_again(checkpoint: Path, server: ReplicaServer) -> None:
    runs = []
    for _ in range(2):
        conduits = [Conduit(server, instance=number).welcome() for number in (0, 1)]
        pids = [Watched(conduit.ask("pid")) for conduit in conduits]
        arguments = ["--random", "--seed", "7", "--every", "0.1", "--for", "1", "--stop", "0.05"]
        said = inject(checkpoint, *arguments, "--operator", "review")
        assert said.splitlines()[0].endswith("seed 7: 10 strikes, one every 0.1 s")
        assert not any(look_at(process.pid).stopped for process in pids)
        runs.append(re.findall(r"(review/\d), process \d+: (stopped.*)", said))
        for conduit in conduits:
            conduit.close()
    assert runs[0] == runs[1] and len(runs[0]) == 10 and len(set(runs[0])) == 2


def test_a_random_run_goes_on_past_who_is_not_there_and_past_a_dead_server(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    with serve(tmp_path) as server:
        said = inject(tmp_path, "--random", "--seed", "4", "--every", "0.2", "--for", "1.2", "--kill")
        assert re.search(r"kill left out: (review|out)/\d has no process now", said)
        kills = said.count("replica server, process")
        assert kills >= 1
        until(lambda: server.restarts == kills)

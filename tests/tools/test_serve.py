"""`clonos serve`: what the page says of a query, in a real browser over real server processes, and who may read it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import browser_page
from operated import TOPOLOGY, make_checkpoint, serve
from pyarrow import fs
from services import Authority
from standby_conduit import PATIENCE, Conduit, until

from clonos import cli
from clonos.protocol.fence import Generation
from clonos.protocol.roles.leadership import Claim, Lease
from clonos.spark.checkpoint import checkpoint_at
from clonos.storage.folder import Folder
from clonos.storage.generations import Generations, Machine
from clonos.tools.serve.advice import Level, advice
from clonos.tools.serve.graph import graph
from clonos.tools.serve.observed_query import ObservedQuery
from clonos.tools.serve.rates import KEPT_SECONDS, Look, Rates
from clonos.tools.serve.web_server import WebServer
from clonos_standby.cluster.launcher import ReplicaServer
from clonos_standby.server.histogram import Histogram

NOW = 10_000.0


# ------------------------------------------------------------------------ what is said


def said(**changes: Any) -> dict[str, Any]:
    """A query with nothing to do about it, with changes: of `instance`, or of the whole."""
    instance = {
        "instance": 0,
        "pid": 7,
        "state": "busy",
        "place": None,
        "standby": None,
        "dead_letters": 0,
        "records": 10,
        **changes.pop("instance", {}),
    }
    return {
        "checkpoint": "/data/a b",
        "data": "/data/a b/clonos/local",
        "generation": 1,
        "committed": 4,
        "epoch": 5,
        "server": {"pid": 3, "grpc_pid": 4},
        "spares": [8],
        "recent_deaths": [],
        "failures": [],
        "operators": [{"operator": "score", "node": 2, "kind": "operator", "instances": [instance]}],
        **changes,
    }


def looked(*totals: int, every: float = 1.0, generations: tuple[int, ...] = (), committed: int = 4) -> Rates:
    """Looks up to NOW at one instance."""
    rates = Rates()
    first = NOW - every * (len(totals) - 1)
    for number, total in enumerate(totals):
        generation = generations[number] if generations else 1
        rates.add(Look(first + every * number, 3, generation, committed, {"2/0": total}))
    return rates


def death(kind: str, ago: float = 5.0) -> dict[str, Any]:
    return {
        "at": NOW - ago,
        "kind": kind,
        "node": 2,
        "instance": 0,
        "operator": "score",
        "message": "it died",
    }


def failure(error: str) -> dict[str, Any]:
    return {
        "at": NOW - 5,
        "node": 2,
        "instance": 0,
        "operator": "score",
        "error": error,
        "message": "why\nmore",
    }


WORKS = looked(10, 20)
STILL = looked(*[10] * 80)


@pytest.mark.parametrize(
    ("state", "rates", "level", "seen", "command"),
    [
        (said(failures=[failure("GapError")]), WORKS, Level.ERROR, "GapError in score/0: why", ""),
        (said(), looked(1, 2, generations=(1, 4)), Level.WARNING, "started again 3 times", ""),
        (said(), STILL, Level.WARNING, "score/0 has been given no row for 79 s", "kill -USR1 7"),
        (said(), looked(*range(80)), Level.NOTE, "epoch 5 has been under way for more than 79 s", ""),
        (
            said(spares=[]),
            WORKS,
            Level.WARNING,
            "no spare",
            "tail -n 1 '/data/a b/clonos/local/deaths.jsonl'",
        ),
        (
            said(server={"pid": 3, "grpc_pid": None}),
            WORKS,
            Level.WARNING,
            "no determinant service",
            "tail '/data/a b/clonos/local/server.err'",
        ),
        (said(instance={"state": "stopped"}), WORKS, Level.WARNING, "stopped by a signal", "kill -CONT 7"),
        (said(instance={"standby": {"follows": False}}), WORKS, Level.NOTE, "catching up", ""),
        (said(recent_deaths=[death("oom")]), WORKS, Level.ERROR, "want of memory, once", ""),
        (said(recent_deaths=[death("hang")] * 2), WORKS, Level.WARNING, "no sign of life .*, 2 times", ""),
        (said(recent_deaths=[death("signal")] * 3), WORKS, Level.WARNING, "score/0 has died 3 times", ""),
        (
            said(recent_deaths=[{**death("signal"), "signal": "SIGKILL"}] * 3),
            WORKS,
            Level.WARNING,
            "score/0 has been killed by SIGKILL 3 times",
            "",
        ),
        (
            said(instance={"dead_letters": 2}),
            WORKS,
            Level.WARNING,
            "passed over 2 records",
            "ls '/data/a b/clonos/dead_letters/2/0'",
        ),
        # What is on another host, or in a store, no command of this host reaches.
        (
            said(instance={"state": "stopped", "place": "host-b:7077"}),
            WORKS,
            Level.WARNING,
            "process 7 of score/0 was stopped by a signal on host-b:7077",
            "",
        ),
        (said(instance={"place": "host-b:7077"}), STILL, Level.WARNING, "score/0 has been given no row", ""),
        (
            said(instance={"dead_letters": 2}, checkpoint="s3a://bucket/ck"),
            WORKS,
            Level.WARNING,
            "passed over 2 records",
            "",
        ),
    ],
)
def test_each_warning_says_what_to_do(
    state: dict[str, Any], rates: Rates, level: Level, seen: str, command: str
) -> None:
    (one,) = advice(state, rates, NOW)
    assert one.level is level and re.search(seen, one.seen) and one.do
    assert one.command.startswith(command) and bool(one.command) == bool(command)


@pytest.mark.parametrize(
    "state",
    [
        said(),
        said(recent_deaths=[death("signal")] * 2),
        said(recent_deaths=[death("oom", ago=700)]),
        said(failures=[failure("SinkUnavailable")]),
        said(epoch=None, instance={"state": "idle"}),
    ],
)
def test_where_there_is_nothing_to_do_nothing_is_said(state: dict[str, Any]) -> None:
    assert advice(state, WORKS, NOW) == []
    assert advice({**state, "epoch": None}, STILL, NOW) == []


def test_the_most_urgent_comes_first() -> None:
    state = said(recent_deaths=[death("oom")], spares=[], instance={"standby": {"follows": False}})
    assert [one.level for one in advice(state, WORKS, NOW)] == list(Level)


def test_rates_are_of_the_last_seconds_of_one_server() -> None:
    rates = looked(0, 100, 200, 200, 200, 200, 200, 300)
    assert rates.now() == {"2/0": pytest.approx(20.0)}
    rates.add(Look(NOW + 1, 99, 1, 4, {"2/0": 50}))
    assert rates.now() == {} and rates.course()[2][-1] == (NOW, 100.0)
    rates.add(Look(NOW + 2, 99, 1, 4, {"2/0": 80, "2/1": 20}))
    assert rates.now() == {"2/0": 30.0} and rates.course()[2][-1] == (NOW + 2, 30.0)
    rates.add(Look(NOW + 2 + KEPT_SECONDS, 99, 1, 4, {}))
    assert len(rates.looks) == 2


def test_latencies_are_of_the_last_minutes_of_one_server() -> None:
    def look(at: float, server: int, *rows: float) -> Look:
        return Look(NOW + at, server, 1, 4, {}, {"3/0": Histogram((0.1, 1.0), rows)} if rows else {})

    rates = Rates()
    assert rates.latency() == {}
    rates.add(look(0, 3))
    rates.add(look(1, 3, 1000, 0, 0))
    assert rates.latency() == {}, "when these came is not known"
    rates.add(look(2, 3, 1000, 98, 2))
    assert rates.latency() == {3: {"p50": pytest.approx(0.1 + 0.9 * 50 / 98), "p99": 1.0}}
    rates.add(look(3, 4, 8, 0, 0))
    assert rates.latency() == {}, "another server counts from nothing"
    rates.add(look(4, 4, 10, 0, 0))
    assert rates.latency()[3]["p50"] == 0.05
    rates.add(look(200, 4, 10, 0, 0))
    assert rates.latency() == {}


def test_an_instance_without_a_process_goes_on_from_where_it_was() -> None:
    """Its totals are those of all its processes, and they are not told while it has none."""
    seen, gone = {"2/0": 1_000_000}, Histogram((0.1, 1.0), (0, 500, 0))
    rates = Rates()
    for at, totals, latencies in (
        (0, seen, {"3/0": gone}),
        (1, {}, {}),
        (2, {"2/0": 1_000_100}, {"3/0": Histogram((0.1, 1.0), (10, 500, 0))}),
    ):
        rates.add(Look(NOW + at, 3, 1, 4, totals, latencies))
        assert rates.now().get("2/0", 0.0) == (50.0 if at == 2 else 0.0)
    assert rates.course()[2] == [(NOW + 1, 0.0), (NOW + 2, 100.0)]
    assert rates.latency() == {3: {"p50": pytest.approx(0.05), "p99": pytest.approx(0.099)}}


def test_an_instance_that_a_page_finds_without_a_process_has_no_history_there() -> None:
    rates = Rates()
    rates.add(Look(NOW, 3, 1, 4, {}, {"3/1": Histogram((0.1, 1.0), (5, 0, 0))}))
    for at, rows in ((1, 0), (2, 10)):
        both = {"3/0": Histogram((0.1, 1.0), (rows, 500, 0)), "3/1": Histogram((0.1, 1.0), (5, 0, 0))}
        rates.add(Look(NOW + at, 3, 1, 4, {"2/0": 1_000_000 + rows}, both))
    assert rates.now() == {"2/0": 10.0}
    assert rates.latency() == {3: {"p50": pytest.approx(0.05), "p99": pytest.approx(0.099)}}


def test_two_looks_right_behind_each_other_are_one() -> None:
    """As when a page is opened: totals move once a second, so that what lies between says nothing."""
    rates = looked(0, 15_000, every=15.0)
    rates.add(Look(NOW + 0.05, 3, 1, 4, {"2/0": 16_000}))
    assert rates.now() == {"2/0": pytest.approx(16_000 / 15.05)} and len(rates.looks) == 2


def test_a_graph_has_a_column_per_step_away_from_the_sources() -> None:
    nodes: list[dict[str, Any]] = TOPOLOGY.to_document()["nodes"]
    assert {node["name"]: node["column"] for node in graph(nodes)["nodes"]} == {
        "source": 0,
        "review": 1,
        "out": 2,
    }
    diamond = [
        {"number": 1, "kind": "source", "name": "s", "parallelism": 0, "upstream": []},
        {"number": 2, "kind": "operator", "name": "a", "parallelism": 1, "upstream": [1], "key": ["k"]},
        {
            "number": 3,
            "kind": "sink",
            "name": "z",
            "parallelism": 1,
            "upstream": [1, 2],
            "reads": [[2, "late"]],
        },
    ]
    drawn = graph(diamond)
    assert [node["column"] for node in drawn["nodes"]] == [0, 1, 2]
    assert drawn["edges"] == [
        {"from": 1, "to": 2, "output": ""},
        {"from": 1, "to": 3, "output": ""},
        {"from": 2, "to": 3, "output": "late"},
    ]


# ------------------------------------------------------------------------ who may read


@contextlib.contextmanager
def web(*queries: Any, **options: Any) -> Iterator[WebServer]:
    server = WebServer("127.0.0.1", 0, queries, **options)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get(server: WebServer, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_what_is_served_and_what_is_not(tmp_path: Path) -> None:
    query = ObservedQuery(str(tmp_path))
    query.look()
    with web(query) as server:
        assert get(server, "/")[0] == 200
        status, headers, body = get(server, "/static/page.js")
        assert status == 200 and headers["Content-Type"].startswith("text/javascript") and b"fetch(" in body
        assert "script-src 'self'" in headers["Content-Security-Policy"]
        (listed,) = json.loads(get(server, "/api/queries")[2])
        assert listed == {"number": 0, "checkpoint": str(tmp_path), "state": "unknown"}
        (one,) = json.loads(get(server, "/api/queries/0")[2])["advice"]
        assert "is not the checkpoint of a causal query" in one["seen"] and one["do"]
        for path in (
            "/api/queries/1",
            "/api/queries/x",
            "/static/../command.py",
            "/static/%2e%2e",
            "/etc/passwd",
        ):
            assert get(server, path)[0] == 404, path


def test_what_can_be_no_argument_of_a_command_is_refused() -> None:
    archives: Any = [object()]  # is not asked
    with web(archives=archives) as server:
        for path in (
            "explain?row=2-0-1%00",
            "rows?operator=a%00",
            "rows?where=a&where=b%00c",
            "rows?from=%00",
        ):
            status, _, body = get(server, f"/api/queries/0/{path}")
            assert status == 400 and b"NUL" in body, path
        assert get(server, "x://[")[0] == 400


def test_without_a_token_only_the_names_of_this_host_are_answered() -> None:
    with web() as server:
        for host in ("localhost", "127.0.0.1:4050", "[::1]:4050"):
            assert get(server, "/", Host=host)[0] == 200, host
        for host in ("evil.example", "127.0.0.1.evil.example", ""):
            assert get(server, "/", Host=host)[0] == 403, host


def test_a_query_that_no_look_can_be_had_of_is_no_end_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_checkpoint(tmp_path)
    data = tmp_path / "clonos" / "local"
    data.mkdir()
    told = {"at": 7.0, "node": 1, "instance": 0, "kind": "signal", "message": "it died"}
    (data / "deaths.jsonl").write_text(f'{{"at": 5, "no\n{json.dumps(told)}\n')
    query = ObservedQuery(str(tmp_path))
    view = query.look()
    assert view["state"] == "not running" and "Look why it ended" in view["advice"][0]["do"]
    assert [(event["operator"], event["message"]) for event in view["events"]] == [("review", "it died")]

    def broken(_: object) -> None:
        raise ValueError("nothing that was thought of")

    monkeypatch.setattr("clonos.tools.serve.observed_query.checkpoint_at", broken)
    view = query.look()
    assert view["state"] == "unknown" and "nothing that was thought of" in view["advice"][0]["seen"]


def test_a_query_that_is_not_read_is_looked_at_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks at a store are paid for. Who comes then is shown what is there now, not what was there last."""
    monkeypatch.setattr("clonos.tools.serve.observed_query.UNREAD_SECONDS", 3600.0)
    looks: queue.SimpleQueue[str] = queue.SimpleQueue()

    def counted(location: str) -> Any:
        looks.put(location)
        return checkpoint_at(location)

    monkeypatch.setattr("clonos.tools.serve.observed_query.checkpoint_at", counted)
    query = ObservedQuery(str(tmp_path))
    query.start()
    try:
        looks.get(timeout=PATIENCE)
        make_checkpoint(tmp_path)
        assert query.view()["state"] == "not running", "it was no checkpoint at the first look"
        for _ in range(2):  # and it is read now, so that looks go on
            looks.get(timeout=PATIENCE)
    finally:
        query.stop()


def test_rates_behind_a_pause_are_those_of_the_pause() -> None:
    assert looked(100, 400, every=15.0).now() == {"2/0": 20.0}
    assert looked(0, 100, 110, 120, every=4.0).now() == {"2/0": 2.5}
    assert looked(100).now() == {}


def test_a_query_of_another_host_is_not_to_be_started_before_it_is_looked_at_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_checkpoint(tmp_path)
    monkeypatch.setattr("platform.node", lambda: "another")
    (one,) = ObservedQuery(str(tmp_path)).look()["advice"]
    assert "ask there" in one["do"] and "If it does not run there" in one["do"]


def test_a_query_whose_lease_rises_runs_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(tmp_path)
    monkeypatch.setattr("platform.node", lambda: "another")
    folder = Folder(fs.LocalFileSystem(), str(tmp_path / "clonos"), tag="t")
    shelf = Generations(folder, Machine("boot", (1, 2)), {})
    lease = Lease("a" * 32, 1, holder="process 7 on host b")
    assert shelf.claim(Claim(Generation(1), lease.owner))
    shelf.keep(lease)
    query = ObservedQuery(str(tmp_path))
    assert query.look()["state"] == "not running", "one look does not tell"
    shelf.keep(replace(lease, renewals=2))
    for _ in range(2):  # it need not rise between each two
        view = query.look()
        assert view["state"] == "runs elsewhere"
        assert view["advice"][0]["seen"] == "it is led by process 7 on host b"
    shelf.keep(replace(lease, renewals=3, released=True))
    assert query.look()["state"] == "not running"


def test_what_is_given_as_a_token_where_none_is_asked_for_goes_into_no_header() -> None:
    with web() as server:
        status, headers, _ = get(server, "/?token=x%0d%0aSet-Cookie:%20stolen=1")
        assert status == 200 and "Set-Cookie" not in headers
        assert get(server, "/", Host="[")[0] == 403


def test_a_token_is_asked_for_and_kept_by_the_browser() -> None:
    with web(token="secret") as server:
        for path in ("/", "/static/page.js", "/api/queries", "/?token=wrong"):
            status, _, body = get(server, path)
            assert status == 401 and b"/?token=" in body, path
        assert get(server, "/api/queries", Authorization="Bearer secret")[0] == 200
        assert get(server, "/api/queries", Authorization="Bearer sécret")[0] == 401
        status, headers, _ = get(server, "/?token=secret", Host="elsewhere.example")
        assert (status, headers["Location"]) == (303, "/") and "HttpOnly" in headers["Set-Cookie"]
        cookie = headers["Set-Cookie"].partition(";")[0]
        assert get(server, "/api/queries", Cookie=cookie)[0] == 200
        assert get(server, "/api/queries", Cookie=f"clonos_token_{server.server_address[1]}=wrong")[0] == 401


def test_a_connection_that_says_nothing_keeps_none_waiting(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("host")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.cert, tls.key)
    with web(tls=context) as server, socket.create_connection(server.server_address[:2]):  # type: ignore[arg-type]
        assert server.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=tls.ca)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", server.server_address[1], context=trusting, timeout=PATIENCE
        )
        with contextlib.closing(connection):
            connection.request("GET", "/")
            assert connection.getresponse().status == 200


def test_an_address_that_others_reach_needs_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", str(tmp_path), "--host", "0.0.0.0"]) == 1
    assert "--token-file FILE" in capsys.readouterr().err
    (tmp_path / "token").write_text("\n")
    assert cli.main(["serve", str(tmp_path), "--token-file", str(tmp_path / "token")]) == 1
    assert "is empty" in capsys.readouterr().err
    (tmp_path / "token").write_text("no\nheader")
    assert cli.main(["serve", str(tmp_path), "--token-file", str(tmp_path / "token")]) == 1
    assert "other characters" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["serve", str(tmp_path), "--port", "99999"])
    assert "not between 0 and 65535" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert cli.main(["serve", str(tmp_path), "--port", str(taken.getsockname()[1])]) == 1
    assert "--port 0" in capsys.readouterr().err


# ------------------------------------------------------------------------ in a browser


@contextlib.contextmanager
def serving(*checkpoints: Path) -> Iterator[str]:
    """The command, as a user starts it."""
    command = [sys.executable, "-m", "clonos.cli", "serve", *map(str, checkpoints), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0


def test_the_page_shows_a_query_as_it_dies_recovers_and_ends(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    with serve(tmp_path) as server, serving(tmp_path) as url, browser_page() as page:
        page.goto(url)
        page.get_by_text("running", exact=True).wait_for()
        assert page.locator("#graph [data-node]").count() == 3
        with Conduit(server, instance=1, epoch=5).welcome() as conduit:
            pid = conduit.ask("pid")
            page.locator(f"#instances td:text-is('{pid}')").wait_for()
            assert page.locator("#graph .dot.busy").count() == 1
            os.kill(pid, signal.SIGKILL)
            assert conduit.lost()
        page.locator("#timeline .cross.death").wait_for()
        with Conduit(server, instance=1, epoch=5, fresh=False).welcome() as conduit:
            conduit.ask("pid")
            page.locator("#timeline .recovery").wait_for()
            page.locator("#events .recovery", has_text="ms after the death").wait_for()
        restarted(server)
        page.locator("#events .start", has_text="another replica server runs").wait_for()
        server.stop()
        page.get_by_text("not running", exact=True).wait_for()
        page.locator("#advice .error", has_text="start the job again over the same checkpoint").wait_for()
        assert page.locator("#graph [data-node='review']").count() == 1, "what it is, is still drawn"


def test_the_page_shows_how_far_sources_are_behind_and_how_long_rows_took_to_a_sink(tmp_path: Path) -> None:
    """Each process of the sink makes ten rows visible."""
    make_checkpoint(tmp_path)
    behind = {"metrics": {"avgOffsetsBehindLatest": "617"}, "endOffset": {"topic": {"0": 5, "1": 7}}}
    kept = {"version": 1, "at": time.time() - 60, "sources": [{"node": 3, "progress": behind}]}
    with serve(tmp_path) as server, serving(tmp_path) as url, browser_page() as page:
        (tmp_path / "clonos" / "local" / "sources.json").write_text(json.dumps(kept))
        page.goto(url)
        page.locator("#graph [data-node='source'] .lag", has_text="1,234 records behind").wait_for()
        page.locator("#graph [data-node='source'] text", has_text=re.compile(r"^\d+ (s|min) ago$")).wait_for()
        with Conduit(server, node=2, epoch=5).welcome() as conduit:
            pid = conduit.ask("pid")
            page.locator(f"#instances td:text-is('{pid}')").wait_for()
            os.kill(pid, signal.SIGKILL)
            assert conduit.lost()
        with Conduit(server, node=2, epoch=5, fresh=False).welcome() as conduit:
            conduit.ask("pid")
            page.locator("#graph [data-node='out'] .latency", has_text="p50 16 ms · p99 > 1 min").wait_for()


def test_the_command_ends_at_the_end_of_its_input_where_it_is_told_to(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "clonos.cli", "serve", str(tmp_path), "--port", "0", "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def restarted(server: ReplicaServer) -> None:
    before = server.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    until(lambda: server.alive and server.pid != before)


def test_the_page_says_that_what_it_shows_is_old(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    query = ObservedQuery(str(tmp_path))
    query.look()["at"] -= 600
    with web(query) as server, browser_page() as page:
        page.goto(server.url)
        page.get_by_text("no news", exact=True).wait_for()
        page.locator("#advice .warning", has_text="10 min old").wait_for()


class Crafted:
    """A query whose texts try to be more than text."""

    BAD = "<img src=x onerror=\"document.title='taken over'\">"

    def last(self) -> dict[str, Any]:
        return self.view()

    def view(self) -> dict[str, Any]:
        at = time.time()
        event = {
            **failure("E"),
            "at": at - 2,
            "operator": self.BAD,
            "message": self.BAD,
            "kind_of_event": "failure",
        }
        return {
            "checkpoint": self.BAD,
            "state": "unknown",
            "at": at,
            "graph": {
                "nodes": [
                    {
                        "number": 1,
                        "name": self.BAD,
                        "kind": "source",
                        "parallelism": 0,
                        "key": [],
                        "column": 0,
                    }
                ],
                "edges": [],
            },
            "said": None,
            "advice": [{"level": "error", "seen": self.BAD, "do": self.BAD, "command": self.BAD}],
            "rates": {},
            "course": {},
            "events": [event],
        }


def test_names_and_messages_are_shown_as_text() -> None:
    with web(Crafted(), Crafted()) as server, browser_page() as page:
        page.goto(server.url)
        page.locator("#events li", has_text="<img").wait_for()
        page.locator("#advice code", has_text="<img").wait_for()
        page.locator("nav button").nth(1).click()
        page.wait_for_url("**/?query=1")
        assert page.locator("img").count() == 0 and page.title().startswith("unknown")

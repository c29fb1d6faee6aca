"""What a query leaves in its archive is repeated at a desk, whatever died while it ran."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streams import Place

from clonos import cli
from clonos.errors import ConfigurationError, QueryDefinitionError

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
SEEN = "k string, n long, turn long, drawn double, at long, told string"
SUMMED = "k string, turns long, total double"


def ask(n: int) -> str:
    """A service that never says the same again."""
    import os

    return os.urandom(4).hex()


def see(key: Any, row: Any, ctx: Any) -> Any:
    turn = ctx.state["turn"] = ctx.state.get("turn", 0) + 1
    ctx.state["drawn"] = ctx.random.random()
    if turn == 1:
        ctx.timer(at=ctx.now_us() + 1, name="soon")
    yield row.k, row.n, turn, ctx.state["drawn"], ctx.now_us(), ctx.call(ask, row.n)


def soon(key: Any, timer: Any, ctx: Any) -> None:
    ctx.state["fired"] = ctx.now_us()


def total(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["turns"] = ctx.state.get("turns", 0) + 1
    ctx.state["total"] = ctx.state.get("total", 0.0) + row.drawn
    yield row.k, ctx.state["turns"], ctx.state["total"]


def see_less(key: Any, row: Any, ctx: Any) -> Any:
    """Says something else of every tenth record, and asks something else for another one."""
    for one in see(key, row, ctx):
        if row.n % 10 == 3:
            ctx.call(ask, -1)
        yield (*one[:3], 2.0, *one[4:]) if row.n % 10 == 7 else one


def start(place: Place, mode: str, **options: Any) -> Any:
    seen = place.causal(SCHEMA).groupBy("k").process(see, SEEN, name="see", on_timer=soon, **options)
    return place.start(seen.groupBy("k").process(total, SUMMED, name="total"), mode)


def end_epoch(place: Place) -> Any:
    """Stop the query behind the commit of what is visible."""
    query = place.query
    first, *_ = place.until(place.query.replicas, "a replica")
    last = int(first["epoch"])
    assert query.wait_for_epoch(last, 120)
    place.stop()
    return query


def verified(
    place: Place, capsys: pytest.CaptureFixture[str], *more: str, code: int = 0
) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert cli.main(["archive", "verify", str(place.checkpoint), "--json", *more]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def states(place: Place, capsys: pytest.CaptureFixture[str], operator: str, at: object) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.main(["state", str(place.checkpoint), "--operator", operator, "--at", str(at), "--json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {one["key"][0]: one["state"] for one in said}


def explained(place: Place, capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]]) -> None:
    """Each row is made of what it says itself, and that of the records that were fed."""
    for row in rows:
        capsys.readouterr()
        assert cli.main(["explain", str(place.checkpoint), row["clonos_id"], "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["row"] == {name: value for name, value in row.items() if name != "clonos_id"}
        assert said["operator"] == "total" and said["keys"] == [[row["k"]]]
        (state,) = said["state"]
        assert (state["before"] or {"turns": 0})["turns"] == row["turns"] - 1
        assert state["after"] == {"turns": row["turns"], "total": row["total"]}
        (seen,) = said["inputs"]
        made = seen["made_by"]
        assert made["row"] == seen["row"] and made["operator"] == "see"
        for process in (*said["processes"], *made["processes"]):
            assert process["host"] == socket.gethostname() and process["pid"] != os.getpid()
        drawn, told = seen["row"]["drawn"], seen["row"]["told"]
        assert [one["given"] for one in made["asked"] if one["kind"] == "draw"] == [drawn]
        (call,) = [one for one in made["asked"] if one["kind"] == "call"]
        assert call["what"] == f"ask({seen['row']['n']})" and call["given"] == told
        (fed,) = made["inputs"]
        assert fed["row"] == {"k": row["k"], "n": seen["row"]["n"]} and "made_by" not in fed


def asked_of_the_query(query: Any, row: dict[str, Any]) -> None:
    said = query.explain_row(row["clonos_id"])
    assert {"clonos_id": said["id"], **said["row"]} == row
    assert said["inputs"][0]["made_by"]["operator"] == "see"
    assert query.explain_row(row["clonos_id"], inputs=0)["inputs"][0].keys() == {"id", "row"}
    with pytest.raises(ConfigurationError, match="is no id of a row"):
        query.explain_row("the last one")


def compared(
    place: Place, capsys: pytest.CaptureFixture[str], operator: str, fn: str, *more: str, code: int
) -> dict[str, Any]:
    capsys.readouterr()
    command = [
        "replay",
        str(place.checkpoint),
        "--operator",
        operator,
        "--against",
        f"test_spark_archive:{fn}",
    ]
    assert cli.main([*command, "--json", *more]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def found(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    row = place.rows()[-1]
    capsys.readouterr()
    command = ["archive", "find", str(place.checkpoint), "--operator", "total"]
    assert cli.main([*command, f"k={row['k']}", f"turns={row['turns']}"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{row['clonos_id']}  epoch ") and said.count("\n") == 1
    assert cli.main([*command, f"k={row['k']}", "total=-1"]) == 1
    assert cli.main([*command, "karl=1"]) == 1
    assert "no column karl" in capsys.readouterr().err


def another_function(place: Place, capsys: pytest.CaptureFixture[str], written: int) -> None:
    """The same one says the same, to the bit; another one differs where it does."""
    for operator, on_timer in (("see", ["--on-timer", "test_spark_archive:soon"]), ("total", [])):
        same = compared(place, capsys, operator, operator, *on_timer, code=0)
        assert same["records"] == same["rows"]["then"] == same["rows"]["now"] == written, same
    other = compared(place, capsys, "see", "see_less", "--examples", "1000", code=1)
    assert (other["records"], other["differ"], other["unknown"]) == (written, written // 10, written // 10)
    for one in other["examples"]:
        (then,), n = one["then"], one["record"]["n"]
        if n % 10 == 7:
            assert one["now"] == [{**then, "drawn": 2.0}]
        else:
            assert n % 10 == 3 and "ask(-1)" in one["unknown"] and one["now"] == []
    fewer = compared(place, capsys, "see", "see_less", "--columns", "turn,n", code=1)
    assert (fewer["differ"], fewer["unknown"]) == (0, written // 10), "what differs is in no such column"
    fewer = compared(place, capsys, "see", "see_less", "--columns", "drawn", code=1)
    assert fewer["differ"] == written // 10 and {"drawn": 2.0} in [
        row for one in fewer["examples"] for row in one["now"]
    ]
    live = compared(place, capsys, "see", "see_less", "--calls", "live", code=1)
    assert (live["differ"], live["unknown"]) == (written // 10, 0)


def stopped(place: Place, row: dict[str, Any]) -> None:
    """In the function, at the record that the row was made of."""
    command = [sys.executable, "-m", "clonos.cli", "replay", str(place.checkpoint), "--row", row["clonos_id"]]
    said = subprocess.run(
        [*command, "--pdb"],
        input="p 'stopped', row.k, ctx.state.get('turns', 0), key\nc\n",
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"('stopped', {row['k']!r}, {row['turns'] - 1}, ({row['k']!r},))" in said, said
    assert "-> def total" in said or "ctx.state[" in said, said
    ended = subprocess.run(
        [*command, "--pdb"],
        input="restart\n",
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "There is no restart here" in ended.stdout and not ended.stderr, ended
    for option in (["explain", "--draw", "/dev/null/x.svg"], ["export", "--to", "/dev/null/x", "--row"]):
        name, *more = option
        command = [sys.executable, "-m", "clonos.cli", name, str(place.checkpoint), *more, row["clonos_id"]]
        ended = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 1 and " cannot be written: Not a directory" in ended.stderr, ended
        assert "Traceback" not in ended.stderr
    origin = row["clonos_id"].rpartition("-")[0]
    command = [sys.executable, "-m", "clonos.cli", "explain", str(place.checkpoint), f"{origin}-0"]
    ended = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "no such row was made" in ended.stdout + ended.stderr, ended


def attached(place: Place, row: dict[str, Any]) -> None:
    """An editor finds the same, unfolds what is there as its reader does, and lets the command end."""
    from debug_client import DebugClient  # the command imports this module, too, and has no helpers of tests

    command = [sys.executable, "-m", "clonos.cli", "replay", str(place.checkpoint), "--row", row["clonos_id"]]
    with subprocess.Popen(
        [*command, "--debugpy", "0"], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert row["clonos_id"] in process.stdout.readline()
        address = process.stdout.readline().removeprefix("waits for an editor to attach to ").strip()
        with DebugClient(address) as editor:
            editor.attach(just_my_code=True)
            frame, *_ = editor.stopped()
            assert frame["name"] == "total" and frame["source"]["path"] == __file__
            assert frame["line"] == total.__code__.co_firstlineno + 1
            assert editor.evaluate(frame, "key") == f"({row['k']!r},)"
            parts = editor.parts(editor.variables(frame)["ctx"]["variablesReference"])
            state = editor.parts(parts["state"]["variablesReference"])
            assert state["'turns'"]["value"] == str(row["turns"] - 1), state
            before = float(state["'total'"]["value"])
            assert before + float(editor.evaluate(frame, "row.drawn")) == row["total"]
            editor.go_on()
        assert process.wait(timeout=300) == 0


@pytest.mark.parametrize(("mode", "standby"), [("microbatch", "none"), ("realtime", "hot")])
def test_all_of_it_is_repeated_to_the_byte(
    place: Place, capsys: pytest.CaptureFixture[str], mode: str, standby: str
) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.snapshot.interval", "100ms")
    written = 0

    def write_and_await() -> None:
        nonlocal written
        place.write({"k": f"k{at % 7}", "n": at} for at in range(written, written + 60))
        written += 60
        place.await_rows(written)

    start(place, mode, standby=standby)
    for _ in range(2):
        write_and_await()
        for node in (2, 3):
            place.kill(node, 0)
        write_and_await()
    end_epoch(place)
    start(place, mode, standby=standby)  # as another program, for all that the archive knows
    write_and_await()
    query = end_epoch(place)
    results = verified(place, capsys)
    assert all(result["repeated"] or result.get("open") for result in results), results
    results = [result for result in results if result["repeated"]]  # another epoch may just have begun
    for operator in ("see", "total"):
        assert sum(result["records"] for result in results if result["operator"] == operator) == written
    last = max(result["epoch"] for result in results)
    told = states(place, capsys, "total", last)
    seen = {row["k"]: row for row in place.rows()}  # the last of each key
    assert {key: (state["turns"], state["total"]) for key, state in told.items()} == {
        key: (row["turns"], row["total"]) for key, row in seen.items()
    }
    explained(place, capsys, place.rows()[-20:])
    asked_of_the_query(query, place.rows()[-1])
    stopped(place, place.rows()[-1])
    attached(place, place.rows()[-1])
    found(place, capsys)
    another_function(place, capsys, written)
    assert all(state["fired"] for state in states(place, capsys, "see", last).values())


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["microbatch", "realtime"])
def test_1000_rows_of_a_run_that_was_struck_at_random(
    place: Place, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    rng, written = random.Random(7), 0
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.snapshot.interval", "300ms")
    start(place, mode, standby="hot")
    for at in range(30):
        place.write({"k": f"k{n % 13}", "n": n} for n in range(written, written + 100))
        written += 100
        strike = rng.random()
        if strike < 0.5:
            place.kill(rng.choice((2, 3)), rng.randrange(2))
        elif strike < 0.6:
            place.spark.sparkContext.cancelAllJobs()
        place.await_rows(written)
        if at % 10 == 9:
            end_epoch(place)
            start(place, mode, standby="hot")
    place.await_rows(written)
    end_epoch(place)
    explained(place, capsys, rng.sample(place.rows(), 1000))
    assert all(result["repeated"] or result.get("open") for result in verified(place, capsys))


@pytest.mark.parametrize(
    ("conf", "own", "says", "instead"),
    [
        (
            {"recording": "false"},
            {},
            (
                "spark.clonos.recording is false: nothing is recorded that could be kept. "
                "Leave spark.clonos.recording out, or archive.keep"
            ),
            {"recording": None},
        ),
        (
            {"recovery": "eager"},
            {},
            (
                "not all operators record what they do: spark.clonos.recovery=eager. "
                "Set spark.clonos.recovery=causal, or leave archive.keep out"
            ),
            {"recovery": "causal"},
        ),
        (
            {},
            {"recovery": "eager"},
            (
                "not all operators record what they do: operator 'total' has recovery='eager'. "
                "Leave recovery= of 'total' out, or leave archive.keep out"
            ),
            {},
        ),
        (
            {"recovery": "eager"},
            {"recovery": "event_log"},
            (
                "what they do: spark.clonos.recovery=eager; operator 'total' has recovery='event_log'. "
                "Set spark.clonos.recovery=causal and leave recovery= of 'total' out, or leave archive.keep out"
            ),
            {"recovery": "causal"},
        ),
    ],
)
def test_what_is_not_recorded_is_not_archived(
    place: Place,
    capsys: pytest.CaptureFixture[str],
    conf: dict[str, str],
    own: dict[str, Any],
    says: str,
    instead: dict[str, str | None],
) -> None:
    """The refusal names what is at fault, and nothing else; as it advises, there is an archive."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    for name, value in conf.items():
        place.spark.conf.set(f"spark.clonos.{name}", value)

    def begin(**how: Any) -> None:
        rows = place.causal(SEEN).groupBy("k")
        place.start(rows.process(total, SUMMED, name="total", **how), "realtime")

    with pytest.raises(QueryDefinitionError) as refused:
        begin(**own)
    assert str(refused.value).endswith(says)
    for name, new in instead.items():
        if new is None:
            place.spark.conf.unset(f"spark.clonos.{name}")
        else:
            place.spark.conf.set(f"spark.clonos.{name}", new)
    place.write([{"k": "a", "drawn": 0.5}])
    begin()
    place.await_rows(1)
    end_epoch(place)
    assert [each["repeated"] for each in verified(place, capsys)] != []


def test_a_checkpoint_without_one_says_so(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    start(place, "microbatch")
    place.write([{"k": "a", "n": 1}])
    place.await_rows(1)
    place.stop()
    assert cli.main(["archive", "verify", str(place.checkpoint)]) == 1
    assert "spark.clonos.archive.keep" in capsys.readouterr().err
    assert not Path(place.checkpoint, "clonos", "archive").exists()


def test_what_is_damaged_or_gone_is_said(
    place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    start(place, "microbatch")
    for at in range(3):
        place.write([{"k": "a", "n": at}])
        place.await_rows(at + 1)
    place.await_commit()
    place.stop()
    (last,) = [row for row in place.rows() if row["turns"] == 3]
    kept = place.checkpoint

    def changed(name: str) -> Path:
        """The archive of another checkpoint, for one change."""
        place.checkpoint = tmp_path / name
        shutil.copytree(kept, place.checkpoint)
        return place.checkpoint / "clonos" / "archive"

    def lacks(why: str) -> None:
        capsys.readouterr()
        assert cli.main(["explain", str(place.checkpoint), last["clonos_id"]]) == 1
        assert "CANNOT BE HAD" in (said := capsys.readouterr().out) and why in said
        assert any(why in result.get("why", "") for result in verified(place, capsys, code=1))

    def segments(archive: Path) -> list[Path]:
        """Of the instance that has made the row, oldest first."""
        node, instance, _ = last["clonos_id"].split("-")
        return sorted((archive / "segments" / node / instance).iterdir())

    assert all(result["repeated"] or result.get("open") for result in verified(place, capsys))
    for path in segments(changed("damaged")):
        path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    lacks("damaged")
    archive = changed("gone")
    segments(archive)[0].unlink()
    shutil.rmtree(archive / "state")
    lacks("no state from before")
    shutil.rmtree(changed("no program") / "programs")
    lacks("is not in the archive")
    place.checkpoint = kept
    capsys.readouterr()
    assert cli.main(["explain", str(kept), "3-0-999999"]) == 1
    assert "not in the archive" in capsys.readouterr().out


def test_what_is_older_than_is_kept_goes_and_the_rest_is_repeated(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is a state at each start of the query, so one behind which all that is old can go."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 hour")

    def two_hours_pass() -> None:
        for path in (place.checkpoint / "clonos" / "archive" / "segments").glob("*/*/*.segment"):
            epoch, written_at, *rest = path.name.split("-")
            path.rename(path.with_name("-".join([epoch, f"{int(written_at) - 7_200_000_000:020d}", *rest])))

    for at in range(4):
        start(place, "microbatch")
        place.write([{"k": "a", "n": at}])
        place.await_rows(at + 1)
        place.await_commit()
        place.stop()
        two_hours_pass()
    assert cli.main(["archive", "list", str(place.checkpoint), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert any(one["epochs"][0] > 0 for one in listed), listed
    for one in listed:
        for epoch in one["states"]:
            asked = ["--operator", one["operator"], "--at", str(epoch)]
            assert cli.main(["state", str(place.checkpoint), *asked]) == 0, (one, epoch)
    assert all(result["repeated"] or result.get("open") for result in verified(place, capsys))


def unmodified(key: Any, row: Any, ctx: Any) -> Any:
    yield row.k, row.n, time.time(), uuid.uuid4().hex


def test_functions_that_know_nothing_of_ctx_are_repeated_too(place: Place) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.intercept", "true")
    columns = "k string, n long, at double, id string"
    place.start(place.causal(SCHEMA).groupBy("k").process(unmodified, columns, name="asks"))
    place.write([{"k": "a", "n": 1}, {"k": "a", "n": 2}])
    *_, row = place.await_rows(2)
    place.await_commit()
    place.stop()
    (made,) = [one["clonos_id"] for one in place.rows() if one["n"] == row["n"]]

    def said(*arguments: str) -> str:
        """In a process that intercepts before it loads the function's module."""
        command = [sys.executable, "-m", "clonos.cli", *arguments]
        return subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        ).stdout

    assert "repeated to the byte" in said("archive", "verify", str(place.checkpoint))
    text = said("explain", str(place.checkpoint), made)
    assert (
        f"at={row['at']!r}, id={row['id']!r}" in text
        and "clock    exact" in text
        and "draw     128 bits" in text
    )
    there = ["--operator", "asks", "--against", "test_spark_archive:unmodified"]
    assert "0 records differ, of 0 it is not known" in said("replay", str(place.checkpoint), *there)


def aliased(key: Any, row: Any, ctx: Any) -> Any:
    """Two names of one object, within a bundle."""
    if "x" not in ctx.state:
        ctx.state["x"] = []
        ctx.state["y"] = ctx.state["x"]
    ctx.state["x"].append(row.n)
    yield row.k, len(ctx.state["y"])


def sets_timers(key: Any, row: Any, ctx: Any) -> Any:
    ctx.timer(at=ctx.now_us() + 1, name="t")
    yield row.k, row.n


def fires(key: Any, timer: Any, ctx: Any) -> Any:
    """Draws, asks, and keeps."""
    ctx.state["fired"] = ctx.state.get("fired", 0) + 1
    yield key[0], int(1e6 * ctx.random.random()) + int(ctx.call(ask, ctx.state["fired"]), 16)


def fires_with_a_default(key: Any, timer: Any, ctx: Any) -> Any:
    """Another first time: asks what was not asked then, and does without the answer."""
    if "fired" not in ctx.state:
        with contextlib.suppress(Exception):
            ctx.call(never_asked, key[0])
        ctx.state["fired"] = 100
        return
    yield from fires(key, timer, ctx)


def mutates(key: Any, row: Any, ctx: Any) -> Any:
    row.tags.append("mine")
    yield row.k, len(row.tags)


def closes(key: Any, row: Any, ctx: Any) -> Any:
    yield row.k, int(ctx.call(lambda: ask(row.n)), 16)


def closes_otherwise(key: Any, row: Any, ctx: Any) -> Any:
    yield row.k, int(ctx.call(lambda: ask(row.n + 1)), 16)


def not_as_sent(key: Any, row: Any, ctx: Any) -> Any:
    yield row.k, row.n + 0.7  # a long column takes 1.7 for 1


def late_or_not(key: Any, row: Any, ctx: Any) -> Any:
    ctx.side_output("late" if row.n % 2 else "early", (row.k, row.n))
    yield row.k, row.n


def early_or_not(key: Any, row: Any, ctx: Any) -> Any:
    ctx.side_output("early" if row.n % 2 else "late", (row.k, row.n))
    yield row.k, row.n


def all_of_them(row: Any, ctx: Any) -> bool:
    return True


def reads_the_clock(key: Any, row: Any, ctx: Any) -> Any:
    yield row.k, 1 if ctx.now().year < 2000 else row.n


def never_asked(*arguments: Any) -> Any:
    raise AssertionError


def _with_a_default(ask: Any) -> Callable[..., Any]:
    """A function that does without what is not answered."""

    def function(key: Any, row: Any, ctx: Any) -> Any:
        with contextlib.suppress(Exception):
            ask(row, ctx)
        yield row.k, row.n

    return function


WITH_DEFAULTS = {
    "does_without_an_answer": _with_a_default(lambda row, ctx: ctx.call(never_asked, row.n)),
    "does_without_the_time": _with_a_default(lambda row, ctx: ctx.now()),
    "does_without_an_exact_time": _with_a_default(lambda row, ctx: ctx.now(exact=True)),
}
does_without_an_answer, does_without_the_time, does_without_an_exact_time = WITH_DEFAULTS.values()


def keeps_once_what_cannot_be_kept(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    if row.n == 4:
        ctx.state["held"] = object()
    yield row.k, row.n


def _not_known_of_another_function(
    place: Place, capsys: pytest.CaptureFixture[str], records: int, on_timer: list[str]
) -> None:
    """Whatever it makes of not being answered."""
    for name in WITH_DEFAULTS:
        found = compared(place, capsys, "not_as_sent", name, code=1)
        assert (found["differ"], found["unknown"]) == (0, records), name
        assert " then" in found["examples"][0]["unknown"]
    on_timer = [*on_timer[:-1], f"{on_timer[-1]}_with_a_default"]
    found = compared(place, capsys, "sets_timers", "sets_timers", *on_timer, code=1)
    assert found["differ"] == 0 < found["unknown"], "it goes on with the state of then"
    assert "never_asked" in found["examples"][0]["unknown"]
    found = compared(place, capsys, "not_as_sent", "keeps_once_what_cannot_be_kept", code=1)
    assert (found["differ"], found["unknown"]) == (0, 1)
    assert "of type object cannot be kept" in found["examples"][0]["unknown"]


def test_another_function_is_told_from_the_same_one(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.parallelism", "1")
    columns, sides = "k string, n long", {"late": "k string, n long", "early": "k string, n long"}
    keyed = place.causal("k string, n long, tags array<string>").groupBy("k")
    functions = (aliased, mutates, closes, not_as_sent)
    streams = [keyed.process(fn, columns, name=fn.__name__) for fn in functions]
    streams.append(keyed.process(sets_timers, columns, name="sets_timers", on_timer=fires))
    split = keyed.process(late_or_not, columns, name="late_or_not", side_outputs=sides)
    streams += [split, *(split.side_output(name).filter(all_of_them, name=name) for name in sides)]
    union, *others = streams
    for other in others:
        union = union.union(other)
    place.start(union)
    records, epochs = 12, 2
    for at in range(epochs):
        rows = [{"k": f"k{n % 3}", "n": n, "tags": ["a"]} for n in range(records * at, records * (at + 1))]
        place.write(rows)
        place.until(lambda at=at: len(place.rows()) >= 7 * records * (at + 1), "rows of all")  # type: ignore[misc]
        place.await_commit()
    place.stop()
    same = [*functions, late_or_not]
    for fn in same:
        found = compared(place, capsys, fn.__name__, fn.__name__, code=0)
        assert found["records"] == records * epochs, fn
    on_timer = ["--on-timer", "test_spark_archive:fires"]
    found = compared(place, capsys, "sets_timers", "sets_timers", *on_timer, code=0)
    assert found["rows"]["then"] == found["rows"]["now"] > records * epochs, "timers have fired"
    other = compared(place, capsys, "closes", "closes_otherwise", code=1)
    assert (other["differ"], other["unknown"]) == (0, records * epochs), "another question has no answer"
    other = compared(place, capsys, "late_or_not", "early_or_not", code=1)
    assert other["differ"] == records * epochs and other["examples"][0]["then"] != other["examples"][0]["now"]
    other = compared(place, capsys, "not_as_sent", "reads_the_clock", code=1)
    assert other["unknown"] == records * epochs, "what it would have read is not recorded"
    _not_known_of_another_function(place, capsys, records * epochs, on_timer)
    capsys.readouterr()
    where = [str(place.checkpoint), "n=3", "k=k0"]
    assert cli.main(["archive", "find", "--operator", "not_as_sent", "--json", *where]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["row"] == {"k": "k0", "n": 3}, "as it was sent"
    assert (
        cli.main(["archive", "find", "--operator", "mutates", "--json", str(place.checkpoint), "k=k0"]) == 0
    )
    row, *_ = json.loads(capsys.readouterr().out)["rows"]
    assert cli.main(["explain", str(place.checkpoint), row["id"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"][0]["row"]["tags"] == ["a"], "as it came"


def test_a_function_that_has_changed_is_not_taken_for_the_one_of_then(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are the same, and what it keeps is not."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    start(place, "microbatch")
    place.write([{"k": "a", "n": 1}])
    place.await_rows(1)
    place.await_commit()
    place.stop()

    def total(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state["turns"] = ctx.state.get("turns", 0) + 1
        ctx.state["total"] = ctx.state.get("total", 0.0) + row.drawn
        ctx.state["never"] = "was there"
        yield row.k, ctx.state["turns"], ctx.state["total"]

    total.__qualname__ = "total"
    with monkeypatch.context() as changed:
        changed.setattr(sys.modules[__name__], "total", total)
        results = verified(place, capsys, "--operator", "total", code=1)
        of_then = [result["why"] for result in results if not result.get("open")]
        assert of_then and all("another one than then" in why for why in of_then), results
    assert all(result["repeated"] or result.get("open") for result in verified(place, capsys))

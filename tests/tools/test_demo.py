"""The demo: its plan, its eyes, its words; the harness with drivers that need no Spark; and the real thing."""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clonos.processes import alive, descendants
from clonos.testing import faults
from clonos.testing.ledger import Fault, Verdict
from clonos.tools.demo import command, driver as driver_module
from clonos.tools.demo.again import RunAgain, run_again
from clonos.tools.demo.command import exit_status
from clonos.tools.demo.driver import Driver
from clonos.tools.demo.harness import Case, Outcome, run_case
from clonos.tools.demo.job import Job
from clonos.tools.demo.native import create_table, fire, report_for_work
from clonos.tools.demo.picture import draw
from clonos.tools.demo.plan import SCENARIOS, Strike, scenario
from clonos.tools.demo.report import COLUMNS, json_line, table
from clonos.tools.demo.run_native import workers
from clonos.tools.demo.script import script_until
from clonos.tools.demo.verdicts import Result
from clonos.tools.demo.watch import Sighting, TableWatch, outage_ms
from clonos.tools.demo.words import in_words
from clonos.tools.flights.data import events


def test_a_scenario_is_the_same_for_the_same_seed() -> None:
    for name, plain in SCENARIOS.items():
        first = scenario(name, 7)
        assert first == scenario(name, 7)
        assert first != scenario(name, 8)
        assert [strike.kind for strike in first.strikes] == [
            *(strike.kind for strike in plain.strikes),
            *["worker"] * plain.drawn,
        ]
        shares = [strike.at for strike in first.strikes]
        assert shares == sorted(shares) and shares[0] > 0.05 and shares[-1] < 0.85


def test_a_script_reaches_to_the_next_drivers_end() -> None:
    day = events("2013-02-08", 1)
    due = (
        Strike("worker", 0.1),
        Strike("task", 0.2),
        Strike("sink", 0.4, "sink", pick=1),
        Strike("driver", 0.5),
        Strike("sink", 0.75, "sink", pick=2),
    )
    before = faults.read_script(script_until(due, 0.0, day, 2))
    assert [(f.point.value, f.strike.value, f.operator) for f in before] == [
        ("input", "task", "compensation"),
        ("after_commit", "replica", "sink"),
    ]
    assert before[1].after == round(len(day) * 0.4)
    after = faults.read_script(script_until(due[4:], 0.5, day, 2))
    assert [(f.point.value, f.after) for f in after] == [("before_commit", round(len(day) * 0.25))]
    assert script_until((Strike("worker", 0.1), Strike("driver", 0.2)), 0.0, day, 2) == ""
    failing = faults.read_script(script_until((Strike("task", 0.2, "sink"),), 0.0, day, 2))
    assert (failing[0].point.value, failing[0].strike.value) == ("after_commit", "task")


def test_outage_is_what_a_record_waits() -> None:
    appended = {"a": 1.0, "b": 9.9, "c": 10.05, "d": 10.5, "lost": 9.5}
    seen = {"a": 1.1, "b": 10.4, "c": 12.05, "d": 30.0}
    assert outage_ms([10.0], appended, seen) == 2000
    assert outage_ms([], appended, seen) == 0
    assert outage_ms([5.0], appended, seen) == 0
    assert outage_ms([5.0, 10.0], appended, seen) == 2000


def row_of(carrier: str, n: int, input_id: str, draw: int = 1) -> dict[str, Any]:
    return (
        {"carrier": carrier, "n": n, "input_id": input_id, "draw": draw}
        | dict.fromkeys(
            ("at", "amount", "used", "delay", "carried", "weather_version", "leg_draw", "leg_at"), 0
        )
        | dict.fromkeys(("prev_hash", "hash", "decision", "kind", "weather", "leg_prev", "leg_hash"), "")
        | {
            "tailnum": "T" + carrier,
            "leg_n": n,
        }
    )


def insert(database: str, row: dict[str, Any]) -> None:
    connection = sqlite3.connect(database)
    with connection:
        names = ", ".join(row)
        connection.execute(
            f"INSERT INTO compensation ({names}) VALUES ({', '.join('?' * len(row))})", tuple(row.values())
        )
    connection.close()


def test_the_watch_sees_rows_once_and_marks_what_contradicts(tmp_path: Path) -> None:
    database = str(tmp_path / "out.sqlite")
    watch = TableWatch(database)
    assert watch.look() == 0  # no file yet
    create_table(database)
    assert watch.look() == 0
    insert(database, row_of("AA", 1, "x"))
    insert(database, row_of("AA", 2, "y"))
    assert (watch.look(), watch.look()) == (2, 0)
    insert(database, row_of("AA", 2, "y"))
    insert(database, row_of("AA", 2, "y", draw=9))
    assert (watch.look(), watch.wrong) == (2, 2)
    assert [s.fault for s in watch.sightings] == [None, None, Fault.REPEATED, Fault.CONTRADICTED]
    verdict = watch.verdict({"x", "y", "z"})
    assert (verdict.missing, verdict.repeated, verdict.contradicted) == (1, 1, 1)
    watch.close()


def outcome(system: Any, *, exact: bool = True, strikes: int = 1, failure: str | None = None) -> Outcome:
    verdict = Verdict(3, 3 if exact else 4, 0, 0, 0 if exact else 1, 0, exact)
    return Outcome(
        scenario="worker",
        mode="realtime",
        system=system,
        verdict=verdict,
        restarts=0,
        outage_ms=1234,
        strikes=((2.0, "worker"),) * strikes,
        planned_strikes=1,
        sightings=tuple(
            Sighting(1.0 + i, f"i{min(i, 2)}", None if i < 3 else Fault.CONTRADICTED)
            for i in range(verdict.outputs)
        ),
        appended={f"i{i}": 0.9 + i for i in range(3)},
        failure=failure,
    )


def test_a_run_that_was_not_struck_as_planned_shows_nothing_and_is_not_called_wrong() -> None:
    assert outcome("clonos").result is Result.EXACT
    assert outcome("native", strikes=0).result is Result.EXACT
    assert outcome("clonos", strikes=0).result is Result.INCONCLUSIVE
    assert outcome("clonos", strikes=0, exact=False).result is Result.WRONG  # whatever struck it
    assert outcome("clonos", failure="gone").result is Result.WRONG
    assert outcome("native", exact=False).result is Result.WRONG


def test_the_exit_status_says_what_the_causal_runs_showed() -> None:
    right, vague = outcome("clonos"), outcome("clonos", strikes=0)
    native, wrong = outcome("native", exact=False), outcome("clonos", exact=False)
    assert exit_status([native, right]) == 0
    assert exit_status([native, right, vague, right]) == 3
    assert exit_status([vague, wrong, right]) == 1


def strikes_that_come_about(counts: list[int], monkeypatch: pytest.MonkeyPatch, **outcomes: Any) -> list[Any]:
    """Runs of a case of which the n-th is struck `counts[n]` times; what they were asked to run."""
    asked: list[Any] = []

    def run_case(case: Case, report: Any) -> list[Outcome]:
        asked.append(case.scenario)
        return [outcome("native", exact=False), outcome("clonos", strikes=counts[len(asked) - 1], **outcomes)]

    monkeypatch.setattr(command, "run_case", run_case)
    monkeypatch.setattr(command, "draw", lambda outcomes, path: None)
    return asked


def told(tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    status = command.run(parser.parse_args(["--seed", "5", "--out", str(tmp_path), *more]))
    return status, capsys.readouterr().out


def test_a_strike_that_did_not_come_about_is_tried_again_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = strikes_that_come_about([0, 1], monkeypatch)
    status, said = told(tmp_path, capsys)
    assert status == 0 and "shows nothing" not in said
    assert len(asked) == 2 and asked[0] == scenario("worker", 5) and asked[0] != asked[1]


def test_a_run_in_which_a_strike_cannot_be_brought_about_is_inconclusive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = strikes_that_come_about([0] * command.ATTEMPTS, monkeypatch)
    status, said = told(tmp_path, capsys)
    assert status == 3 and len(asked) == command.ATTEMPTS
    assert "the causal run shows nothing" in said and "only 0 of 1 strikes came about" in said
    assert "not exact" not in said and "inconclusive" in said


def test_a_wrong_output_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = strikes_that_come_about([0], monkeypatch, exact=False)
    status, said = told(tmp_path, capsys)
    assert status == 1 and len(asked) == 1 and "the causal run was not exact" in said


def test_one_case_is_the_default_and_ends_with_a_verdict_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = strikes_that_come_about([1], monkeypatch)
    status, said = told(tmp_path, capsys)
    assert status == 0 and asked == [scenario("worker", 5)]
    assert said.endswith(
        "Spark alone: 3 of 4 rows exact, 0 repeated, 1 contradicted what had been shown, 0 missing.\n"
        "    Wrong: struck 1 of 1 times.\n"
        "Clonos: 3 of 3 rows exact, 0 repeated, 0 contradicted what had been shown, 0 missing.\n"
        "    Exact: struck 1 of 1 times, and the output does not show it.\n"
    )


def test_all_cases_are_compared_in_a_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = strikes_that_come_about([1] * 14, monkeypatch)
    status, said = told(tmp_path, capsys, "--scenario", "all", "--mode", "both")
    assert status == 0 and [each.name for each in asked] == [name for name in SCENARIOS for _ in range(2)]
    assert "rows exact" not in said and len(said.splitlines()) == 1 + 2 + 2 * 14


def test_the_words_call_a_side_exact_only_if_it_was_struck_as_planned() -> None:
    assert "Inconclusive: struck 0 of 1 times" in in_words([outcome("clonos", strikes=0)])
    assert "Inconclusive: struck 0 of 1 times" in in_words([outcome("native", strikes=0)])
    gone = in_words([outcome("clonos", failure="gone\nTraceback: ...")])  # the table has all of it
    assert gone.endswith("Wrong: struck 1 of 1 times, and it gave up: gone")


def test_words() -> None:
    said = json.loads(json_line(outcome("clonos")))
    assert tuple(said) == COLUMNS
    assert said["result"] == "exact" and said["outage_ms"] == 1234
    text = table([outcome("native", exact=False), outcome("clonos"), outcome("clonos", strikes=0)])
    assert "1,234" in text and "only 0 of 1 strikes came about" in text
    assert text.splitlines()[2].split()[-1] == "wrong"
    assert text.splitlines()[4].split()[-1] == "inconclusive"


def test_what_was_run_again_is_said_of_real_time(tmp_path: Path) -> None:
    job = Job(mode="realtime", log="", folder=str(tmp_path), weather="")
    assert run_again(job) is None
    recoveries = Path(job.recoveries)
    recoveries.parent.mkdir(parents=True)
    begun = [{"fresh": True, "resumed": 60, "repeated": 10}, {"fresh": True, "resumed": None, "repeated": 30}]
    lost = {"fresh": False, "resumed": None, "repeated": 1_000}
    recoveries.write_text("".join(json.dumps(one) + "\n" for one in (*begun, lost)))
    again = run_again(job)
    assert again == RunAgain(60, 40)
    real = replace(outcome("clonos"), again=again)
    assert "clonos: 40%" in table([outcome("native"), real])
    assert "run again" not in table([replace(real, mode="microbatch"), outcome("clonos")])


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "demo.png"
    draw([outcome("native", exact=False), outcome("clonos")], path)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 10_000


def test_a_fault_fires_once(tmp_path: Path) -> None:
    (tmp_path / "task-sink").touch()
    assert fire(str(tmp_path), "task-sink")
    assert not fire(str(tmp_path), "task-sink") and not fire(str(tmp_path), "other")
    assert [path.name for path in tmp_path.iterdir()] == [f"task-sink.fired-{os.getpid()}"]


def test_workers_are_listed_by_last_activity(tmp_path: Path) -> None:
    job = Job(mode="microbatch", log="", folder=str(tmp_path), weather="")
    job.save()
    report_for_work(job.workers, "legs", 1)
    report_for_work(job.workers, "sink", 0)
    Path(job.workers, "99999999").write_text("legs 0")  # long dead
    assert workers(job) == [{"role": "sink", "instance": 0, "pid": os.getpid()}]


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, str(Path(tests).parent)]))
    monkeypatch.setitem(driver_module.MODULES, "native", "demo_fake_driver")
    monkeypatch.setitem(driver_module.MODULES, "clonos", "demo_fake_exact")
    monkeypatch.setattr(driver_module, "_GRACE_S", 0.5)  # their children do not go by themselves


def a_case(tmp_path: Path, name: str) -> Case:
    return Case(
        scenario=scenario(name, 1),
        mode="microbatch",
        systems=("native", "clonos"),
        events=tuple(events("2013-02-08", 1)[:200]),
        seconds=2.0,
        folder=tmp_path / "run",
    )


def pids_of(folder: Path) -> list[int]:
    return [int(pid) for file in folder.glob("*/pids") for pid in file.read_text().split()]


@pytest.mark.parametrize("name", ["driver", "worker", "task"])
def test_the_harness_strikes_and_judges(tmp_path: Path, fakes: None, name: str) -> None:
    phases: list[str] = []
    case = a_case(tmp_path, name)
    native, causal = run_case(case, lambda phase, runs, appended: phases.append(phase))
    assert (native.system, causal.system) == ("native", "clonos")
    assert causal.exact, (causal.verdict, causal.failure, causal.strikes)
    assert len(causal.strikes) == len(case.scenario.strikes)
    assert native.verdict.missing == 0
    if name == "driver":  # the sloppy one begins again
        assert native.verdict.contradicted > 30 and (native.restarts, causal.restarts) == (1, 1)
        assert causal.outage_ms > 0
    assert list(dict.fromkeys(phases)) == ["starting", "warming up", "running", "draining", "done"]
    assert not any(map(alive, pids_of(case.folder)))


def test_a_driver_that_cannot_start_is_the_outcome(
    tmp_path: Path, fakes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(driver_module.MODULES, "clonos", "no_such_module")
    case = replace(a_case(tmp_path, "worker"), systems=("clonos",))
    (broken,) = run_case(case)
    assert broken.failure is not None and "no_such_module" in broken.failure
    assert not broken.exact and broken.verdict.missing == 200


def test_killing_a_driver_leaves_nothing(tmp_path: Path, fakes: None) -> None:
    job = Job(mode="microbatch", log=str(tmp_path), folder=str(tmp_path / "x"), weather="")
    driver = Driver("native", job)
    deadline = time.monotonic() + 120
    while (event := driver.event()) is None or event["event"] != "ready":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (own, child) = pids_of(tmp_path)
    assert child in descendants(own)
    os.kill(child, 0)
    before = time.time()
    assert before <= driver.kill() <= time.time()
    assert not alive(own) and not alive(child)


def demo(tmp_path: Path, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    done = subprocess.run(
        [sys.executable, "-m", "clonos.cli", "demo", "--json", "--out", str(tmp_path), *arguments],
        capture_output=True,
        text=True,
        timeout=840,
        cwd=Path(__file__).parents[2],
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.spark
@pytest.mark.soak
def test_the_real_thing(tmp_path: Path, plugin_jar: Path) -> None:
    # The task fails right after a row became visible; what is killed inside a transaction may have shown nothing yet.
    code, lines, said = demo(
        tmp_path, "--scenario", "task", "--mode", "microbatch", "--seed", "5", "--seconds", "8"
    )
    assert code == 0, said
    native, causal = lines
    assert tuple(native) == COLUMNS and (native["system"], causal["system"]) == ("native", "clonos")
    assert causal["result"] == "exact" and causal["outputs"] == causal["inputs"] == 1386
    assert native["result"] == "wrong" and native["contradicted"] > 0
    assert (tmp_path / "demo.png").exists()


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("name", ["repeat", "replica", "chaos"])
def test_the_real_thing_in_real_time(tmp_path: Path, plugin_jar: Path, name: str) -> None:
    code, lines, said = demo(
        tmp_path, "--scenario", name, "--mode", "realtime", "--system", "clonos", "--seed", "5"
    )
    assert code == 0, said
    assert lines[0]["result"] == "exact"
    assert lines[0]["restarts"] == (2 if name == "repeat" else 0)


@pytest.mark.spark
@pytest.mark.timeout(900)  # two Sparks at once, beside whatever else the machine does
def test_what_is_run_without_options_shows_both_sides(tmp_path: Path, plugin_jar: Path) -> None:
    code, lines, said = demo(tmp_path, "--seed", "5")
    assert code == 0, said
    native, causal = lines
    assert (native["scenario"], native["mode"]) == ("worker", "realtime")
    assert (causal["result"], causal["restarts"]) == ("exact", 0)
    assert f"Spark alone: {native['outputs'] - native['repeated'] - native['contradicted']:,} of" in said
    assert "Clonos: 1,386 of 1,386 rows exact" in said and "Exact: struck 3 of 3 times" in said


def test_usage_errors(tmp_path: Path) -> None:
    for wrong, words in (
        (["--day", "2012-01-01"], "no flights"),
        (["--day", "nonsense"], "is no day"),
        (["--seconds", "0"], "--seconds"),
    ):
        code, _, said = demo(tmp_path, *wrong)
        assert code == 1 and words in said

"""`clonos bench` around its runs: what the figures mean, the file of results, the matrix, the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clonos.bench import command
from clonos.bench.cell import Cell, Failure, Mode, Protection, why_not
from clonos.bench.metrics import Samples, kept_pace, per_second, recovery
from clonos.bench.report import page, table
from clonos.bench.results import Results
from clonos.bench.watch import appended
from clonos.cli import main
from clonos.errors import ConfigurationError, InputError
from clonos.nexmark.feed import EventLogs
from clonos.nexmark.query import Run
from clonos.nexmark.workload import Workload


def cell(**changes: Any) -> Cell:
    given: dict[str, Any] = {
        "query": "q12",
        "mode": Mode.REALTIME,
        "protection": Protection.CLONOS,
        "failure": Failure.REPLICA,
        "rate": 100,
        "seconds": 20,
        "warm_up": 1,
    }
    return Cell(**given | changes)


def steady(begin: float = 0.0, end: float = 20.0, step: float = 0.01, ms: float = 10.0) -> Samples:
    """Every hundredth of a second a row; latencies between 0.9 and 1.0 times `ms`."""
    at = np.arange(begin, end, step)
    return Samples(at, ms * (0.9 + 0.1 * (np.arange(len(at)) % 10) / 9))


def test_the_seconds_of_a_run() -> None:
    seconds = per_second(steady(end=2.0), 0.0, 3.0)
    assert [second.rows for second in seconds] == [100, 100, 0]
    assert seconds[0].p50_ms == pytest.approx(9.5) and seconds[2].p99_ms is None


def test_recovery_is_the_last_sample_over_the_limit() -> None:
    samples = steady()
    hit = (samples.at >= 10.2) & (samples.at < 11.0)
    samples.latency_ms[hit] = 500.0
    samples.latency_ms[samples.at.searchsorted(14.0)] = 500.0  # one in five hundred is as before
    left = (samples.at < 10.0) | (samples.at >= 10.2)  # nothing comes out between the kill and 10.2
    found = recovery(Samples(samples.at[left], samples.latency_ms[left]), 0.0, 10.0)
    assert found.over_ms == pytest.approx(11.0)
    assert found.calm_s == pytest.approx(0.97, abs=0.03)  # but for one in a hundred
    assert found.silent_s == pytest.approx(0.21, abs=0.02)
    assert found.affected == pytest.approx(81 / 980, rel=0.02)


def test_recovery_that_is_not_seen() -> None:
    slow = steady()
    slow.latency_ms[slow.at >= 10] = 500.0
    assert recovery(slow, 0.0, 10.0).calm_s is None
    assert recovery(steady(end=12.0), 0.0, 10.0).calm_s is None  # two seconds are too few to say
    assert recovery(steady(end=9.0), 0.0, 10.0).silent_s is None
    assert recovery(steady(), 0.0, 10.0).calm_s == 0.0


def test_output_that_falls_behind() -> None:
    assert kept_pace(steady(), 0.0, 20.0)
    at = np.arange(0.0, 40.0, 0.01)
    assert not kept_pace(Samples(at, at * 500), 0.0, 20.0)  # what comes at t is visible at 2 t
    assert kept_pace(Samples(at, 15_000 + at), 0.0, 20.0)  # windows may take their time
    assert not kept_pace(Samples(at[:0], at[:0]), 0.0, 20.0)


def test_when_an_event_was_appended(tmp_path: Path) -> None:
    workload = Workload()
    with EventLogs(workload, tmp_path, 2) as logs:
        logs.write(0, 100)
        logs.write(100, 100)
    times, size = appended(Run(workload, 200), tmp_path)
    assert 200 * 100 < size < 200 * 300
    assert sorted(times) == list(range(200))
    assert max(times[event] for event in range(4, 100)) <= min(times[event] for event in range(104, 200))


def figures(**changes: Any) -> dict[str, Any]:
    given = {
        "began": 100.0,
        "strike": 102.0,
        "p50_ms": 5.0,
        "p99_ms": 20.0,
        "kept_pace": True,
        "seconds": [{"second": s, "rows": 10, "p50_ms": 5.0, "p99_ms": 20.0} for s in range(4)],
        "recovery": {"over_ms": 22.0, "calm_s": 0.5, "silent_s": 0.2, "affected": 0.01},
        "judgement": {"outputs": 40, "lost": 0, "repeated": 1, "contradicted": 2, "problems": []},
        "restarts": [],
        "restart_ms": [40.0],
        "log_bytes": 50,
        "input_bytes": 1000,
    }
    return given | changes


def test_results_are_kept_line_by_line(tmp_path: Path) -> None:
    results = Results(tmp_path)
    assert results.done() == set() and list(results.lines()) == []
    results.add(cell(), 0, figures(), steady())
    with results.path.open("a") as file:
        file.write('{"version": 1, "na')  # the bench was killed here
    assert Results(tmp_path).done() == {(cell().name, 0)}
    results.add(cell(), 1, figures(), steady())
    lines = list(results.lines())
    assert [(line["name"], line["repeat"]) for line in lines] == [(cell().name, 0), (cell().name, 1)]
    kept = np.load(tmp_path / lines[0]["samples"])
    assert (kept["at"] == steady().at).all() and (kept["latency_ms"] == steady().latency_ms).all()
    with results.path.open("a") as file:
        file.write('{"version": 2}\n')
    with pytest.raises(InputError, match=r"line 3 .* version 2"):
        results.done()


def test_what_spark_cannot_run_is_said() -> None:
    assert why_not(cell()) is None and why_not(cell(protection=Protection.NONE)) is None
    assert "no job for q11" in (why_not(cell(query="q11", protection=Protection.NONE)) or "")
    assert "to kill" in (why_not(cell(query="q1", protection=Protection.NONE)) or "")
    assert "standby" in (why_not(cell(query="q13", protection=Protection.HOT)) or "")
    assert (
        why_not(cell(query="q3", mode=Mode.MICROBATCH, protection=Protection.NONE, failure=Failure.NONE))
        is None
    )
    assert "to kill" in (why_not(cell(query="q3", mode=Mode.MICROBATCH, protection=Protection.NONE)) or "")
    for wrong in ({"query": "q99"}, {"rate": 0}, {"seconds": 1}):
        with pytest.raises(ConfigurationError):
            cell(**wrong)


def test_sides_take_turns_and_a_bench_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, int]] = []

    def run_all(left: list[tuple[Cell, int]], results: Results) -> None:
        for each, repeat in left[:3]:
            ran.append((each.protection.value, repeat))
            results.add(each, repeat, figures(), steady())

    monkeypatch.setattr(command, "_run_all", run_all)
    arguments = [
        "bench",
        "run",
        "--protection",
        "none",
        "clonos",
        "hot",
        "--mode",
        "realtime",
        "--repeats",
        "2",
    ]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    sides = ["none", "clonos", "hot"]
    assert ran == [(side, 0) for side in sides] + [(side, 1) for side in sides]
    assert main(["bench", "report", "--out", str(tmp_path)]) == 0
    assert "q12 realtime hot" in capsys.readouterr().out
    assert main(["bench", "run", "--query", "q11", "--mode", "realtime", "--out", str(tmp_path)]) == 1


def test_the_report_says_what_the_lines_say() -> None:
    machine = {"spark": "4.3.0", "cores": 2, "load": 0.5}
    lines = [
        {
            "name": each.name,
            "repeat": n,
            "cell": each.to_json(),
            "machine": machine,
            **figures(p50_ms=4.0 + n),
        }
        for each in (cell(), cell(protection=Protection.NONE))
        for n in range(3)
    ]
    lines[0]["kept_pace"] = False
    lines[-1]["log_bytes"] = None
    text = table(json.loads(json.dumps(lines))).splitlines()
    assert len(text) == 3
    assert " no  5.0 (4.0..6.0)  20 (20..20)" in text[1] and " yes  5.0 (4.0..6.0)" in text[2]
    assert text[1].split()[-4:] == ["0", "3", "6", "0"]
    made = page(lines)
    assert made.count("<svg") == 1 and made.count("<polyline") == 12 and "killed" in made
    assert "5.0 (4.0..6.0)" in made and "http" not in made
    assert "<svg" not in page([])

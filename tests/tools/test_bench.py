"""`clonos bench` around its runs: what the figures mean, the file of results, the matrix, the report."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clonos.cli import main
from clonos.errors import ConfigurationError, FaultInjected, InputError, NotRunning
from clonos.testing.faults import Fault, FaultInjector, Point, Strike, read_script, script
from clonos.tools.bench import command, plots
from clonos.tools.bench.cell import Cell, Failure, Mode, Pattern, Protection, why_not
from clonos.tools.bench.findings import sustainable
from clonos.tools.bench.metrics import Samples, kept_pace, per_second, recovery, sustained
from clonos.tools.bench.plan import Estimate, Plan
from clonos.tools.bench.presets import PRESETS
from clonos.tools.bench.readme import BEGIN, END
from clonos.tools.bench.report import page, table
from clonos.tools.bench.results import Line, Results
from clonos.tools.bench.search import Bounds, bounds, next_rate, probes_left
from clonos.tools.bench.side import held_back, task_faults
from clonos.tools.bench.stock import Appender, Trouble, create_table
from clonos.tools.bench.strike import workers
from clonos.tools.bench.watch import appended
from clonos.tools.nexmark.feed import EventLogs
from clonos.tools.nexmark.native import FUNCTION, SINK, at_work
from clonos.tools.nexmark.queries import QUERIES
from clonos.tools.nexmark.query import Run
from clonos.tools.nexmark.workload import Workload


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
    found = recovery(Samples(samples.at[left], samples.latency_ms[left]), 0.0, [10.0])
    assert found.over_ms == pytest.approx(11.0)
    assert found.calm_s == pytest.approx(0.97, abs=0.03)  # but for one in a hundred
    assert found.silent_s == pytest.approx(0.21, abs=0.02)
    assert found.affected == pytest.approx(81 / 980, rel=0.02)


def test_recovery_that_is_not_seen() -> None:
    slow = steady()
    slow.latency_ms[slow.at >= 10] = 500.0
    assert recovery(slow, 0.0, [10.0]).calm_s is None
    assert recovery(steady(end=12.0), 0.0, [10.0]).calm_s is None  # two seconds are too few to say
    assert recovery(steady(end=9.0), 0.0, [10.0]).silent_s is None
    assert recovery(steady(), 0.0, [10.0]).calm_s == 0.0
    samples = steady(end=30.0)
    left = (samples.at < 10.1) | (samples.at >= 15.1)  # what was in flight still comes out, then nothing
    samples.latency_ms[(samples.at >= 15.1) & (samples.at < 15.5)] = 5000.0
    silent = recovery(Samples(samples.at[left], samples.latency_ms[left]), 0.0, [10.0])
    assert silent.calm_s == pytest.approx(5.5, abs=0.05)


def test_recovery_from_three_failures() -> None:
    """Calm is counted from the last, silence and who is affected from the first; the limit is from before it."""
    samples = steady(end=30.0)
    for strike, until in ((6.0, 6.5), (12.0, 13.0), (18.0, 18.4)):
        samples.latency_ms[(samples.at >= strike) & (samples.at < until)] = 500.0
    gone = (samples.at >= 12.0) & (samples.at < 12.3)
    found = recovery(Samples(samples.at[~gone], samples.latency_ms[~gone]), 0.0, [6.0, 12.0, 18.0])
    assert found.over_ms == pytest.approx(11.0)
    assert found.calm_s == pytest.approx(0.35, abs=0.03)
    assert found.silent_s == pytest.approx(0.31, abs=0.02)
    assert found.affected == pytest.approx(160 / 2370, rel=0.02)


def test_output_that_falls_behind() -> None:
    assert kept_pace(steady(), 0.0, 20.0)
    at = np.arange(0.0, 40.0, 0.01)
    assert not kept_pace(Samples(at, at * 500), 0.0, 20.0)  # what comes at t is visible at 2 t
    assert kept_pace(Samples(at, 15_000 + at), 0.0, 20.0)  # windows may take their time
    assert kept_pace(Samples(at[:0], at[:0]), 0.0, 20.0) is None
    sparse = np.array([1.0, 2.0, 3.0, 11.0, 17.0, 18.0, 19.0])
    assert kept_pace(Samples(sparse, sparse * 0), 0.0, 20.0)  # some rows a window
    assert kept_pace(Samples(sparse[:-1], sparse[:-1] * 0), 0.0, 20.0) is None


def test_what_is_sustained() -> None:
    assert sustained(steady(), 0.0, 20.0, 1.0)
    assert not sustained(steady(), 0.0, 20.0, 0.9)  # the feed itself was too slow
    at = np.arange(0.0, 20.0, 0.01)
    assert sustained(Samples(at, 500 + 40 * at), 0.0, 20.0, 1.0)  # 4 % stay behind
    assert not sustained(Samples(at, 500 + 60 * at), 0.0, 20.0, 1.0)
    assert sustained(Samples(at, 9000 - 400 * at), 0.0, 20.0, 1.0)  # a backlog that is worked off
    silent = at < 14.0
    assert not sustained(Samples(at[silent], 10 + at[silent]), 0.0, 20.0, 1.0)
    spikes = steady()
    spikes.latency_ms[(spikes.at > 15) & (np.arange(len(spikes.at)) % 50 == 0)] = 600.0
    assert not sustained(spikes, 0.0, 20.0, 1.0)


@pytest.mark.parametrize("truth", [3, 70, 400, 1000, 1333, 20_000])
def test_a_search_ends_close_to_the_truth(truth: int) -> None:
    tried: dict[int, bool] = {}
    expected = probes_left(tried, 1.1)
    while (rate := next_rate(tried, 1000, 1.1)) is not None:
        assert rate not in tried
        tried[rate] = rate <= truth
    found = bounds(tried)
    assert found.low is not None and found.high is not None and found.low <= truth < found.high
    assert found.high <= found.low * 1.1 or found.high == found.low + 1
    assert expected >= 3 and len(tried) <= 14


def test_a_search_believes_the_lowest_failure() -> None:
    assert bounds({1000: False, 2000: True, 500: True}) == Bounds(500, 1000)
    assert bounds({1000: False, 2000: True}) == Bounds(None, 1000)
    assert next_rate({1: False}, 1000, 1.1) is None  # not even one a second
    assert next_rate({1_000_000: True}, 1000, 1.1) is None


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
        "strikes": [102.0],
        "p50_ms": 5.0,
        "p99_ms": 20.0,
        "kept_pace": True,
        "seconds": [{"second": s, "rows": 10, "p50_ms": 5.0, "p99_ms": 20.0} for s in range(4)],
        "recovery": {"over_ms": 22.0, "calm_s": 0.5, "silent_s": 0.2, "affected": 0.01},
        "judgement": {"outputs": 40, "lost": 0, "repeated": 1, "contradicted": 2, "problems": []},
        "restarts": [],
        "restart_ms": [40.0],
        "done_again": 7,
        "log_bytes": 50,
        "input_bytes": 1000,
        "output_bytes": 550,
        "delta_bytes": 50,
        "snapshots": 4,
        "snapshot_s": 0.02,
    }
    return given | changes


def test_results_are_kept_line_by_line(tmp_path: Path) -> None:
    results = Results(tmp_path)
    assert results.known() == {} and list(results.lines()) == []
    results.add(cell(), 0, figures(), steady())
    with results.path.open("a") as file:
        file.write('{"version": 2, "na')  # the bench was killed here
    assert Results(tmp_path).known().keys() == {(cell().name, 0)}
    results.add(cell(), 1, figures(), steady())
    results.fail(cell(), 2, NotRunning("no output"))  # not known: it is tried again
    assert results.known().keys() == {(cell().name, 0), (cell().name, 1)}
    *lines, failed = list(results.lines())
    assert failed["error"] == "NotRunning: no output"
    assert [(line["name"], line["repeat"]) for line in lines] == [(cell().name, 0), (cell().name, 1)]
    kept = np.load(tmp_path / lines[0]["samples"])
    assert (kept["at"] == steady().at).all() and (kept["latency_ms"] == steady().latency_ms).all()
    with results.path.open("a") as file:
        file.write('{"version": 1}\n')
    with pytest.raises(InputError, match=r"line 4 .* version 1"):
        results.known()


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
    assert "are for real time" in (
        why_not(cell(mode=Mode.MICROBATCH, protection=Protection.EAGER)) or "it is run"
    )
    assert "are one" in (why_not(cell(failure=Failure.TASK, pattern=Pattern.TOGETHER)) or "")
    nothing_thrice = {"failure": Failure.NONE, "pattern": Pattern.STAGGERED}
    for wrong in ({"query": "q99"}, {"rate": 0}, {"seconds": 1}, nothing_thrice):
        with pytest.raises(ConfigurationError):
            cell(**wrong)


def test_sides_take_turns_and_a_bench_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, int]] = []

    def run_all(plan: Plan, results: Results) -> int:
        for each, repeat in islice(plan.jobs(results.known()), 3):
            ran.append((each.protection.value, repeat))
            results.add(each, repeat, figures(), steady())
        return 0

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


def test_a_run_that_fails_does_not_keep_the_others_from_being_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Session:
        def stop(self) -> None:
            pass

    def run_cell(spark: Session, each: Cell, repeat: int, folder: Path) -> tuple[dict[str, Any], Samples]:
        if each.protection is Protection.NONE:
            raise NotRunning("no output within 1 s")
        if each.probe:
            return figures(judgement=None, sustained=each.rate <= 2000), steady()
        return figures(), steady()

    monkeypatch.setattr("clonos.tools.bench.side.session", Session)
    monkeypatch.setattr("clonos.tools.bench.run.run_cell", run_cell)
    out = ["--protection", "none", "clonos", "--mode", "realtime", "--out", str(tmp_path)]
    assert main(["bench", "run", "--repeats", "1", *out]) == 1
    said = capsys.readouterr().out
    assert (
        "1 done, 1 left" in said and "NotRunning: no output" in said and "1 repeated, 2 contradicted" in said
    )
    assert main(["bench", "search", "--within", "1.5", *out]) == 1
    said = capsys.readouterr().out
    assert (
        "not sustained" in said
        and "q12 realtime clonos  2,000" in said
        and "q12 realtime none    < 1" in said
    )


def line_of(each: Cell, repeat: int = 0, **changes: Any) -> Line:
    machine = {"spark": "4.3.0", "cores": 2, "load": 0.5}
    made = {"name": each.name, "repeat": repeat, "cell": each.to_json(), "machine": machine}
    found: Line = json.loads(json.dumps({**made, **figures(**changes)}))
    return found


def probe(rate: int, held: bool, protection: Protection = Protection.CLONOS, repeat: int = 0) -> Line:
    each = cell(rate=rate, probe=True, failure=Failure.NONE, protection=protection)
    return line_of(each, repeat, sustained=held, strikes=[], judgement=None, recovery=None)


def test_a_plan_goes_on_where_it_was() -> None:
    """Repeat by repeat, then searches in turns, then what they have found, at half of it; a probe that is known is not
    run again, nor one that failed now."""
    none, clonos = Protection.NONE, Protection.CLONOS
    sides = [cell(protection=side, failure=Failure.NONE, rate=70) for side in (none, clonos)]
    searches = tuple(replace(each, rate=100, probe=True) for each in sides)
    plan = Plan(tuple(sides), searches, repeats=2, within=1.5)
    known: dict[tuple[str, int], Line] = {}
    order: list[tuple[Protection, int, int, bool]] = []

    def go_on(most: int) -> None:
        for each, repeat in islice(plan.jobs(known), most):
            order.append((each.protection, each.rate, repeat, each.probe))
            failed = each.protection is none and each.probe
            outcome = {"error": "NotRunning: no"} if failed else {"sustained": each.rate < 210}
            known[each.name, repeat] = line_of(each, repeat) | outcome

    go_on(6)
    left = len(plan.left(known))
    go_on(100)
    assert [each[:3] for each in order[:4]] == [
        (none, 70, 0),
        (clonos, 70, 0),
        (none, 70, 1),
        (clonos, 70, 1),
    ]
    probes = [each[:2] for each in order if each[2:] == (0, True)]
    assert probes[:4] == [(none, 100), (clonos, 100), (none, 50), (clonos, 200)]
    assert [each for each in order[4:] if not each[3]] == [(clonos, 100, 0, False), (clonos, 100, 1, False)]
    assert order[-1] == (clonos, 100, 1, False)
    assert len(order) == len(set(order)) and plan.left(known) == [] and left > 4
    held = sustainable(known.values())
    assert [side.text for side in held[0]] == ["< 1", "200 (200..200)"] and held[0][1].below == 283


def test_sides_are_compared_at_the_same_load() -> None:
    sides = [cell(protection=side, failure=Failure.NONE, probe=True) for side in Protection]
    plan = Plan((), tuple(sides), within=1.5)
    known: dict[tuple[str, int], Line] = {}
    for each, repeat in plan.jobs(known):
        most = 300 if each.protection is Protection.HOT else 2000
        known[each.name, repeat] = line_of(each, repeat) | {"sustained": each.rate < most}
    at_half = [line["cell"] for line in known.values() if not line["cell"]["probe"]]
    assert [each["protection"] for each in at_half] == [side.value for side in Protection]
    assert {each["rate"] for each in at_half} == {142}  # of 283, the lowest


def test_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    estimate = Estimate()
    first = estimate.left_s([cell(), cell()])
    assert 40 < first < 120
    now[0] += first  # twice as slow as expected
    estimate.ran(cell())
    assert estimate.left_s([cell()]) == pytest.approx(first)


def test_presets_have_everything() -> None:
    smoke = PRESETS["smoke"]
    assert {each.query for each in smoke.cells} == set(QUERIES) and smoke.searches
    for name, kind in (
        ("mode", Mode),
        ("protection", Protection),
        ("failure", Failure),
        ("pattern", Pattern),
    ):
        assert {getattr(each, name) for each in smoke.cells} == set(kind)
    for plan, minutes in (
        (smoke, 6),
        *((PRESETS[name], 60) for name in ("standard", "recoveries", "hot_keys")),
    ):
        assert len({each.name for each in plan.cells}) == len(plan.cells)
        assert Estimate().left_s(plan.left({})) < 60 * minutes


def test_what_stock_spark_holds_back_is_not_lost() -> None:
    native = {"protection": Protection.NONE, "failure": Failure.NONE}
    assert [held_back(cell(query=query, **native)) for query in ("q1", "q12")] == [2, 4]
    assert held_back(cell()) == held_back(cell(mode=Mode.MICROBATCH, **native)) == 0


def test_when_failures_strike() -> None:
    assert cell().moments == (10.0,)
    assert cell(pattern=Pattern.TOGETHER).moments == (10.0,)
    assert cell(seconds=24, pattern=Pattern.STAGGERED).moments == (8.0, 12.0, 16.0)
    assert cell(failure=Failure.NONE).moments == ()
    assert "staggered" in cell(pattern=Pattern.STAGGERED).name


def test_a_task_fails_when_it_is_asked_to(tmp_path: Path) -> None:
    """Natively in the sink, once, after its rows are visible."""
    native = cell(protection=Protection.NONE, failure=Failure.TASK, pattern=Pattern.STAGGERED)
    database = str(tmp_path / "out.db")
    create_table(database, "t", ["a"])
    trouble = Trouble(tmp_path / "workers", tmp_path / "marks", task_faults(native))

    def batch() -> None:
        appender = Appender(database, "t", trouble)
        assert appender.open(0, 0)
        assert [path.name for path in trouble.workers.iterdir()] == [f"{SINK}-{os.getpid()}"]
        appender.process((1,))
        appender.close(None)

    batch()
    trouble.marks.mkdir()
    for number in range(2):
        (trouble.marks / str(number)).touch()
        with pytest.raises(FaultInjected):
            batch()
        batch()
    fired = sorted(path.name for path in trouble.marks.glob("?-*"))
    assert len(fired) == 2 and not list(trouble.workers.iterdir())
    assert sqlite3.connect(database).execute("select count(*) from t").fetchone() == (5,)
    causal = read_script(task_faults(cell(failure=Failure.TASK, pattern=Pattern.STAGGERED)))
    assert [(fault.operator, fault.instance, fault.asked) for fault in causal] == [
        ("count", 0, "0"),
        ("count", 1, "1"),
        ("count", 0, "2"),
    ]


def test_a_fault_waits_for_its_file(tmp_path: Path) -> None:
    fault = Fault(point=Point.INPUT, strike=Strike.TASK, asked="now")
    injector = FaultInjector(read_script(script(fault)), operator="o", instance=0, marks=tmp_path)
    injector.reached(Point.INPUT, 0)
    (tmp_path / "now").touch()
    with pytest.raises(FaultInjected):
        injector.reached(Point.INPUT, 0)
    injector.reached(Point.INPUT, 0)
    with pytest.raises(ConfigurationError, match="not the name of a file"):
        script(Fault(point=Point.INPUT, strike=Strike.TASK, asked="../x"))


def test_processes_with_the_function_are_killed_first(tmp_path: Path) -> None:
    folder = tmp_path / "workers"
    assert workers(folder) == []
    with at_work(folder, SINK), at_work(folder, FUNCTION):
        (folder / f"{FUNCTION}-{2**22 + 1}").touch()  # no process has this number
        assert workers(folder) == [os.getpid(), os.getpid()]
        assert sorted(path.name.split("-")[0] for path in folder.iterdir()) == [FUNCTION, FUNCTION, SINK]
    assert workers(folder) == []


def test_the_report_says_what_the_lines_say() -> None:
    lines = [
        line_of(each, n, p50_ms=4.0 + n)
        for each in (cell(), cell(protection=Protection.NONE), cell(failure=Failure.NONE))
        for n in range(3)
    ]
    lines[0]["kept_pace"] = False
    lines[5] |= {"log_bytes": None, "output_bytes": None, "delta_bytes": None, "snapshots": 0}
    lines[8] |= {"strikes": [], "recovery": None}
    text = table(lines).splitlines()
    assert len(text) == 4
    assert " no  5.0 (4.0..6.0)  20 (20..20)" in text[1] and " yes  5.0 (4.0..6.0)" in text[2]
    assert "0.1000 (0.1000..0.1000)" in text[1] and "5.0 (5.0..5.0)         12" in text[1]
    made = page(lines)
    assert made.count("<svg") == 1 and ">killed</text>" in made
    for protection in ("none", "clonos"):
        lines_drawn = made.partition("<svg")[2].count(f"stroke: {plots.COLOURS[protection]}")
        assert lines_drawn == 3, "the median, the p99, and the legend's"
    assert "5.0 <small>(4.0..6.0)</small>" in made and "src=" not in made and 'href="http' not in made
    assert "Nothing has been run" in page([]) and table([]) == "no results yet"


def test_searches_and_failed_runs_are_reported() -> None:
    none = Protection.NONE
    lines = [probe(100, True), probe(200, False), probe(141, True), probe(100, True, none)]
    lines += [probe(200, False, repeat=1), probe(160, True, repeat=1)]
    failed = cell(query="q1")
    lines.append({k: v for k, v in line_of(failed).items() if k in ("name", "repeat", "cell", "machine")})
    lines[-1]["error"] = "NotRunning: nothing came"
    text = " ".join(table(lines).split())
    assert "q12 realtime clonos 150 (141..160)" in text and "q12 realtime none 100 or more" in text
    assert "NotRunning: nothing came" in text
    made = page(lines)
    assert made.count("opacity: 0.85") == 2, "a bar for each side"
    assert "nothing came" in made and "150 (141..160)" in made
    assert "nothing came" not in table([*lines, line_of(failed)])
    assert "busy" not in made
    lines[0]["machine"]["load"] = 9.0
    assert "load 0.5 to 9.0 after runs, busy with other things too" in page(lines)


def test_figures_are_written_into_a_readme(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.add(cell(), 0, figures(), steady())
    native = figures(judgement={"lost": 7, "repeated": 0, "contradicted": 0}, output_bytes=None)
    results.add(cell(protection=Protection.NONE), 0, native, steady())
    results.add(cell(protection=Protection.HOT), 0, figures(kept_pace=False), steady())
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        assert main(["bench", "report", "--out", str(tmp_path), "--readme", str(readme)]) == 0
    text = readme.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| |") and text.endswith(f"{END}\nafter\n") and "old" not in text
    assert (
        "| **7 lost**; silent 200 ms | **1 repeated**, **2 contradicted**; silent 200 ms | **1 repeated**"
        in text
    )
    assert "**2 contradicted**; did not keep pace |\n" in text
    readme.write_text("nothing")
    assert main(["bench", "report", "--out", str(tmp_path), "--readme", str(readme)]) == 1

"""Traces, shrinking, pictures and the command."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from planted import PLANTED

from clonos.cli import main
from clonos.sim import command
from clonos.sim.draw import LEGEND, TAKEN, draw
from clonos.sim.plan import draw_plan
from clonos.sim.run import run
from clonos.sim.shrink import shrink

SVG = "{http://www.w3.org/2000/svg}"


def test_same_seed_gives_the_same_trace_in_any_process(root: Path) -> None:
    def trace(hash_seed: str) -> bytes:
        command = [sys.executable, "-m", "clonos.cli", "simulate", "--seed", "7", "--seeds", "12", "--trace"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}
        return subprocess.run(
            command, cwd=root, env=environment, capture_output=True, timeout=240, check=True
        ).stdout

    first = trace("1")
    assert len(first.splitlines()) > 1000
    assert trace("2") == first


def written(screen: int) -> Iterator[str]:
    """What was written to a terminal that is closed."""
    with contextlib.suppress(OSError):  # as a terminal says that it is closed
        while data := os.read(screen, 1 << 16):
            yield data.decode()


def test_a_terminal_is_shown_how_far_it_is(root: Path) -> None:
    """And nothing else is: the bar is no part of what a file or another program gets."""
    command = [sys.executable, "-m", "clonos.cli", "simulate", "--seeds", "4"]
    screen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    try:
        done = subprocess.run(
            command, cwd=root, stdout=subprocess.PIPE, stderr=terminal, timeout=240, check=True
        )
        os.close(terminal)
        assert re.search(r"100%.* 4/4 ", "".join(written(screen)))
    finally:
        os.close(screen)
    quiet = subprocess.run(command, cwd=root, capture_output=True, timeout=240, check=True)
    assert (quiet.stdout, quiet.stderr) == (done.stdout, b"")


def test_tracing_changes_nothing() -> None:
    for seed in range(5):
        quiet, told = run(draw_plan(seed)), run(draw_plan(seed), tracing=True)
        assert (quiet.outcome, quiet.events, quiet.struck) == (told.outcome, told.events, told.struck)
        assert told.trace and not quiet.trace


def test_a_plan_is_drawn_from_its_seed_alone() -> None:
    assert draw_plan(3) == draw_plan(3) != draw_plan(4)


def test_a_trace_says_what_happened_when_and_where() -> None:
    seed = next(seed for seed in range(50) if run(draw_plan(seed)).struck)
    trace = run(draw_plan(seed), tracing=True).trace
    for word in (
        "generation 1",
        "takes bundle 1:",
        "saves log",
        "(ORDER",
        "emits row",
        "shows",
        "commits epoch 0",
        "***",
    ):
        assert word in trace, word


def test_a_failing_run_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = PLANTED["rows_passed_on_are_not_suppressed"]
    bug.plant(monkeypatch)
    failing = next(plan for seed in range(60) if not run(plan := bug.plan(draw_plan(seed))).right)
    before, small = run(failing), shrink(failing)
    assert before.violation is not None and small.violation is not None
    assert small.violation.invariant == before.violation.invariant
    assert len(small.struck) <= 2 <= len(before.struck)
    assert small.plan.records < failing.records
    again = run(small.plan)
    assert str(again.violation) == str(small.violation)


def test_what_is_right_is_not_shrunk() -> None:
    assert shrink(draw_plan(0)).plan == draw_plan(0)


def test_a_drawing_shows_instances_records_determinants_and_faults() -> None:
    seed = next(seed for seed in range(50) if len(run(draw_plan(seed)).struck) >= 3)
    plan = draw_plan(seed)
    text = draw(plan)
    assert draw(plan) == text
    picture = ElementTree.fromstring(text)
    texts = [element.text or "" for element in picture.iter(f"{SVG}text")]
    for node in (*plan.dataflow.operators, *plan.dataflow.sinks):
        assert any(text.startswith(f"{node.name} / ") for text in texts)
    for colour in (*dict(LEGEND), TAKEN):
        assert text.count(colour) > 1, "besides the legend"


def test_command_runs_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "3", "--seeds", "4"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("4 runs, ")
    assert "nothing wrong" in said


def test_command_goes_on_until_enough_faults_have_struck(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "BATCH", 5)
    assert main(["simulate", "--faults", "50"]) == 0
    runs, faults = map(int, re.findall(r"(\d+) (?:runs|faults)", capsys.readouterr().out)[:2])
    assert runs > 5 and runs % 5 == 0 and faults >= 50


def test_command_shows_one_seed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["simulate", "--seed", "1", "--trace", "--plan", "--draw", str(tmp_path / "run.svg")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Plan(seed=1,")
    assert "seed 1: exact" in said
    assert (tmp_path / "run.svg").read_text().startswith("<svg")


def test_command_shrinks_what_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    PLANTED["nothing_is_stamped"].plant(monkeypatch)
    assert main(["simulate", "--shrink"]) == 1
    assert "smaller: seed 0" in capsys.readouterr().out

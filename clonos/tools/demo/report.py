"""What the demo says: progress while it runs, a table when it is done, JSON lines on demand."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from clonos.tools.demo.harness import Case, Outcome, SystemRun
from clonos.tools.demo.verdicts import Result

__all__ = ["Progress", "json_line", "table"]

COLUMNS = (
    *("scenario", "mode", "system", "inputs", "outputs", "missing", "repeated", "contradicted"),
    *("restarts", "outage_ms", "result"),
)
_QUIET_STEP_S = 5.0  # between two lines where the output is no terminal


class Progress:
    """One line that follows the run: rewritten in place on a terminal, now and then a new one elsewhere."""

    def __init__(
        self, case: Case, number: int, cases: int, attempt: int = 1, out: TextIO = sys.stderr
    ) -> None:
        self._out = out
        self._live = out.isatty()
        self._title = f"[{number}/{cases}] {case.scenario.name}, {case.mode}"
        self._total = len(case.events)
        self._began = time.monotonic()
        self._told = 0.0
        self._width = 0
        self._strikes: dict[str, int] = {}
        again = f" (a strike did not come about: attempt {attempt})" if attempt > 1 else ""
        print(f"{self._title}: {case.scenario.says}{again}", file=out, flush=True)

    def __call__(self, phase: str, runs: list[SystemRun], appended: int) -> None:
        for run in runs:
            self._say_strikes(run)
        now = time.monotonic()
        if self._live or now - self._told >= _QUIET_STEP_S or phase == "done":
            self._told = now
            self._line(self._describe(phase, runs, appended), final=phase == "done" or not self._live)

    def _describe(self, phase: str, runs: list[SystemRun], appended: int) -> str:
        parts = [f"  {time.monotonic() - self._began:5.1f} s  {phase:<10} {appended:>6,}/{self._total:,} in"]
        for run in runs:
            shown = len(run.watch.first_seen)
            state = f"{shown:>6,} out, {run.watch.wrong:,} wrong"
            if run.restarts:
                state += f", {run.restarts} restarts"
            parts.append(f"{run.system}: {state}")
        return "  |  ".join(parts)

    def _say_strikes(self, run: SystemRun) -> None:
        for _, what in run.strikes[self._strikes.get(run.system, 0) :]:
            self._line(f"  {time.monotonic() - self._began:5.1f} s  struck {run.system}: {what}", final=True)
        self._strikes[run.system] = len(run.strikes)

    def _line(self, text: str, *, final: bool) -> None:
        lead = "\r" if self._live else ""
        self._out.write(lead + text.ljust(self._width if self._live else 0) + ("\n" if final else ""))
        self._out.flush()
        self._width = 0 if final else len(text)


def _values(outcome: Outcome) -> dict[str, object]:
    verdict = outcome.verdict
    return {
        "scenario": outcome.scenario,
        "mode": outcome.mode,
        "system": outcome.system,
        "inputs": verdict.inputs,
        "outputs": verdict.outputs,
        "missing": verdict.missing,
        "repeated": verdict.repeated,
        "contradicted": verdict.contradicted,
        "restarts": outcome.restarts,
        "outage_ms": outcome.outage_ms,
        "result": outcome.result.value,
    }


def json_line(outcome: Outcome) -> str:
    """One outcome as one JSON object."""
    return json.dumps(_values(outcome))


def table(outcomes: Sequence[Outcome]) -> str:
    """All outcomes, and below it what was run again, what was found wrong with the causal ones, or failed."""
    rows = [COLUMNS, *(tuple(_cell(value) for value in _values(outcome).values()) for outcome in outcomes)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = []
    for number, row in enumerate(rows):
        cells = [c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
        if number == 0:
            lines.append("  ".join("-" * width for width in widths))
    lines += _run_again(outcomes)
    for outcome in outcomes:
        if outcome.failure or (outcome.system == "clonos" and not outcome.exact):
            lines += _problems(outcome)
    return "\n".join(lines)


def _run_again(outcomes: Sequence[Outcome]) -> list[str]:
    """How much was run again in real time: a micro-batch begins where the last committed one ended, on either side."""
    lines = [
        f"  {one.scenario:<8}  native: all   clonos: {one.again.share:.0%}, the rest is in snapshots"
        for one in outcomes
        if one.mode == "realtime" and one.again is not None
    ]
    head = ["", "of what operators had done in an epoch before the query failed, was run again:"]
    return [*head, *lines] if lines else []


def _problems(outcome: Outcome) -> list[str]:
    side = "causal" if outcome.system == "clonos" else "native"
    said = "shows nothing" if outcome.result is Result.INCONCLUSIVE else "was not exact"
    lines = ["", f"{outcome.scenario}, {outcome.mode}: the {side} run {said}"]
    if outcome.failure:
        lines.append(f"  {outcome.failure}")
    if outcome.system == "clonos" and len(outcome.strikes) < outcome.planned_strikes:
        lines.append(f"  only {len(outcome.strikes)} of {outcome.planned_strikes} strikes came about")
    lines += [f"  {problem}" for problem in outcome.verdict.first_problems]
    return lines


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)

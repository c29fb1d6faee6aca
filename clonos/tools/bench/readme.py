"""The figures that matter, as a Markdown table between two markers of a README. Only what was measured stands in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clonos.errors import ConfigurationError
from clonos.tools.bench.findings import (
    SIDES,
    grouped,
    judged,
    kept_pace,
    machines,
    message_overhead,
    recovered,
    said,
    sustainable,
    title,
    wrong,
)
from clonos.tools.bench.plots import NAMES
from clonos.tools.bench.results import Line

BEGIN, END = "<!-- clonos bench: begin -->", "<!-- clonos bench: end -->"


def written_into(path: Path, lines: Sequence[Line]) -> None:
    """Replaces what stands between the markers. Raises ConfigurationError where they are not."""
    text = path.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ConfigurationError(f"{path} has no place for figures", hint=f"Put {BEGIN} and {END} into it")
    path.write_text(f"{head}{BEGIN}\n{markdown(lines)}{END}{tail}")


def markdown(lines: Sequence[Line]) -> str:
    """The table, and under it on what it was measured."""
    runs = judged(lines)
    sides_run = {line["cell"]["protection"] for line in lines}
    shown = [side for side in SIDES if side in sides_run]
    rows = [f"| | {' | '.join(NAMES[side] for side in shown)} |", f"|{' --- |' * (len(shown) + 1)}"]

    def row(name: str, values: dict[str, str]) -> None:
        rows.append(f"| {name} | {' | '.join(values.get(side, '-') for side in shown)} |")

    for group in sorted(grouped(runs, "protection"), key=lambda group: group[0]["cell"]["failure"] == "none"):
        sides = {side[0]["cell"]["protection"]: side for side in grouped(group)}
        if group[0]["cell"]["failure"] != "none":
            row(title(group[0]), {name: _struck(side) for name, side in sides.items()})
        elif group[0]["cell"]["mode"] == "realtime":
            row(f"{title(group[0])}: p50 / p99", {name: _latency(side) for name, side in sides.items()})
    for comparison in sustainable(lines):
        cell = comparison[0].cell
        mode = "real time" if cell["mode"] == "realtime" else "micro-batch"
        values = {side.cell["protection"]: side.text for side in comparison}
        row(f"{cell['query']}, {mode}: sustained events/s", values)
    carried = {
        side: said(message_overhead([run for run in runs if run["cell"]["protection"] == side]), 3)
        for side in SIDES
        if side != "none"
    }
    row("bytes of determinants over bytes of rows, in all runs", carried)
    seconds = sorted({run["cell"]["seconds"] for run in runs})
    lasting = " or ".join(map(str, seconds))
    return "\n".join([*rows, "", f"Runs of {lasting} s. {machines(lines)}.", ""])


def _latency(runs: Sequence[Line]) -> str:
    if kept_pace(runs) is False:
        return "did not keep pace"
    return f"{said((run['p50_ms'] for run in runs), 0)} / {said((run['p99_ms'] for run in runs), 0)} ms"


def _struck(runs: Sequence[Line]) -> str:
    """What became of the output, and for how long there was none, which says something where it kept pace before."""
    bad = [f"**{count:,} {name}**" for name, count in wrong(runs).items() if count]
    verdict = ", ".join(bad) if bad else "exact"
    if kept_pace(runs) is False:
        return f"{verdict}; did not keep pace"
    silent = [seconds and 1000 * seconds for seconds in recovered(runs, "silent_s")]
    return f"{verdict}; silent {said(silent, 0)} ms"

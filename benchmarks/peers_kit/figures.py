"""What one run says in figures, and what several say together.

*Throughput* is that of a burst: so many records appended at once to a job that runs, over the time until the last of
them is visible. Latency, recovery and silence are as `clonos.tools.bench.metrics` defines them, of each input's first
row.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clonos.testing.ledger import judge
from clonos.tools.bench.metrics import Samples, kept_pace, recovery

Rows = Sequence[tuple[object, ...]]


@dataclass(frozen=True)
class Figures:
    """Of one run. None: not measured, or there was nothing to measure it by."""

    throughput: float | None
    p50_ms: float | None
    p99_ms: float | None
    recovery_s: float | None
    silent_s: float | None
    missing: int
    repeated: int
    contradicted: int
    broken: int
    kept_pace: bool


@dataclass(frozen=True)
class Course:
    """When what was done in a run, seconds since 1970. The ids of the burst begin at `warm`, live ones at `live`."""

    warm: int
    live: int
    burst_at: float
    sent: Sequence[float]
    begin: float
    end: float
    strike: float | None


def first_seen(rows: Rows, seen: Sequence[float]) -> dict[int, float]:
    """When each input first had a row, in that order."""
    found: dict[int, float] = {}
    for row, moment in zip(rows, seen):
        found.setdefault(int(str(row[2])), moment)
    return found


def throughput(first: dict[int, float], course: Course) -> float | None:
    moments = [moment for number, moment in first.items() if course.warm <= number < course.live]
    count = course.live - course.warm
    return count / (max(moments) - course.burst_at) if count and len(moments) == count else None


def samples(first: dict[int, float], course: Course) -> Samples:
    """Of the steady input."""
    live = [(number - course.live, moment) for number, moment in first.items() if number >= course.live]
    return Samples(
        np.array([moment for _, moment in live]),
        np.array([(moment - course.sent[place]) * 1000 for place, moment in live]),
    )


def figures(rows: Rows, seen: Sequence[float], course: Course) -> Figures:
    """Of a run that showed these rows at these moments."""
    first, strike = first_seen(rows, seen), course.strike
    live = samples(first, course)
    calm_until = course.end if strike is None else strike
    calm = live.between(course.begin, calm_until)
    after = None if strike is None else recovery(live, course.begin, [strike])
    in_pace = kept_pace(live, course.begin, calm_until)
    verdict = judge(rows, map(str, range(course.live + len(course.sent))))
    return Figures(
        throughput=throughput(first, course),
        p50_ms=calm.quantile(0.5),
        p99_ms=calm.quantile(0.99),
        recovery_s=after.calm_s if after is not None and in_pace else None,
        silent_s=after and after.silent_s,
        missing=verdict.missing,
        repeated=verdict.repeated,
        contradicted=verdict.contradicted,
        broken=verdict.broken_chain,
        kept_pace=in_pace,
    )


COLUMNS = {
    "throughput": ("burst, rows/s", "{:,.0f}"),
    "p50_ms": ("visible after, ms: p50", "{:,.0f}"),
    "p99_ms": ("p99", "{:,.0f}"),
    "recovery_s": ("recovery, s", "{:.2f}"),
    "silent_s": ("silent, s", "{:.2f}"),
    "missing": ("missing", "{:,.0f}"),
    "repeated": ("repeated", "{:,.0f}"),
    "contradicted": ("contradicted", "{:,.0f}"),
    "broken": ("broken chains", "{:,.0f}"),
}


def spread(values: Sequence[float | None], shape: str) -> str:
    """The median, and from where to where."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return "-"
    middle, least, most = (shape.format(v) for v in (statistics.median(known), known[0], known[-1]))
    text = middle if least == most else f"{middle} [{least} .. {most}]"
    return text if len(known) == len(values) else f"{text}, {len(known)} of {len(values)} runs"


def line(name: str, runs: Sequence[Figures]) -> str:
    """A line of the table, in Markdown."""
    cells = [spread([getattr(run, column) for run in runs], shape) for column, (_, shape) in COLUMNS.items()]
    behind = sum(not run.kept_pace for run in runs)
    note = f" (did not keep pace in {behind} of {len(runs)})" if behind else ""
    return f"| {name}{note} | {' | '.join(cells)} |"


def head() -> str:
    titles = ["", *(title for title, _ in COLUMNS.values())]
    return f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}"

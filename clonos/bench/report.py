"""What has been measured, for people: a table for the terminal, and one HTML page that needs nothing beside it."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

Line: TypeAlias = dict[str, Any]  # one of the results

_WRONG = ("lost", "repeated", "contradicted")
COLUMNS = (
    *("kept pace", "p50 ms", "p99 ms", "calm s", "silent s", "affected"),
    *("restart ms", "overhead", *_WRONG, "restarts"),
)
_COLOURS = {"none": "#c0392b", "clonos": "#1f618d", "hot": "#1e8449"}
_WIDTH, _HEIGHT, _MARGIN = 720, 260, 50


def by_cell(lines: Iterable[Line]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line["name"], []).append(line)
    return found


def _values(runs: Sequence[Line]) -> list[str]:
    """What the columns say of a cell."""
    recoveries = [run["recovery"] or {} for run in runs]
    recorded = [run for run in runs if run["log_bytes"] is not None]
    return [
        "yes" if all(run["kept_pace"] for run in runs) else "no",
        _spread([run["p50_ms"] for run in runs], 1),
        _spread([run["p99_ms"] for run in runs], 0),
        _spread([one.get("calm_s") for one in recoveries], 2),
        _spread([one.get("silent_s") for one in recoveries], 2),
        _spread([one.get("affected") for one in recoveries], 3),
        _spread([ms for run in runs for ms in run["restart_ms"]], 0),
        _spread([run["log_bytes"] / run["input_bytes"] for run in recorded], 4),
        *(str(sum(run["judgement"][name] for run in runs)) for name in _WRONG),
        str(sum(len(run["restarts"]) for run in runs)),
    ]


def table(lines: Iterable[Line]) -> str:
    """A row per cell: the median over its repeats with the extremes; of what is wrong, the sum."""
    rows = [["cell", "runs", *COLUMNS]]
    rows += [[name, str(len(runs)), *_values(runs)] for name, runs in by_cell(lines).items()]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(f"{text:>{width}}" for text, width in zip(row, widths)) for row in rows)


def page(lines: Sequence[Line]) -> str:
    """The page: on what it ran, the table, and latency around the failure for cells that differ in protection alone."""
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in ("cell", "runs", *COLUMNS))
    body = ""
    for name, runs in by_cell(lines).items():
        cells = (name, str(len(runs)), *_values(runs))
        body += "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in cells) + "</tr>\n"
    machines = sorted(
        {", ".join(f"{k} {v}" for k, v in line["machine"].items() if k != "load") for line in lines}
    )
    loads = [line["machine"]["load"] for line in lines]
    ran = html.escape("; ".join(machines)) + (
        f"; load {min(loads)} to {max(loads)} afterwards" if loads else ""
    )
    return _PAGE.format(ran=ran, heads=heads, body=body, plots="\n".join(_plots(lines)))


def _plots(lines: Sequence[Line]) -> Iterable[str]:
    groups: dict[str, list[Line]] = {}
    for line in lines:
        cell = line["cell"]
        struck = "" if cell["failure"] == "none" else f", {cell['failure']} killed"
        groups.setdefault(f"{cell['query']}, {cell['mode']}, {cell['rate']}/s{struck}", []).append(line)
    for name, members in groups.items():
        yield f"<h2>{html.escape(name)}</h2>\n{_plot(members)}"


def _plot(lines: Sequence[Line]) -> str:
    """Latency by second: p50 solid, p99 thin; the failure is at 0. Logarithmic."""
    points = [(line, _points(line, key), key) for line in lines for key in ("p50_ms", "p99_ms")]
    every = [point for _, found, _ in points for point in found]
    if not every:
        return "<p>no output</p>"
    left, right = min(x for x, _ in every), max(x for x, _ in every) + 1e-9
    low = math.floor(math.log10(max(0.1, min(y for _, y in every))))
    high = max(low + 1, math.ceil(math.log10(max(y for _, y in every) + 1e-9)))

    def place(x: float, y: float) -> tuple[float, float]:
        across = _MARGIN + (x - left) / (right - left) * (_WIDTH - 2 * _MARGIN)
        up = (math.log10(max(y, 0.1)) - low) / (high - low)
        return across, _HEIGHT - _MARGIN - up * (_HEIGHT - 2 * _MARGIN)

    parts = []
    for power in range(low, high + 1):
        _, y = place(left, 10.0**power)
        parts.append(
            f'<line x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{_MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g} ms</text>'
        )
    if any(line["strike"] is not None for line in lines) and left <= 0 <= right:
        x, _ = place(0, 1)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_MARGIN}" y2="{_HEIGHT - _MARGIN}" stroke="#333" '
            f'stroke-dasharray="4"/><text x="{x + 4:.1f}" y="{_MARGIN - 4}">killed</text>'
        )
    for line, found, key in points:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in found))
        thin = 2 if key == "p50_ms" else 0.8
        colour = _COLOURS[line["cell"]["protection"]]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{thin}"/>')
    for number, protection in enumerate(dict.fromkeys(line["cell"]["protection"] for line in lines)):
        parts.append(
            f'<text x="{_MARGIN + 90 * number}" y="{_HEIGHT - 12}" fill="{_COLOURS[protection]}">{protection}</text>'
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img">{"".join(parts)}</svg>'


def _points(line: Line, key: str) -> list[tuple[float, float]]:
    strike = line["strike"] - line["began"] if line["strike"] is not None else 0.0
    return [(s["second"] - strike, s[key]) for s in line["seconds"] if s[key] is not None]


def _spread(values: Iterable[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    middle = f"{statistics.median(known):,.{digits}f}"
    return middle if len(known) == 1 else f"{middle} ({min(known):,.{digits}f}..{max(known):,.{digits}f})"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Clonos for Spark: NexMark</title>
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 80em; color: #222 }}
table {{ border-collapse: collapse }} td, th {{ padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd }}
td:first-child, th:first-child {{ text-align: left }} svg text {{ font-size: 11px }}
</style></head><body>
<h1>NexMark, natively and causally</h1>
<p>{ran}</p>
<p>Protection <b>none</b> is the stock Spark job. Medians over the repeats, extremes in brackets; rows lost, repeated
and contradicted are summed. <b>calm</b>: from the kill to the last sample over 1.1 times the p99 before it.
<b>silent</b>: the longest time without output after it. <b>affected</b>: the share of samples over that limit.
<b>restart</b>: from the death of a replica until its instance was live again. <b>overhead</b>: bytes of determinants
recorded over bytes of input. Where output did not keep pace with input, latency says how long the run was, and
recovery says nothing.</p>
<table><thead><tr>{heads}</tr></thead><tbody>
{body}</tbody></table>
{plots}
<p>Latency by second of output, from the append of the input to the visibility of the row: p50 thick, p99 thin.</p>
</body></html>
"""

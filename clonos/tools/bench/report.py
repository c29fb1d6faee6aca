"""What has been measured, for people: a table for the terminal, and one HTML page that needs nothing beside it."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence

from clonos.tools.bench import plots
from clonos.tools.bench.findings import (
    WRONG,
    grouped,
    judged,
    kept_pace,
    machines,
    message_overhead,
    ratio,
    recovered,
    said,
    sustainable,
    title,
    wrong,
)
from clonos.tools.bench.results import Line

Column = tuple[str, Callable[[Sequence[Line]], str]]

_KEPT = {True: "yes", False: "no", None: "-"}

_PACE: tuple[Column, ...] = (
    ("runs", lambda runs: str(len(runs))),
    ("kept pace", lambda runs: _KEPT[kept_pace(runs)]),
    ("p50 ms", lambda runs: said((run["p50_ms"] for run in runs), 1)),
    ("p99 ms", lambda runs: said((run["p99_ms"] for run in runs), 0)),
)
_RECOVERY: tuple[Column, ...] = (
    ("calm s", lambda runs: said(recovered(runs, "calm_s"), 2)),
    ("silent s", lambda runs: said(recovered(runs, "silent_s"), 2)),
    ("affected", lambda runs: said(recovered(runs, "affected"), 3)),
    ("restart ms", lambda runs: said((ms for run in runs for ms in run["restart_ms"]), 0)),
    ("done again", lambda runs: said((run.get("done_again") for run in runs), 0)),
)
_OUTPUT: tuple[Column, ...] = (
    *((name, lambda runs, name=name: f"{wrong(runs)[name]:,}") for name in WRONG),
    ("struck", lambda runs: str(sum(len(run["strikes"]) for run in runs))),
    ("restarts", lambda runs: str(sum(len(run["restarts"]) for run in runs))),
)
_COST: tuple[Column, ...] = (
    ("recorded", lambda runs: said(ratio(runs, "log_bytes", "input_bytes"), 4)),
    ("on the wire", lambda runs: said(message_overhead(runs), 4)),
    ("snapshot ms", lambda runs: said((x and 1000 * x for x in ratio(runs, "snapshot_s", "snapshots")), 1)),
    ("snapshots", lambda runs: str(round(sum(run["snapshots"] for run in runs)))),
)
COLUMNS = (*_PACE, *_RECOVERY, *_OUTPUT, *_COST)


def table(lines: Iterable[Line]) -> str:
    """A row per cell: the median over its repeats with the extremes; of what is wrong, the sum. Then what searches have
    found, and what could not be run."""
    every = list(lines)
    rows = [["cell", *(name for name, _ in COLUMNS)]]
    rows += [[runs[0]["name"], *(value(runs) for _, value in COLUMNS)] for runs in grouped(judged(every))]
    found = [_aligned(rows)] if len(rows) > 1 else []
    held = [
        (" ".join(str(side.cell[name]) for name in ("query", "mode", "protection")), side.text)
        for group in sustainable(every)
        for side in group
    ]
    if held:
        found.append(_aligned([["sustainable, events/s", ""], *map(list, held)]))
    found += [f"failed: {line['name']}: {line['error']}" for line in _failures(every)]
    return "\n".join(found) or "no results yet"


def _failures(lines: Sequence[Line]) -> list[Line]:
    """Runs that could not be, and were not made good later."""
    good = {(line["name"], line["repeat"]) for line in lines if "error" not in line}
    return [line for line in lines if "error" in line and (line["name"], line["repeat"]) not in good]


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(f"{text:>{width}}" for text, width in zip(row, widths)) for row in rows)


def page(lines: Sequence[Line]) -> str:
    """The page."""
    runs = judged(lines)
    comparisons = grouped(runs, "protection")
    struck = [group for group in comparisons if group[0]["cell"]["failure"] != "none"]
    calm = [group for group in comparisons if group[0]["cell"]["failure"] == "none"]
    held = sustainable(lines)
    parts = [f"<p class=ran>{html.escape(machines(lines)) or 'Nothing has been run yet.'}</p>"]
    if held:
        parts += ["<h2>Sustainable throughput</h2>", _HELD, plots.bars(held)]
    if struck:
        parts += ["<h2>Failures</h2>", _STRUCK, _table(struck, (_PACE[0], *_OUTPUT, *_PACE[1:], *_RECOVERY))]
        parts.append('<div class="plots">')
        for group in struck:
            parts.append(f"<figure><figcaption>{html.escape(title(group[0]))}</figcaption>")
            parts.append(f"{plots.latency(group)}</figure>")
        parts += ["</div>", _PLOTS]
    if calm:
        parts += ["<h2>Undisturbed</h2>", _table(calm, (_PACE[0], *_OUTPUT[: len(WRONG)], *_PACE[1:]))]
    if comparisons:
        parts += ["<h2>What it costs in bytes and snapshots</h2>", _COSTS, _table(comparisons, _COST)]
    parts += [
        f"<p>Failed: {html.escape(line['name'])}: {html.escape(line['error'])}</p>"
        for line in _failures(lines)
    ]
    return _PAGE.format(body="\n".join(parts))


def _table(comparisons: Sequence[Sequence[Line]], columns: Sequence[Column]) -> str:
    heads = "".join(f"<th>{html.escape(name)}</th>" for name, _ in columns)
    rows = "\n".join(row for group in comparisons for row in _rows(group, columns))
    head = f"<thead><tr><th>run</th><th></th>{heads}</tr></thead>"
    return f'<div class="wide"><table>{head}<tbody>\n{rows}</tbody></table></div>'


def _rows(group: Sequence[Line], columns: Sequence[Column]) -> Iterator[str]:
    sides = grouped(group)
    for number, runs in enumerate(sides):
        protection = runs[0]["cell"]["protection"]
        head = f'<td rowspan="{len(sides)}">{html.escape(title(runs[0]))}</td>' if number == 0 else ""
        side = f'<td class="side" style="color: {plots.COLOURS[protection]}">{plots.NAMES[protection]}</td>'
        cells = "".join(_cell(name, value(runs)) for name, value in columns)
        yield f"<tr{' class=first' if number == 0 else ''}>{head}{side}{cells}</tr>"


def _cell(name: str, value: str) -> str:
    bad = (name in WRONG and value != "0") or (name == "kept pace" and value == "no")
    middle, bracket, rest = value.partition(" (")
    small = f" <small>({html.escape(rest)}</small>" if bracket else ""
    return f"<td{' class=bad' if bad else ''}>{html.escape(middle)}{small}</td>"


_HELD = """<p>The highest rate, in events per second, that a side held: output kept within a twentieth of
the input's pace, and p99 did not diverge. Bars are medians over the repeats; whiskers reach to the lowest
rate that was not held.</p>"""
_STRUCK = """<p>Medians over the repeats, extremes in brackets; rows lost, repeated and contradicted are
summed. <b>calm</b>: from the last failure to the last sample over 1.1 times the p99 before the first.
<b>silent</b>: the longest time without output that ended after the first failure. <b>affected</b>: the
share of samples since then over that limit. <b>restart</b>: until an instance was live again, by its own
account. <b>done again</b>: calls of the first operator's function beyond one for each record. <b>struck</b>:
failures; <b>restarts</b>: of the Spark query. Where output did not <b>keep pace</b> with input, latency says how
long the run was, and recovery says nothing.</p>"""
_PLOTS = """<p>Latency by second of output, from the append of the last input record to the visibility of
the row: p50 thick, p99 thin, medians over the repeats. Where a line is broken nothing came out in that
second.</p>"""
_COSTS = """<p><b>recorded</b>: bytes of determinants in the instances' logs over bytes of input. <b>on the
wire</b>: bytes of determinants on the rows that operators handed on, over the bytes of these rows without
them. <b>snapshot</b>: until it was durable; natively the commit of a state store, which every batch waits
for; Clonos takes most of them in the background.</p>"""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Clonos for Spark: NexMark</title>
<style>
body {{ font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 96em; padding: 0 2em; color: #222 }}
h1 {{ font-size: 1.7em; margin-bottom: .2em }} h2 {{ margin-top: 2em; font-size: 1.25em }}
p {{ max-width: 62em }} .wide {{ overflow-x: auto }} .ran {{ color: #666 }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1em 0 }}
td, th {{ padding: .25em .5em; text-align: right; white-space: nowrap }}
th {{ border-bottom: 2px solid #bbb; font-weight: 600 }} tr.first td {{ border-top: 1px solid #ddd }}
td:first-child[rowspan], th:first-child {{ text-align: left; vertical-align: top; white-space: normal }}
th:first-child {{ min-width: 12em }}
.side {{ text-align: left; font-weight: 600 }} small {{ color: #888 }} .bad {{ color: #c0392b; font-weight: 600 }}
.plots {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(560px, 1fr)); gap: 1em 2em }}
figure {{ margin: 0 }} figcaption {{ font-weight: 600; margin: .5em 0 }}
svg {{ max-width: 100%; height: auto }} svg text {{ font-size: 12px; fill: #333 }}
</style></head><body>
<h1>NexMark, on stock Spark and on Clonos</h1>
{body}
</body></html>
"""

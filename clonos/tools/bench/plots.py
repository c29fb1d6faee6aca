"""Pictures of the report, as SVG: latency around failures, and bars of throughput."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from clonos import figures
from clonos.tools.bench.cell import Protection
from clonos.tools.bench.findings import Held, grouped
from clonos.tools.bench.results import Line

_DRAWN = {
    Protection.NONE: ("stock Spark", "#c0392b"),
    Protection.CLONOS: ("Clonos", "#1f618d"),
    Protection.PASSIVE: ("with passive standbys", "#b9770e"),
    Protection.HOT: ("with hot standbys", "#1e8449"),
    Protection.EAGER: ("eager checkpoints", "#6c3483"),
    Protection.EVENT_LOG: ("logs of events", "#a04000"),
    Protection.COORDINATED: ("coordinated checkpoints", "#117a65"),
    Protection.UNCOORDINATED: ("uncoordinated checkpoints", "#7b7d7d"),
    Protection.BATCH: ("epochs done again", "#b03a8c"),
}
NAMES = {side.value: name for side, (name, _) in _DRAWN.items()}
COLOURS = {side.value: colour for side, (_, colour) in _DRAWN.items()}
_WIDTH, _HEIGHT = 720, 300
_BAR, _GAP = 24, 20
_GREY = "#333333"

Point: TypeAlias = tuple[float, float]


def latency(lines: Sequence[Line]) -> str:
    """Latency by second, of sides that differ in protection alone: the median over the repeats of the p50, thick,
    and of the p99, thin. The first failure is at 0; where the line is broken nothing came out."""
    series = [
        (line[0]["cell"]["protection"], key, _seconds(line, key))
        for line in grouped(lines)
        for key in ("p50_ms", "p99_ms")
    ]
    values = [ms for _, _, points in series for _, ms in points]
    if not values:
        return "<p>No output in the time measured.</p>"
    drawn = figures.figure(_WIDTH, _HEIGHT)
    axes = drawn.add_subplot()
    for protection, key, points in series:
        label = NAMES[protection] if key == "p50_ms" else None
        width = 2.2 if key == "p50_ms" else 1
        # A second without output breaks the line; a second between two such is a dot.
        for number, piece in enumerate(_unbroken(points)):
            axes.plot(
                *zip(*piece),
                color=COLOURS[protection],
                linewidth=width,
                marker="o" if len(piece) == 1 else None,
                markersize=4,
                label=label if number == 0 else None,
            )
    zero = _first_strike(lines[0])
    seconds = [lines[0]["cell"]["seconds"], *(one["second"] + 1 for line in lines for one in line["seconds"])]
    axes.set_xlim(-zero, max(seconds) - zero)
    axes.set_yscale("log")
    low = math.floor(math.log10(max(0.1, min(values))))
    axes.set_ylim(10.0**low, 10.0 ** max(low + 1, math.ceil(math.log10(max(values)))))
    axes.yaxis.set_minor_formatter("")
    axes.yaxis.set_major_formatter(lambda ms, _: f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms")
    axes.xaxis.set_major_formatter(lambda second, _: f"{second:g} s")
    _strikes(axes, lines[0])
    _plain(axes)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=len(NAMES), frameon=False)
    return figures.svg(drawn)


def bars(comparisons: Sequence[Sequence[Held]]) -> str:
    """Sustainable throughput: a bar to the median over the repeats; the whisker goes from the lowest that was sustained
    to the lowest that was not."""
    if not any(side.rate for group in comparisons for side in group):
        return "<p>Nothing was sustained.</p>"
    sides = sum(map(len, comparisons))
    drawn = figures.figure(_WIDTH, _BAR * sides + _GAP * len(comparisons) + 60)
    axes = drawn.add_subplot()
    at, names = 0.0, []
    for group in comparisons:
        cell = group[0].cell
        names.append((at, f"{cell['query']}, {'real time' if cell['mode'] == 'realtime' else 'micro-batch'}"))
        for side in group:
            _bar(axes, at, side)
            at += 1
        at += _GAP / _BAR
    axes.set_yticks(*zip(*names), fontweight="bold")
    axes.set_ylim(at, -1)
    axes.margins(x=0.35)
    axes.set_xlim(left=0)
    _plain(axes)
    return figures.svg(drawn)


def _bar(axes: Any, at: float, side: Held) -> None:
    protection, rate = side.cell["protection"], side.rate
    end = 0.0
    if rate is not None:
        high = side.below or rate.high
        axes.barh(at, rate.middle, color=COLOURS[protection], alpha=0.85)
        axes.plot([rate.low, high], [at, at], color=_GREY, linewidth=1, marker="|", markevery=[1])
        end = max(rate.middle, high)
    axes.annotate(
        f"{side.text} {NAMES[protection]}", (end, at), (6, 0), textcoords="offset points", va="center"
    )


def _first_strike(line: Line) -> float:
    return float(line["strikes"][0] - line["began"]) if line["strikes"] else 0.0


def _seconds(lines: Sequence[Line], key: str) -> list[Point]:
    """By second from the first failure, in the middle of the second; the median over the repeats."""
    found: dict[int, list[float]] = {}
    for line in lines:
        for second in line["seconds"]:
            if second[key] is not None:
                found.setdefault(second["second"], []).append(second[key])
    zero = _first_strike(lines[0])
    return [(second + 0.5 - zero, statistics.median(found[second])) for second in sorted(found)]


def _unbroken(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Pieces without a second missing."""
    piece: list[Point] = []
    for point in points:
        if piece and point[0] - piece[-1][0] > 1.5:
            yield piece
            piece = []
        piece.append(point)
    if piece:
        yield piece


def _strikes(axes: Any, line: Line) -> None:
    for moment in line["strikes"]:
        axes.axvline(moment - line["strikes"][0], color=_GREY, linestyle=(0, (3, 3)), linewidth=1)
    if line["strikes"]:
        what = "killed" if line["cell"]["failure"] == "replica" else "fails"
        axes.set_title(what, fontsize=9)


def _plain(axes: Any) -> None:
    axes.grid(axis="both", color="#e3e3e3")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)

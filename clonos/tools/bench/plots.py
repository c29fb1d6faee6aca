"""Pictures of the report, as SVG: latency around failures, and bars of throughput."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clonos.tools.bench.findings import SIDES, Held, grouped
from clonos.tools.bench.results import Line

COLOURS = dict(zip(SIDES, ("#c0392b", "#1f618d", "#b9770e", "#1e8449")))
NAMES = dict(zip(SIDES, ("stock Spark", "Clonos", "with passive standbys", "with hot standbys")))
_WIDTH, _HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 34, 58
_BAR, _GAP, _LABEL = 20, 16, 150
_FEW_TICKS = (1, 2, 5, 10, 20, 50, 100)

Point = tuple[float, float]


@dataclass(frozen=True)
class _Frame:
    """Where seconds and milliseconds lie in the picture; milliseconds on a logarithmic scale, in powers of ten."""

    first: float
    last: float
    low: int
    high: int

    def x(self, second: float) -> float:
        return _LEFT + (second - self.first) / (self.last - self.first) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, ms: float) -> float:
        up = (math.log10(max(ms, 0.1)) - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)


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
    cell = lines[0]["cell"]
    zero = _first_strike(lines[0])
    low = math.floor(math.log10(max(0.1, min(values))))
    high = max(low + 1, math.ceil(math.log10(max(values))))
    last = max(cell["seconds"], *(second["second"] + 1 for line in lines for second in line["seconds"]))
    frame = _Frame(-zero, last - zero, low, high)
    parts = [*_axes(frame), *_strikes(frame, lines[0]), *_legend([line[0] for line in grouped(lines)])]
    for protection, key, points in series:
        for piece in _unbroken(points):
            if len(piece) == 1:
                x, y = frame.x(piece[0][0]), frame.y(piece[0][1])
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{COLOURS[protection]}"/>')
                continue
            path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in piece)
            width = 2.2 if key == "p50_ms" else 1
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{COLOURS[protection]}" stroke-width="{width}"'
                ' stroke-linecap="round" stroke-linejoin="round"/>'
            )
    return _svg(_HEIGHT, parts)


def bars(comparisons: Sequence[Sequence[Held]]) -> str:
    """Sustainable throughput: a bar to the median over the repeats; the whisker goes from the lowest that was sustained
    to the lowest that was not."""
    most = max(
        (side.below or side.rate.high for group in comparisons for side in group if side.rate), default=0
    )
    if not most:
        return "<p>Nothing was sustained.</p>"
    parts, y = [], 8.0
    scale = (_WIDTH - _LABEL - 130) / most
    for group in comparisons:
        cell = group[0].cell
        name = f"{cell['query']}, {'real time' if cell['mode'] == 'realtime' else 'micro-batch'}"
        parts.append(_text(_LABEL - 8, y + 14, name, anchor="end", weight="600"))
        for side in group:
            parts += _bar(side, y, scale)
            y += _BAR + 4
        y += _GAP
    return _svg(y, parts)


def _bar(side: Held, y: float, scale: float) -> Iterator[str]:
    protection = side.cell["protection"]
    rate = side.rate
    end = float(_LABEL)
    if rate is not None:
        width = rate.middle * scale
        yield (
            f'<rect x="{_LABEL}" y="{y:.1f}" width="{width:.1f}" height="{_BAR}" fill="{COLOURS[protection]}" '
            'fill-opacity="0.85" rx="2"/>'
        )
        low, high = _LABEL + rate.low * scale, _LABEL + (side.below or rate.high) * scale
        middle = y + _BAR / 2
        yield f'<path d="M{low:.1f} {middle} H{high:.1f} M{high:.1f} {middle - 5} v10" stroke="#222" fill="none"/>'
        end = max(_LABEL + width, high)
    yield _text(end + 6, y + 14, f"{side.text} {NAMES[protection]}")


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


def _axes(frame: _Frame) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for power in range(frame.low, frame.high + 1):
        y = frame.y(10.0**power)
        yield f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e3e3"/>'
        ms = 10.0**power
        yield _text(_LEFT - 8, y + 4, f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms", anchor="end")
    step = next((step for step in _FEW_TICKS if (frame.last - frame.first) / step <= 12), _FEW_TICKS[-1])
    for tick in range(math.ceil(frame.first / step) * step, math.floor(frame.last) + 1, step):
        x = frame.x(tick)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}" stroke="#888"/>'
        yield _text(x, bottom + 17, f"{tick} s", anchor="middle")


def _strikes(frame: _Frame, line: Line) -> Iterator[str]:
    zero = _first_strike(line)
    for moment in line["strikes"]:
        x = frame.x(moment - line["began"] - zero)
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="#333" '
            'stroke-dasharray="3 3"/>'
        )
    if line["strikes"]:
        what = "killed" if line["cell"]["failure"] == "replica" else "fails"
        yield _text(frame.x(0), _TOP - 8, what, anchor="middle")


def _legend(lines: Sequence[Line]) -> Iterator[str]:
    x, y = float(_LEFT), _HEIGHT - 12
    for line in lines:
        protection = line["cell"]["protection"]
        yield f'<rect x="{x:.1f}" y="{y - 8}" width="18" height="3" fill="{COLOURS[protection]}"/>'
        yield _text(x + 24, y - 2, NAMES[protection])
        x += 54 + 7 * len(NAMES[protection])


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "400") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{html.escape(text)}</text>'


def _svg(height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" role="img">{"".join(parts)}</svg>'

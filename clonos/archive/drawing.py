"""A row and what it was made of as a picture: a box for each call, records on the arrows, sources on the left. A call
has one box, wherever its rows go.

The picture is SVG, and needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from clonos.archive.shown_value import as_text
from clonos.protocol.archive.episode import Share
from clonos.values.readable import span

_LINE: Final = 17  # pixels
_CHARACTER: Final = 6.9
_PADDING: Final = 12
_BETWEEN: Final = 28  # boxes, from above to below
_ARROW: Final = 150  # its length
_MOST: Final = 46  # characters in a line
_COLOURS: Final = {
    "title": "#1f2d3d",
    "key": "#7a5c00",
    "state": "#6b2f8a",
    "clock": "#00617a",
    "draw": "#00617a",
    "call": "#9a3412",
    "answer": "#9a3412",
    "effect": "#b91c1c",
    "timer": "#00617a",
    "lacking": "#b91c1c",
}


@dataclass(eq=False)
class _Box:
    lines: list[tuple[str, str]]  # what sort of line, and text
    row: list[str]  # what it gives, on the arrow behind it
    # That stand beside it, as it is the first that is made of them
    inputs: list[_Box] = field(default_factory=list)
    others: list[_Box] = field(default_factory=list)  # of whose rows it is made, too
    more: set[str] = field(default_factory=set)  # rows that it gives, too, where they are drawn
    is_source: bool = False
    level: int = 0  # how far from the row that is explained
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(len(text) for _, text in self.lines) * _CHARACTER + 2 * _PADDING

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + 2 * _PADDING - 4

    @property
    def made_of(self) -> list[_Box]:
        return [*self.inputs, *dict.fromkeys(self.others)]

    @property
    def label(self) -> list[str]:
        more = len(self.more)
        return self.row if not more else [*self.row, f"and {more} more row{'s' * (more > 1)}"]


def draw(said: dict[str, Any]) -> str:
    """The explanation of `archive.explain` as SVG."""
    root = _Boxes().box(said)
    if "not_explained" in said:
        root.lines.append(("place", f"{said['not_explained']['rows']} rows behind it are not explained"))
    boxes = _by_level(root)
    depth = max(box.level for box in boxes) + 1
    widths = [max(box.width for box in boxes if box.level == level) for level in range(depth)]
    lefts = [0.0] * depth  # of each level, from the sources on
    for level in range(depth - 2, -1, -1):
        lefts[level] = lefts[level + 1] + widths[level + 1] + _ARROW
    bottom = _place(root, 0.0, lefts, widths)
    end = lefts[0] + widths[0] + _ARROW
    parts = [*_arrows(root), *_final_arrow(root, end), *_boxes(root)]
    width = end + max(len(line) for line in [*root.label, ""]) * _CHARACTER
    top = min(_label_top(root), 0.0) - 24
    height = bottom - top + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-20 {top:.0f} {width + 40:.0f} {height:.0f}" '
        f'width="{width + 40:.0f}" height="{height:.0f}" font-family="ui-monospace, Menlo, Consolas, monospace" '
        'font-size="11.5">\n'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#64748b"/></marker></defs>\n'
        '<rect x="-20" y="-24" width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _label_top(box: _Box) -> float:
    """How far up the text on its arrow reaches, and that of its inputs."""
    own = box.y + box.height / 2 - 6 - len(box.label) * (_LINE - 3)
    return min([own, *map(_label_top, box.inputs)])


def _by_level(root: _Box) -> list[_Box]:
    """All boxes: each is farther away than what is made of it."""
    found: dict[_Box, None] = {}

    def visit(box: _Box) -> None:
        if box not in found:
            for one in box.made_of:
                visit(one)
            found[box] = None

    visit(root)
    ordered = list(reversed(found))
    for box in ordered:
        for one in box.made_of:
            one.level = max(one.level, box.level + 1)
    return ordered


def _place(box: _Box, top: float, lefts: list[float], widths: list[float]) -> float:
    """Below `top`; where the next one may begin, without the space between."""
    box.x = lefts[box.level] + (widths[box.level] - box.width) / 2
    below = top
    for one in box.inputs:
        below = _place(one, below, lefts, widths) + _BETWEEN
    below = max(below - _BETWEEN, top)
    if box.inputs:
        middle = (box.inputs[0].y + box.inputs[-1].y + box.inputs[-1].height) / 2
        box.y = max(top, middle - box.height / 2)
    else:
        box.y = top
    return max(below, box.y + box.height)


# ------------------------------------------------------------------ what is in it


class _Boxes:
    """Those of an explanation, one for each call of it."""

    def __init__(self) -> None:
        self._of_rows: dict[str, _Box] = {}

    def box(self, said: dict[str, Any]) -> _Box:
        if (drawn := self._of_rows.get(said.get("explained_above", ""))) is not None:
            self._of_rows[said["id"]] = drawn
            self._draw_inputs(drawn, said)
            return drawn
        lines, is_lacking = _lines(said), "lacking" in said
        box = self._of_rows[said["id"]] = _Box(lines, [] if is_lacking else _columns(said["row"]))
        if not is_lacking:
            self._draw_inputs(box, said)
        return box

    def _draw_inputs(self, box: _Box, said: dict[str, Any]) -> None:
        inputs = said.get("inputs", ())
        shown = [one for at, one in enumerate(inputs) if at < 12 or "made_by" in one]
        for one in shown:
            self._draw_input(box, one)
        if len(inputs) > len(shown):
            box.lines.append(("place", f"of {len(inputs)} records, {len(shown)} shown"))

    def _draw_input(self, box: _Box, one: dict[str, Any]) -> None:
        above = one.get("explained_above", one.get("made_by", {}).get("explained_above", ""))
        if (drawn := self._of_rows.get(above)) is not None:
            if one["id"] != above:
                drawn.more.add(one["id"])
            if drawn not in box.inputs:
                box.others.append(drawn)
            if "made_by" in one:
                self.box(one["made_by"])
            return
        if "made_by" in one:
            input_box = self.box(one["made_by"])
        elif "source" in one:
            input_box = _Box([("title", _short(one["source"])), ("place", f"position {one['position']}")], [])
        else:
            input_box = _Box([("title", f"row {one['id']}")], [])
        input_box.is_source = "made_by" not in one
        input_box.row = _columns(one["row"])
        box.inputs.append(input_box)


def _lines(said: dict[str, Any]) -> list[tuple[str, str]]:
    """In the box of a call."""
    lines = [("title", _short(f"{said.get('operator', said['id'])}[{said.get('instance', '?')}]"))]
    if "epoch" in said:
        lines.append(("place", _short(f"epoch {said['epoch']}, row {said['id']}")))
    if "lacking" in said:
        return lines + [("lacking", part) for part in _wrapped(said["lacking"])]
    again = sum(one["did"] == Share.REPEATED for one in said["processes"])
    if again:
        lines.append(("place", f"repeated by {again} later process{'es' if again > 1 else ''}"))
    lines += [("key", _short(f"key {', '.join(map(repr, key))}")) for key in said["keys"][:3] if key]
    for one in said["state"][:3]:
        lines += [
            ("state", _short(f"{sign} {one[name]!r}"))
            for sign, name in (("before", "before"), ("after ", "after"))
        ]
    lines += [("timer", _short(f"timer {one['name']!r} {one['due']}")) for one in said.get("timers", ())[:3]]
    lines += [(one["kind"], _short(_asked(one))) for one in said["asked"][:8]]
    if len(said["asked"]) > 8:
        lines.append(("place", f"and {len(said['asked']) - 8} more"))
    return lines


def _asked(one: dict[str, Any]) -> str:
    given = one.get("at", one.get("raised", one.get("given", "")))
    given = repr(given) if "given" in one else str(given)
    took = f", {span(one['took_us'])}:" if "took_us" in one else ""
    said = f"{one['kind']}{took} {one['what']}"
    return f"{said} -> {given}" if given else said


def _columns(row: dict[str, Any]) -> list[str]:
    shown = [_short(f"{name}={as_text(value)}", 20) for name, value in row.items()]
    return shown if len(shown) <= 7 else [*shown[:6], f"and {len(shown) - 6} more"]


def _short(text: str, most: int = _MOST) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _wrapped(text: str) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and len(line) + len(word) >= _MOST:
            yield line
            line = ""
        line = f"{line} {word}".strip()
    yield line


# ------------------------------------------------------------------- how it looks


def _boxes(box: _Box) -> Iterator[str]:
    fill, stroke = ("#f1f5f9", "#94a3b8") if box.is_source else ("#ffffff", "#334155")
    yield (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="6" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="1.3"/>'
    )
    for at, (kind, text) in enumerate(box.lines):
        weight = ' font-weight="700"' if kind == "title" else ""
        yield (
            f'<text x="{box.x + _PADDING:.1f}" y="{box.y + _PADDING + 9 + at * _LINE:.1f}" '
            f'fill="{_COLOURS.get(kind, "#64748b")}"{weight} xml:space="preserve">{escape(text)}</text>'
        )
    for one in box.inputs:
        yield from _boxes(one)


def _arrows(box: _Box) -> Iterator[str]:
    for one in box.inputs:
        yield from _arrow(one, box.x, box.y + box.height / 2)
        yield from _arrows(one)
    for one in dict.fromkeys(box.others):
        yield _line(one, box.x, box.y + box.height / 2)


def _final_arrow(root: _Box, end: float) -> Iterator[str]:
    if root.row:
        yield from _arrow(root, end, root.y + root.height / 2)


def _arrow(box: _Box, x: float, y: float) -> Iterator[str]:
    """With what the box gives."""
    yield _line(box, x, y)
    begin, middle, label = box.x + box.width, box.y + box.height / 2, box.label
    for at, line in enumerate(label):
        place = middle - 6 - (len(label) - 1 - at) * (_LINE - 3)
        yield (
            f'<text x="{begin + 8:.1f}" y="{place:.1f}" fill="#0f766e" paint-order="stroke" stroke="#ffffff" '
            f'stroke-width="3">{escape(line)}</text>'
        )


def _line(box: _Box, x: float, y: float) -> str:
    begin, middle = box.x + box.width, box.y + box.height / 2
    bend = (x - begin) / 2
    return (
        f'<path d="M{begin:.1f} {middle:.1f}C{begin + bend:.1f} {middle:.1f} {x - bend:.1f} {y:.1f} {x:.1f} {y:.1f}" '
        'fill="none" stroke="#64748b" stroke-width="1.3" marker-end="url(#head)"/>'
    )

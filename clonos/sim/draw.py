"""A run as a picture: one line per instance, what it did from left to right, records as arrows between the lines.

The horizontal axis is order, not time: every event takes one step, so that a microsecond in which much happens is as
readable as a second in which nothing does. Drawn is the part of the run around its faults (or its beginning).
"""

from __future__ import annotations

from html import escape

from clonos.protocol.ids import Origin, channel_origin
from clonos.protocol.topology import NodeKind
from clonos.sim.checks.violation import Violation
from clonos.sim.faults import Struck
from clonos.sim.plan import Plan
from clonos.sim.run import play
from clonos.sim.trace import Emitted, Event, Restored, Saved, Shown, Took
from clonos.sim.world import World

STEP, ROW, LEFT, TOP, DRAWN = 9, 46, 110, 84, 420
LEGEND = (
    ("#888888", "record, from where it was emitted to where it was taken"),
    ("#2a6fdb", "determinants saved"),
    ("#d62728", "fault"),
    ("#9467bd", "new incarnation, begins to repeat"),
    ("#2ca02c", "row visible"),
)


def draw(plan: Plan) -> str:
    """The SVG text of a run of this plan."""
    world = World(plan, tracing=True)
    title = f"seed {plan.seed}"
    try:
        play(world)
        title += f": {world.outcome}"
    except Violation as violation:
        title += f": {violation}"
    return Picture(world, title).svg()


class Picture:
    """One picture under construction."""

    def __init__(self, world: World, title: str) -> None:
        flow = world.plan.dataflow
        lines = [*flow.source_partitions, *flow.instances(NodeKind.OPERATOR), *flow.instances(NodeKind.SINK)]
        self._rows = {origin: TOP + at * ROW for at, origin in enumerate(lines)}
        self._names = {
            origin: f"{flow.topology.node(origin.node).name} / {origin.instance}" for origin in lines
        }
        self._bottom = TOP + len(lines) * ROW
        self._title = title
        self._events = around([event for event in world.trace.events if event.about is not None])
        self._parts: list[str] = []
        self._emitted: dict[tuple[int, int], int] = {}

    def svg(self) -> str:
        width = LEFT + STEP * (len(self._events) + 2) + 140
        self._frame(width)
        for at, event in enumerate(self._events):
            self._event(LEFT + STEP * (at + 1), event)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{self._bottom + 50}" '
            f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
        )
        return head + "\n".join(self._parts) + "\n</svg>\n"

    def _frame(self, width: int) -> None:
        self._text(10, 20, self._title[:180], size=14)
        x = 10
        for colour, word in LEGEND:
            self._parts.append(f'<rect x="{x}" y="34" width="10" height="10" fill="{colour}"/>')
            self._text(x + 14, 43, word)
            x += 30 + 6 * len(word)
        for origin, y in self._rows.items():
            self._text(10, y + 4, self._names[origin])
            self._line(LEFT, y, width - 20, y, "#cccccc", 1)

    def _event(self, x: int, event: Event) -> None:
        about = event.about
        tip = f"<title>{escape(str(event))}</title>"
        if isinstance(about, Took):
            self._took(x, about)
            self._circle(x, self._rows[about.origin], 2, "#555555", tip)
        elif isinstance(about, Emitted):
            for number in about.numbers:
                self._emitted[about.origin.channel, number] = x
        elif isinstance(about, Saved):
            y = self._rows[about.origin]
            self._parts.append(
                f'<rect x="{x - 1}" y="{y - 9}" width="3" height="18" fill="#2a6fdb">{tip}</rect>'
            )
        elif isinstance(about, Restored):
            self._circle(x, self._rows[about.origin], 6, "#9467bd", tip)
        elif isinstance(about, Shown):
            self._circle(x, self._rows[about.origin], 3, "#2ca02c", tip)
        elif isinstance(about, Struck):
            self._fault(x, about, tip)

    def _took(self, x: int, about: Took) -> None:
        y = self._rows[about.origin]
        for channel, position in about.records:
            writer = channel_origin(channel)
            start = self._emitted.get((channel, position), x - STEP if writer in self._rows else None)
            if start is not None:
                self._line(start, self._rows[writer], x, y, "#888888", 0.7)

    def _fault(self, x: int, struck: Struck, tip: str) -> None:
        origin = origin_in(struck.where)
        y = self._rows[origin] if origin is not None else self._bottom
        if origin is None:
            self._line(x, TOP - 20, x, self._bottom, "#d62728", 0.7)
        for slope in (-6, 6):
            self._line(x - 6, y - slope, x + 6, y + slope, "#d62728", 2.5)
        self._parts.append(f'<rect x="{x - 6}" y="{y - 6}" width="12" height="12" opacity="0">{tip}</rect>')
        label = f"{struck.kind.value} ({struck.where})" if y == self._bottom else struck.kind.value
        self._text(x + 8, y - 9 if y != self._bottom else y + 16, label, colour="#d62728")

    def _line(self, x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> None:
        self._parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}"/>'
        )

    def _circle(self, x: int, y: int, radius: int, colour: str, tip: str) -> None:
        self._parts.append(f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{colour}">{tip}</circle>')

    def _text(self, x: int, y: int, text: str, *, size: int = 11, colour: str = "#222222") -> None:
        self._parts.append(f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}">{escape(text)}</text>')


def around(events: list[Event]) -> list[Event]:
    """So many as fit, from shortly before the first fault that struck an instance."""
    first = next((at for at, event in enumerate(events) if isinstance(event.about, Struck)), 0)
    begin = max(min(first - DRAWN // 4, len(events) - DRAWN), 0)
    return events[begin : begin + DRAWN]


def origin_in(where: str) -> Origin | None:
    """The instance that the name of a process or store names."""
    for word in where.replace("#", " ").replace(".", " ").split():
        node, _, instance = word.partition("/")
        if node.isdigit() and instance.isdigit():
            return Origin(int(node), int(instance))
    return None

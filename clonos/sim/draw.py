"""A run as a picture: one line per instance, what it did from left to right, records as arrows between the lines.

The horizontal axis is order, not time: every event takes one step, so that a microsecond in which much happens is as
readable as a second in which nothing does. Drawn is the part of the run around its faults (or its beginning).
"""

from __future__ import annotations

from typing import Any, Final

from clonos import figures
from clonos.extras import needs
from clonos.protocol.ids import Origin, channel_origin
from clonos.protocol.topology import NodeKind
from clonos.sim.checks.violation import Violation
from clonos.sim.faults import Struck
from clonos.sim.plan import Plan
from clonos.sim.run import play
from clonos.sim.trace import Emitted, Event, Restored, Saved, Shown, Took
from clonos.sim.world import World

STEP, ROW, AROUND, DRAWN = 9, 46, 120, 420
RECORD, TAKEN, SAVED, FAULT, BEGINS, SHOWN = "#888888", "#555555", "#2a6fdb", "#d62728", "#9467bd", "#2ca02c"
LEGEND: Final = (
    (RECORD, "record, from where it was emitted to where it was taken"),
    (SAVED, "determinants saved"),
    (FAULT, "fault"),
    (BEGINS, "new incarnation, begins to repeat"),
    (SHOWN, "row visible"),
)


def draw(plan: Plan) -> str:
    """The SVG text of a run of this plan. Raises ConfigurationError without matplotlib."""
    needs("matplotlib", "a picture")
    world = World(plan, tracing=True)
    title = f"seed {plan.seed}"
    try:
        play(world)
        title += f": {world.outcome}"
    except Violation as violation:
        title += f": {violation}"
    return Picture(world, title).svg()


class Picture:
    """One picture under construction. Instances are at whole heights, from 0 down; events at whole numbers."""

    def __init__(self, world: World, title: str) -> None:
        flow = world.plan.dataflow
        lines = [*flow.source_partitions, *flow.instances(NodeKind.OPERATOR), *flow.instances(NodeKind.SINK)]
        self._rows = {origin: -at for at, origin in enumerate(lines)}
        self._bottom = -len(lines)
        self._events = around([event for event in world.trace.events if event.about is not None])
        self._emitted_at: dict[tuple[int, int], int] = {}
        self._figure = figures.figure(AROUND + STEP * (len(self._events) + 2), AROUND + ROW * len(lines))
        self._axes = self._figure.add_subplot()
        self._axes.set_title(title[:180], loc="left", pad=30)
        self._axes.set_yticks(
            list(self._rows.values()),
            [f"{flow.topology.node(origin.node).name} / {origin.instance}" for origin in lines],
        )
        self._axes.set_xticks([])
        self._axes.set_xlim(-1, len(self._events) + 1)
        self._axes.set_ylim(self._bottom - 0.5, 0.5)
        self._axes.grid(axis="y", color="#cccccc")
        self._axes.spines[:].set_visible(False)

    def svg(self) -> str:
        marks: dict[type, list[tuple[int, int]]] = {kind: [] for kind in (Took, Saved, Restored, Shown)}
        arrows: list[list[tuple[int, int]]] = []
        for at, event in enumerate(self._events):
            about = event.about
            if type(about) in marks:
                marks[type(about)].append((at, self._rows[about.origin]))
            if isinstance(about, Took):
                arrows += self._arrows(at, about)
            elif isinstance(about, Emitted):
                self._emitted_at |= {(about.origin.channel, number): at for number in about.numbers}
            elif isinstance(about, Struck):
                self._fault(at, about)
        for arrow in arrows:
            self._axes.plot(*zip(*arrow), color=RECORD, linewidth=0.7, zorder=2)
        self._marks(marks[Took], TAKEN, "o", 4)
        self._marks(marks[Saved], SAVED, "|", 18)
        self._marks(marks[Restored], BEGINS, "o", 12)
        self._marks(marks[Shown], SHOWN, "o", 6)
        self._legend()
        return figures.svg(self._figure)

    def _arrows(self, at: int, about: Took) -> list[list[tuple[int, int]]]:
        found = []
        for channel, position in about.records:
            writer = channel_origin(channel)
            start = self._emitted_at.get((channel, position), at - 1 if writer in self._rows else None)
            if start is not None:
                found.append([(start, self._rows[writer]), (at, self._rows[about.origin])])
        return found

    def _marks(self, places: list[tuple[int, int]], colour: str, marker: str, size: float) -> None:
        if places:
            self._axes.plot(
                *zip(*places), linestyle="none", marker=marker, color=colour, markersize=size, zorder=3
            )

    def _fault(self, at: int, struck: Struck) -> None:
        origin = origin_in(struck.where)
        row = self._bottom if origin is None else self._rows[origin]
        if origin is None:
            self._axes.axvline(at, color=FAULT, linewidth=0.7)
        self._axes.plot(at, row, marker="x", markersize=12, markeredgewidth=2.5, color=FAULT, zorder=4)
        label = f"{struck.kind.value} ({struck.where})" if origin is None else struck.kind.value
        self._axes.annotate(label, (at, row), (8, 6), textcoords="offset points", color=FAULT)

    def _legend(self) -> None:
        handles: list[Any] = [
            self._axes.plot([], [], linestyle="none", marker="s", color=colour, label=words)[0]
            for colour, words in LEGEND
        ]
        self._axes.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(LEGEND), frameon=False
        )


def around(events: list[Event]) -> list[Event]:
    """As many events as fit, from shortly before the first fault that struck an instance."""
    first = next((at for at, event in enumerate(events) if isinstance(event.about, Struck)), 0)
    begin = max(min(first - DRAWN // 4, len(events) - DRAWN), 0)
    return events[begin : begin + DRAWN]


def origin_in(where: str) -> Origin | None:
    """The instance that the name of a process or store names."""
    for word in where.replace("#", " ").replace(".", " ").split():
        node, _, instance = word.partition("/")
        if node.isdigit() and instance.isdigit():
            return Origin.of(int(node), int(instance))
    return None

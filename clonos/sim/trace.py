"""What happened, when and where: the space-time log of a run, as text, and for `clonos.sim.draw`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from clonos.errors import LogCorrupt
from clonos.protocol.destination import Destinations
from clonos.protocol.frontier import runs_of
from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin, OutputNumber, channel_origin
from clonos.protocol.recovery.causal.determinant import Kind
from clonos.protocol.recovery.causal.determinant_codec import decode_steps
from clonos.sim.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Took:
    """An instance has taken records."""

    origin: Origin
    records: tuple[tuple[int, int], ...]  # channel, position


@dataclass(frozen=True, slots=True)
class Saved:
    """Determinants have reached the log store."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class Emitted:
    """An instance has handed rows on."""

    origin: Origin
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Restored:
    """A new incarnation begins."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class Shown:
    """A row has become visible."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class Event:
    """One line. `about` is what a drawing needs besides the words."""

    at: int
    who: str
    what: str
    about: Any = None

    def __str__(self) -> str:
        return f"{self.at / 1000:12.3f} ms  {self.who:<22} {self.what}"


class Trace:
    """Called with who and what; keeps it only when asked to."""

    def __init__(self, kernel: Kernel, *, keeping: bool) -> None:
        self._kernel = kernel
        self.keeping = keeping
        self.events: list[Event] = []

    def __call__(self, who: str, what: str, about: Any = None) -> None:
        if self.keeping:
            self.events.append(Event(self._kernel.now, who, what, about))

    def __str__(self) -> str:
        return "\n".join(map(str, self.events))

    # ------------------------------------ what is worth words only when it is kept

    def took(self, who: str, origin: Origin, seq: int, channels: Any, positions: Any) -> None:
        if self.keeping:
            numbers = [int(position) for position in positions]
            records = tuple(zip([int(channel) for channel in channels], numbers, strict=True))
            self(who, f"takes bundle {seq}: {in_runs(records)}", Took(origin, records))

    def saved(self, who: str, origin: Origin, start: LogOffset, data: bytes, deltas: int) -> None:
        if self.keeping:
            what = f"saves log {start}..{start + len(data)} ({kinds_in(data)})" if data else "saves"
            self(who, f"{what} and {deltas} received deltas" if deltas else what, Saved(origin))

    def emitted(
        self, who: str, origin: Origin, first: OutputNumber, destinations: Destinations, deltas: int
    ) -> None:
        if self.keeping:
            numbers = tuple(range(first, first + len(destinations[0]))) if destinations else ()
            if numbers:
                rows = f"row {first}" if len(numbers) == 1 else f"rows {first}..{numbers[-1]}"
                to = " and ".join(" ".join(map(str, column)) for column in destinations)
                self(who, f"emits {rows} to {to}, with {deltas} deltas", Emitted(origin, numbers))


def in_runs(records: tuple[tuple[int, int], ...]) -> str:
    """Records as `origin:first..last`, in their order."""
    parts = []
    at = 0
    for channel, count in runs_of([channel for channel, _ in records]):
        positions = [position for _, position in records[at : at + count]]
        last = f"..{positions[-1]}" if count > 1 else ""
        parts.append(f"{channel_origin(channel)}:{positions[0]}{last}")
        at += count
    return " ".join(parts)


def kinds_in(data: bytes) -> str:
    """The determinants in a piece of a log."""
    try:
        steps = decode_steps(data, LOG_BEGIN)
    except LogCorrupt:
        return "the rest of a step"
    names = []
    for step in steps:
        names.append(step.kind.name)
        for kind, found in (
            (Kind.CLOCK, step.clocks),
            (Kind.INSTANT, step.instants),
            (Kind.CALL, step.calls),
            (Kind.ANSWER, step.answers),
            (Kind.EFFECT, step.effects),
        ):
            names += [kind.name] * len(found)
    grouped = [(name, len(list(group))) for name, group in groupby(names)]
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in grouped)

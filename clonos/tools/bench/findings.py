"""What lines of results say together: cells by what they have in common, medians with extremes, rates that were held.

A line with an `error` is a run that could not be; it says nothing but that.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from clonos.tools.bench.cell import Protection
from clonos.tools.bench.results import Line
from clonos.tools.bench.search import Bounds, bounds

WRONG = ("lost", "repeated", "contradicted")
BUSY = 4.0
"""Load per core beyond what a run makes by itself."""

SIDES = tuple(side.value for side in Protection)


def judged(lines: Iterable[Line]) -> list[Line]:
    """Runs that were measured in full."""
    return [line for line in lines if "error" not in line and not line["cell"]["probe"]]


def grouped(lines: Iterable[Line], *but: str) -> list[list[Line]]:
    """Lines whose cells differ in nothing but these, in the order in which they came; sides in their own."""
    found: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        key = tuple(value for name, value in line["cell"].items() if name not in but)
        found.setdefault(key, []).append(line)
    for members in found.values():
        members.sort(key=lambda line: SIDES.index(line["cell"]["protection"]))
    return list(found.values())


def title(line: Line) -> str:
    """What the sides of a comparison have in common."""
    cell = line["cell"]
    skew = "" if cell["skew"] is None else f", skew {cell['skew']:g}"
    struck = _STRUCK[cell["failure"]] + (" three times" if cell["pattern"] == "staggered" else "")
    if cell["pattern"] == "together":  # which is for processes alone
        struck = "three processes killed at once"
    return f"{cell['query']}, {_MODES[cell['mode']]}, {cell['rate']:,}/s{skew}, {struck}"


_STRUCK = {
    "none": "undisturbed",
    "replica": "a process killed",
    "task": "a task fails",
    "query": "the query fails",
}
_MODES = {"microbatch": "micro-batch", "realtime": "real time"}


@dataclass(frozen=True)
class Spread:
    """Some values of the same: their median and their extremes."""

    middle: float
    low: float
    high: float
    count: int

    def text(self, digits: int) -> str:
        middle = f"{self.middle:,.{digits}f}"
        return middle if self.count == 1 else f"{middle} ({self.low:,.{digits}f}..{self.high:,.{digits}f})"


def spread(values: Iterable[float | None]) -> Spread | None:
    """The spread of the values that are known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(statistics.median(known), min(known), max(known), len(known))


def said(values: Iterable[float | None], digits: int) -> str:
    """The spread as text; - where nothing is known."""
    found = spread(values)
    return "-" if found is None else found.text(digits)


def recovered(runs: Sequence[Line], name: str) -> list[float | None]:
    """One figure of the recoveries."""
    return [(run["recovery"] or {}).get(name) for run in runs]


def ratio(runs: Sequence[Line], over: str, under: str) -> list[float | None]:
    """One figure over another, where both are known."""
    return [run[over] / run[under] if run[over] is not None and run[under] else None for run in runs]


def message_overhead(runs: Sequence[Line]) -> list[float | None]:
    """Bytes of determinants on rows that were handed on, over bytes of these rows without them."""
    found: list[float | None] = []
    for run in runs:
        output, delta = run["output_bytes"], run["delta_bytes"]
        found.append(delta / (output - delta) if output else None)
    return found


def kept_pace(runs: Sequence[Line]) -> bool | None:
    """Whether all did; None where that is not known of one, and none is known not to have."""
    found = [run["kept_pace"] for run in runs]
    return False if False in found else None if None in found else True


def wrong(runs: Sequence[Line]) -> dict[str, int]:
    """Rows lost, repeated and contradicted, in all runs together."""
    return {name: sum(run["judgement"][name] for run in runs) for name in WRONG}


@dataclass(frozen=True)
class Held:
    """The sustainable throughput of one side, as far as searches have come, one of each repeat."""

    cell: dict[str, Any]
    repeats: tuple[Bounds, ...]

    @property
    def rate(self) -> Spread | None:
        return spread(found.low for found in self.repeats)

    @property
    def below(self) -> int | None:
        """The lowest rate that was seen not to be sustained, at its highest."""
        return max((found.high for found in self.repeats if found.high is not None), default=None)

    @property
    def text(self) -> str:
        rate = self.rate
        if rate is None:
            return "-" if self.below is None else f"< {self.below:,}"
        return rate.text(0) + ("" if self.below is not None else " or more")


def sustainable(lines: Iterable[Line]) -> list[list[Held]]:
    """For every comparison its sides. A probe that could not be run counts as not sustained."""
    probes = [line for line in lines if line["cell"]["probe"]]
    found = []
    for comparison in grouped(probes, "rate", "protection"):
        sides = []
        for side in grouped(comparison, "rate"):
            repeats = []
            for repeat in sorted({line["repeat"] for line in side}):
                mine = [line for line in side if line["repeat"] == repeat]
                tried = {line["cell"]["rate"]: bool(line.get("sustained")) for line in mine}
                repeats.append(bounds(tried))
            sides.append(Held(side[0]["cell"], tuple(repeats)))
        found.append(sides)
    return found


def machines(lines: Sequence[Line]) -> str:
    """On what everything was run, and whether it had other things to do."""
    found = {", ".join(f"{k} {v}" for k, v in line["machine"].items() if k != "load") for line in lines}
    loads = [line["machine"]["load"] for line in lines]
    if not loads:
        return ""
    busy = any(line["machine"]["load"] > BUSY * line["machine"]["cores"] for line in lines)
    other = ", busy with other things too" if busy else ""
    return f"{'; '.join(sorted(found))}; load {min(loads)} to {max(loads)} after runs{other}"

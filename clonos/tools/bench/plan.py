"""What is to be run: cells, each some times, and searches. What is in the results already is not run again.

Cells are run repeat by repeat and searches probe by probe in turns, so that the sides of a comparison share whatever
else happens on the machine. What a search has found is then run, undisturbed, at half of it: latency at a load that
every side of the comparison can take.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

from clonos.tools.bench.cell import Cell, Failure, Mode, Pattern, Protection, why_not
from clonos.tools.bench.search import bounds, next_rate, probes_left, rounded

WITHIN = 1.15
_AROUND_S = 9.0
"""A first guess at what a run takes beside its warm-up and its measuring."""

Key: TypeAlias = tuple[str, int]
Known: TypeAlias = Mapping[Key, Mapping[str, Any]]  # lines of results by cell and repeat
Job: TypeAlias = tuple[Cell, int]


@dataclass(frozen=True)
class Plan:
    """`searches` are probes at the rate to begin with."""

    cells: tuple[Cell, ...] = ()
    searches: tuple[Cell, ...] = ()
    repeats: int = 1
    within: float = WITHIN

    def jobs(self, known: Known) -> Iterator[Job]:
        """One after the other. Before the next is asked for, `known` must have the result of the last."""
        for repeat in range(self.repeats):
            yield from ((cell, repeat) for cell in self.cells if (cell.name, repeat) not in known)
        for repeat in range(self.repeats):
            open_searches = list(self.searches)
            while open_searches:
                for search in tuple(open_searches):
                    rate = next_rate(self._tried(known, search, repeat), search.rate, self.within)
                    if rate is None:
                        open_searches.remove(search)
                    else:
                        yield replace(search, rate=rate), repeat
            yield from ((cell, repeat) for cell in self._at_half(known, repeat))

    def left(self, known: Known) -> list[Cell]:
        """What is still to be run, of searches about."""
        found = []
        for repeat in range(self.repeats):
            found += [cell for cell in self.cells if (cell.name, repeat) not in known]
            for search in self.searches:
                tried = self._tried(known, search, repeat)
                if next_rate(tried, search.rate, self.within) is not None:
                    found += [search] * max(1, probes_left(tried, self.within))
                    found.append(replace(search, probe=False))
            found += self._at_half(known, repeat)
        return found

    def _at_half(self, known: Known, repeat: int) -> list[Cell]:
        """What is not known yet, of comparisons all of whose searches are over. Their sides run at the same rate: half
        of the lowest that one of them sustains. A side that sustains nothing is left out."""
        comparisons: dict[Cell, list[Cell]] = {}
        for search in self.searches:
            comparisons.setdefault(replace(search, protection=Protection.NONE), []).append(search)
        found: list[Cell] = []
        for sides in comparisons.values():
            tried = [self._tried(known, side, repeat) for side in sides]
            if any(next_rate(rates, side.rate, self.within) is not None for rates, side in zip(tried, sides)):
                continue
            held = {side: low for side, rates in zip(sides, tried) if (low := bounds(rates).low) is not None}
            found += [
                replace(side, rate=rounded(max(1, min(held.values()) / 2)), probe=False) for side in held
            ]
        return [cell for cell in found if (cell.name, repeat) not in known]

    @staticmethod
    def _tried(known: Known, search: Cell, repeat: int) -> dict[int, bool]:
        """A probe that could not be run has not been sustained."""
        found = {}
        for (_, number), line in known.items():
            if number == repeat and line["cell"] == replace(search, rate=line["cell"]["rate"]).to_json():
                found[line["cell"]["rate"]] = bool(line.get("sustained"))
        return found


class Estimate:
    """How long the rest will take, going by how long runs took so far."""

    def __init__(self) -> None:
        self._expected = 0.0
        self._spent = 0.0
        self._began = time.monotonic()

    def ran(self, cell: Cell) -> None:
        """One more."""
        self._expected += _expected_s(cell)
        self._spent = time.monotonic() - self._began

    def left_s(self, left: list[Cell]) -> float:
        """Seconds."""
        factor = self._spent / self._expected if self._expected else 1.0
        return factor * sum(map(_expected_s, left))


def _expected_s(cell: Cell) -> float:
    return cell.warm_up + cell.seconds + _AROUND_S


def combined(lines: str, *, rate: int, seconds: int, warm_up: int, probe: bool = False) -> tuple[Cell, ...]:
    """Cells of a table: query, mode, protection, failure, pattern; alternatives with commas. What Spark cannot run is
    left out."""
    found = []
    for line in lines.strip().splitlines():
        for query, mode, failure, pattern, protection in _alternatives(line):
            cell = Cell(
                query=query,
                mode=Mode(mode),
                protection=Protection(protection),
                failure=Failure(failure),
                pattern=Pattern(pattern),
                rate=rate,
                seconds=seconds,
                warm_up=warm_up,
                probe=probe,
            )
            if why_not(cell) is None:
                found.append(cell)
    return tuple(found)


def _alternatives(line: str) -> Iterator[tuple[str, ...]]:
    query, mode, protection, failure, pattern = (word.split(",") for word in line.split())
    return product(query, mode, failure, pattern, protection)

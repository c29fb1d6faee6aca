"""How fast a query goes: from totals that are looked at again and again, rows a second of each instance, and how long
those took that sinks have made visible.

A total begins again when its server does. What lies between two looks at different servers is not known, and is left
out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from clonos_standby.server.histogram import Histogram

Place: TypeAlias = str
"""Node and instance, `2/0`."""

KEPT_SECONDS: Final = 600.0
_WINDOW_SECONDS: Final = 5.0
_LATELY_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Look:
    """Rows that instances have been given since the servers began."""

    at: float
    server: int
    """The process whose totals these are."""
    generation: int
    committed: int
    totals: Mapping[Place, int]
    latencies: Mapping[int, Histogram] = field(default_factory=dict)
    """By sink's node, of all rows that it has made visible since the servers began."""


@dataclass(slots=True)
class Rates:
    """The looks of the last ten minutes."""

    looks: deque[Look] = field(default_factory=deque)

    def add(self, look: Look) -> None:
        self.looks.append(look)
        while look.at - self.looks[0].at > KEPT_SECONDS:
            self.looks.popleft()

    def now(self) -> dict[Place, float]:
        """Rows a second, over the last few seconds; behind a pause between two looks, over the pause."""
        if not self.looks:
            return {}
        return _between(self._since(_WINDOW_SECONDS), self.looks[-1])

    def latency(self) -> dict[int, dict[str, float]]:
        """By sink's node, in seconds, of the rows of the last two minutes; a sink that had none is not in it."""
        found = {}
        for node, total in (self.looks[-1].latencies if self.looks else {}).items():
            lately = total.since(self._since(_LATELY_SECONDS, node).latencies[node])
            p50, p99 = lately.quantile(0.5), lately.quantile(0.99)
            if p50 is not None and p99 is not None:
                found[node] = {"p50": p50, "p99": p99}
        return found

    def _since(self, seconds: float, sink: int | None = None) -> Look:
        """The first look of so long at the same server, of a sink at which it was there; behind a pause the look
        before it."""
        last, *before = [
            each
            for each in reversed(list(self.looks))
            if each.server == self.looks[-1].server and (sink is None or sink in each.latencies)
        ]
        late = [each for each in before if last.at - each.at <= seconds]
        return (late or before[:1] or [last])[-1]

    def course(self) -> dict[int, list[tuple[float, float]]]:
        """By node, when, and how many rows a second came to all its instances."""
        found: dict[int, list[tuple[float, float]]] = {}
        looks = list(self.looks)
        for before, after in pairwise(looks):
            sums: dict[int, float] = {}
            for place, rate in _between(before, after).items():
                node = int(place.partition("/")[0])
                sums[node] = sums.get(node, 0.0) + rate
            for node, rate in sums.items():
                found.setdefault(node, []).append((after.at, rate))
        return found

    def still_since(self) -> float | None:
        """Since when no instance has been given a row; None where the last look saw one."""
        since = None
        for after, before in pairwise(reversed(self.looks)):
            if before.totals != after.totals:
                break
            since = before.at
        return since

    def committed_since(self) -> float | None:
        """Since when the last committed epoch has been the same, as far back as was looked."""
        if not self.looks:
            return None
        last = self.looks[-1].committed
        since = self.looks[-1].at
        for look in reversed(self.looks):
            if look.committed != last:
                break
            since = look.at
        return since

    def starts(self) -> int:
        """How often the Spark query has been started again."""
        return self.looks[-1].generation - self.looks[0].generation if self.looks else 0


def _between(before: Look, after: Look) -> dict[Place, float]:
    seconds = after.at - before.at
    if before.server != after.server or seconds <= 0:
        return {}
    return {
        place: max(0, total - before.totals.get(place, 0)) / seconds for place, total in after.totals.items()
    }

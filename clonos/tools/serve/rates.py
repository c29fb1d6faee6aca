"""How fast a query goes: from totals that are looked at again and again, rows a second of each instance, and how long
those took that sinks have made visible.

A total begins again when its server does. What lies between two looks at different servers is not known, and is left
out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, TypeAlias

from clonos_standby.server.histogram import Histogram

Place: TypeAlias = str
"""Node and instance, `2/0`."""

KEPT_SECONDS: Final = 600.0
_WINDOW_SECONDS: Final = 5.0
_LATELY_SECONDS: Final = 120.0
_APART_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Look:
    """Rows that instances have been given since the servers began."""

    at: float
    server: int
    """The process whose totals these are."""
    generation: int
    committed: int
    totals: Mapping[Place, int]
    latencies: Mapping[Place, Histogram] = field(default_factory=dict)
    """Of all rows that an instance of a sink has made visible since the servers began."""

    def after(self, before: Look) -> Look:
        """With what an instance without a process had: its totals go on when it has one again."""
        if before.server != self.server:
            return self
        return replace(
            self,
            totals={**before.totals, **self.totals},
            latencies={**before.latencies, **self.latencies},
        )


@dataclass(slots=True)
class Rates:
    """The looks of the last ten minutes."""

    looks: deque[Look] = field(default_factory=deque)

    def add(self, look: Look) -> None:
        if self.looks:
            look = look.after(self.looks[-1])
            if look.at - self.looks[-1].at < _APART_SECONDS and len(self.looks) > 1:
                self.looks.pop()  # totals move once a second: a rate between the two would say nothing
        self.looks.append(look)
        while look.at - self.looks[0].at > KEPT_SECONDS:
            self.looks.popleft()

    def now(self) -> dict[Place, float]:
        """Rows a second, over the last few seconds; behind a pause between two looks, over the pause."""
        if not self.looks:
            return {}
        found: dict[Place, float] = {}
        for look in _lately(self._looks(), _WINDOW_SECONDS):  # the first at which an instance was there
            found = _between(look, self.looks[-1]) | found
        return found

    def latency(self) -> dict[int, dict[str, float]]:
        """By sink's node, in seconds, of the rows of the last two minutes; a sink that had none is not in it."""
        lately: dict[int, Histogram] = {}
        looks = self._looks()
        for place, total in (looks[-1].latencies if looks else {}).items():
            known = [look for look in looks if place in look.latencies]
            of_place = total.since(_lately(known, _LATELY_SECONDS)[0].latencies[place])
            if _node(place) in lately:
                lately[_node(place)].add(of_place)
            else:
                lately[_node(place)] = of_place
        found = {}
        for node, of_sink in lately.items():
            p50, p99 = of_sink.quantile(0.5), of_sink.quantile(0.99)
            if p50 is not None and p99 is not None:
                found[node] = {"p50": p50, "p99": p99}
        return found

    def _looks(self) -> list[Look]:
        """At the server of the last one."""
        return [look for look in self.looks if look.server == self.looks[-1].server]

    def course(self) -> dict[int, list[tuple[float, float]]]:
        """By node, when, and how many rows a second came to all its instances."""
        found: dict[int, list[tuple[float, float]]] = {}
        looks = list(self.looks)
        for before, after in pairwise(looks):
            sums: dict[int, float] = {}
            for place, rate in _between(before, after).items():
                sums[_node(place)] = sums.get(_node(place), 0.0) + rate
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
        place: max(0, total - before.totals[place]) / seconds
        for place, total in after.totals.items()
        if place in before.totals
    }


def _lately(looks: Sequence[Look], seconds: float) -> Sequence[Look]:
    """What the last look may be compared with, at least one: the looks of the last so many seconds, behind a pause the
    one before it, and where there is no other itself."""
    *before, last = looks
    return [look for look in before if last.at - look.at <= seconds] or before[-1:] or [last]


def _node(place: Place) -> int:
    return int(place.partition("/")[0])

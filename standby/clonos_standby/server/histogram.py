"""A histogram as Prometheus has it: how many values lie below each bound, their number and their sum."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate

BUNDLE_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds for a bundle: one record when idle, thousands under load."""

LATENCY_SECONDS = (*BUNDLE_SECONDS, 20.0, 30.0, 60.0)
"""Upper bounds for a row's way through a query: milliseconds in real time, a batch in micro-batch."""

LATENCY = "latency_seconds"
"""What the figures of a sink's process call it."""

FAILOVER_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds for what a replacement takes."""


class Histogram:
    """Of values with these upper bounds; whatever is above the last one has a bucket of its own."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0.0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    def add(self, other: Histogram) -> None:
        """With the same bounds."""
        self._counts = [mine + theirs for mine, theirs in zip(self._counts, other._counts, strict=True)]
        self.sum += other.sum

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Each bound with how many values are not above it; the last one is `+Inf`."""
        names = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts)))

    def figures(self, name: str) -> dict[str, float]:
        """As figures of a process, which may be added to those of its predecessors."""
        counts = {f"{name}_{at}": count for at, count in enumerate(self._counts)}
        return {f"{name}_sum": self.sum, **counts}

    @classmethod
    def of(cls, bounds: Sequence[float], name: str, figures: Mapping[str, float]) -> Histogram:
        """What `figures` gave, or the sum of several."""
        found = cls(bounds)
        found.sum = figures.get(f"{name}_sum", 0.0)
        found._counts = [figures.get(f"{name}_{at}", 0.0) for at in range(len(bounds) + 1)]
        return found

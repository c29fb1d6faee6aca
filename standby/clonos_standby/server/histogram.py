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

    def __init__(
        self, bounds: Sequence[float], counts: Sequence[float] | None = None, total: float = 0.0
    ) -> None:
        self._bounds = bounds
        self._counts = [0.0] * (len(bounds) + 1) if counts is None else list(counts)
        self.sum = total

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

    def since(self, before: Histogram) -> Histogram:
        """What has come since it was as `before`."""
        counts = [max(0.0, now - then) for now, then in zip(self._counts, before._counts, strict=True)]
        return Histogram(self._bounds, counts, max(0.0, self.sum - before.sum))

    @property
    def counts(self) -> list[float]:
        """How many values are in each bucket; the last one is above all bounds."""
        return list(self._counts)

    @property
    def count(self) -> float:
        return sum(self._counts)

    def quantile(self, part: float) -> float | None:
        """As Prometheus estimates it: values lie evenly between two bounds, and those above the last one at it. None of
        no values."""
        wanted, below, lower = part * self.count, 0.0, 0.0
        for upper, count in zip(self._bounds, self._counts, strict=False):
            if count and below + count >= wanted:
                return lower + (upper - lower) * (wanted - below) / count
            below, lower = below + count, upper
        return lower if self.count else None

    def figures(self, name: str) -> dict[str, float]:
        """As figures of a process, which may be added to those of its predecessors."""
        counts = {f"{name}_{at}": count for at, count in enumerate(self._counts)}
        return {f"{name}_sum": self.sum, **counts}

    @classmethod
    def of(cls, bounds: Sequence[float], name: str, figures: Mapping[str, float]) -> Histogram:
        """What `figures` gave, or the sum of several."""
        counts = [figures.get(f"{name}_{at}", 0.0) for at in range(len(bounds) + 1)]
        return cls(bounds, counts, figures.get(f"{name}_sum", 0.0))

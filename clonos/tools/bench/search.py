"""The highest rate that is sustained: doubled, or halved, until it is known from both sides, then bisected.

Bisection is by ratio, since what matters is by how many percent a rate is off, and ends when the lowest rate that was
not sustained is `within` times the highest that was. A rate above one that was not sustained does not count, even if it
was: the lowest failure is believed. What *sustained* means is said in `metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

MOST = 1_000_000
_DIGITS = 3


@dataclass(frozen=True)
class Bounds:
    """The highest rate below all failures that was sustained, and the lowest that was not."""

    low: int | None
    high: int | None


def bounds(tried: Mapping[int, bool]) -> Bounds:
    """What the rates tried so far say."""
    high = min((rate for rate, held in tried.items() if not held), default=None)
    low = max((rate for rate, held in tried.items() if held and (high is None or rate < high)), default=None)
    return Bounds(low, high)


def next_rate(tried: Mapping[int, bool], first: int, within: float) -> int | None:
    """The rate to try next; None when the search is over."""
    found = bounds(tried)
    if found.low is None and found.high is None:
        return first
    if found.high is None:
        assert found.low is not None
        return found.low * 2 if found.low * 2 <= MOST else None
    if found.low is None:
        return found.high // 2 or None
    if found.high <= found.low * within:
        return None
    middle = rounded(math.sqrt(found.low * found.high))
    return middle if found.low < middle < found.high else None


def probes_left(tried: Mapping[int, bool], within: float) -> int:
    """About how many there will be still: for each side of the bracket that is open one more."""
    found = bounds(tried)
    open_sides = (found.low is None) + (found.high is None)
    ratio = found.high / found.low if found.low is not None and found.high is not None else 2.0
    halvings = math.log2(math.log(ratio) / math.log(within)) if ratio > within else 0.0
    return open_sides + max(0, math.ceil(halvings))


def rounded(rate: float) -> int:
    """To three digits."""
    unit: int = 10 ** max(0, math.floor(math.log10(rate)) - _DIGITS + 1)
    return round(rate / unit) * unit

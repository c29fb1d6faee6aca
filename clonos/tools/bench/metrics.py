"""What the figures mean. Times are seconds, latencies milliseconds; a sample is one visible output row.

- *Latency* of a row: from the append of the last of its input records to its visibility.
- *Recovery*, first rule: from the last failure until the last sample over 1.1 times the p99 before the first one,
  counted as the last when in the five seconds after it no more than one sample in a hundred is over, as it was before,
  and there are at least half as many as before: silence is not calm.
- *Recovery*, second rule: the longest time without any output that ends after the first failure.
- *Kept pace*: in the last quarter of the time before the failure (or the end) latency was at most two seconds more than
  in the first. Where output does not keep pace, latency says how long the run was, and recovery says nothing. Not known
  where one of the two had fewer than three rows.
- *Affected*: the share of the samples after the first failure that are over that limit.
- *Sustained*: in the last quarter of a run the median latency is more than in the first by at most a twentieth of the
  time between them, that is, at least 95 % of the input came out while it came in and the backlog did not grow; the p99
  of the last quarter is at most 1.5 times that of the first, and half a second; and all but 3 % of what was to be fed
  was. The highest rate that is sustained is the *sustainable throughput*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

OVER = 1.1
CALM_S = 5.0
CALM_SHARE = 0.01
CALM_ROWS = 0.5
BEHIND_S = 2.0
FEW = 3
GROWTH = 0.05
DIVERGENCE = 1.5
DIVERGENCE_MS = 500.0
FED = 0.97

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """When rows became visible, in order, and how long they took."""

    at: Floats
    latency_ms: Floats

    def between(self, begin: float, end: float) -> Samples:
        chosen = (self.at >= begin) & (self.at < end)
        return Samples(self.at[chosen], self.latency_ms[chosen])

    def quantile(self, share: float) -> float | None:
        return float(np.quantile(self.latency_ms, share)) if len(self.latency_ms) else None


def _outer_quarters(samples: Samples, begin: float, end: float) -> tuple[Samples, Samples]:
    """The first and the last quarter of the time."""
    quarter = (end - begin) / 4
    return samples.between(begin, begin + quarter), samples.between(end - quarter, end)


def kept_pace(samples: Samples, begin: float, moment: float) -> bool | None:
    """Whether output kept pace with input from `begin` to `moment`; None where there was too little to tell."""
    first, last = _outer_quarters(samples, begin, moment)
    if min(len(first.at), len(last.at)) < FEW:
        return None
    return bool(np.median(last.latency_ms) - np.median(first.latency_ms) <= BEHIND_S * 1000)


def sustained(samples: Samples, begin: float, end: float, fed: float) -> bool:
    """Whether the run was; `fed` is the share of what was due that was appended in time."""
    first, last = _outer_quarters(samples, begin, end)
    p50s, p99s = ([part.quantile(share) for part in (first, last)] for share in (0.5, 0.99))
    if fed < FED or p50s[0] is None or p50s[1] is None or p99s[0] is None or p99s[1] is None:
        return False
    grown = (p50s[1] - p50s[0]) / 1000 / (0.75 * (end - begin))
    return grown <= GROWTH and p99s[1] <= DIVERGENCE * p99s[0] + DIVERGENCE_MS


def longest_silence(seen: Sequence[float]) -> float:
    """The longest time between two rows, one after the other."""
    return float(np.diff(seen).max()) if len(seen) > 1 else 0.0


@dataclass(frozen=True)
class Second:
    """One second of output."""

    second: int
    rows: int
    p50_ms: float | None
    p99_ms: float | None


def per_second(samples: Samples, begin: float, end: float) -> list[Second]:
    """Each second from `begin`; one without output has no quantiles."""
    found = []
    for second in range(int(end - begin)):
        part = samples.between(begin + second, begin + second + 1)
        found.append(Second(second, len(part.at), part.quantile(0.5), part.quantile(0.99)))
    return found


@dataclass(frozen=True)
class Recovery:
    """From a failure until all is as it was; None where it never was, or nothing had come before."""

    over_ms: float | None
    calm_s: float | None
    silent_s: float | None
    affected: float | None


def recovery(samples: Samples, begin: float, strikes: Sequence[float]) -> Recovery:
    """By the rules above, of failures at `strikes`; `begin` is where the measuring began."""
    before, after = samples.between(begin, strikes[0]), samples.between(strikes[0], float("inf"))
    usual = before.quantile(0.99)
    if usual is None or not len(after.at):
        return Recovery(None, None, None, None)
    limit = OVER * usual
    over = after.latency_ms > limit
    rate = len(before.at) / (strikes[0] - begin)
    calm = _calm(after, over, strikes[-1], CALM_ROWS * CALM_S * rate)
    return Recovery(limit, calm, longest_silence([before.at[-1], *after.at]), float(over.mean()))


def _calm(after: Samples, over: npt.NDArray[np.bool_], strike: float, rows: float) -> float | None:
    """The first rule. What has less than the calm time behind it is not known to be calm."""
    counts = np.concatenate(([0], np.cumsum(over)))
    for candidate in (strike, *after.at[over & (after.at > strike)]):
        if candidate + CALM_S > after.at[-1]:
            return None
        first, last = np.searchsorted(after.at, [candidate, candidate + CALM_S], side="right")
        if last - first >= rows and counts[last] - counts[first] <= CALM_SHARE * (last - first):
            return float(candidate - strike)
    return None

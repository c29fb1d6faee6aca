"""Frontiers: how far, on every channel, an instance has come.

Positions on a channel strictly increase (invariant I5), so the last position consumed per channel says exactly which
records are covered. `Arrivals` watches one attempt's input: there a step back, or the same position twice, is an error
of the source. A record that is covered by the frontier, in contrast, is an honest repetition and is dropped: an attempt
that resumes inside an epoch is sent the epoch from its beginning.

What came in the epochs before does not come again. A record at or below that is another one, under an identity that
was used, and to drop it would be to lose it: an error, too. (What came may be less than the frontier covers: an attempt
that resumed in real time may end its epoch before the source has come as far as the snapshot had; the next epoch
repeats the rest.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from clonos.errors import InputError, Where
from clonos.protocol.ids import channel_origin
from clonos.protocol.recovery.causal.determinant import Run

Column: TypeAlias = "Sequence[int] | np.ndarray[Any, Any]"
"""One number per record of a bundle: an array where there are many records, a list where there are few."""

_NOTHING: Final[Mapping[int, int]] = {}


def runs_of(channels: Column) -> list[Run]:
    """Run-length form of a bundle's channels, in arrival order."""
    if len(channels) == 0:
        return []
    if isinstance(channels, np.ndarray):
        values, counts = run_lengths(channels)
        return list(zip(numbers_of(values), numbers_of(counts), strict=True))
    first = channels[0]
    if channels[-1] == first and channels.count(first) == len(channels):
        return [(first, len(channels))]
    return [(channel, len(list(group))) for channel, group in groupby(channels)]


def run_lengths(column: Column) -> tuple[Column, Column]:
    """The values of a column that is not empty, of equal ones in a row the first, and how many there are of each."""
    if not isinstance(column, np.ndarray):
        runs = [(value, len(list(group))) for value, group in groupby(column)]
        return [value for value, _ in runs], [count for _, count in runs]
    cuts = np.flatnonzero(column[1:] != column[:-1]) + 1
    starts = np.concatenate(([0], cuts))
    return column[starts], np.diff(starts, append=len(column))


def channels_of(runs: Sequence[Run]) -> list[int]:
    """The channel of each record."""
    return [channel for channel, count in runs for _ in range(count)]


def numbers_of(column: Column) -> list[int]:
    return column.tolist() if isinstance(column, np.ndarray) else list(column)


@dataclass(slots=True)
class Frontier:
    """Last covered position per channel; channels never seen are covered up to nothing."""

    covered: dict[int, int] = field(default_factory=dict)

    def cover(self, runs: Sequence[Run], positions: Column) -> None:
        """Records were consumed: `runs` over `positions`."""
        if isinstance(positions, np.ndarray):
            channels = np.fromiter((run[0] for run in runs), np.int64, len(runs))
            ends = np.cumsum(np.fromiter((run[1] for run in runs), np.int64, len(runs))) - 1
            self.covered.update(zip(channels.tolist(), positions[ends].tolist(), strict=True))
            return
        at = 0
        for channel, count in runs:
            at += count
            self.covered[channel] = positions[at - 1]

    def is_before(self, first: Mapping[int, int]) -> bool:
        """Whether nothing at or after these positions is covered."""
        return all(position > self.covered.get(channel, position - 1) for channel, position in first.items())

    def uncovered_from(self, channel: int, positions: Sequence[int]) -> int:
        """Index of the first of strictly increasing `positions` that is not covered."""
        covered = self.covered.get(channel)
        if covered is None or positions[0] > covered:
            return 0
        if positions[-1] <= covered:
            return len(positions)
        low, high = 0, len(positions) - 1
        while low < high:
            middle = (low + high) // 2
            if positions[middle] > covered:
                high = middle
            else:
                low = middle + 1
        return low


class Arrivals:
    """FIFO check of one attempt's input (invariant I5).

    By channel, `began` is the last position that came in the epochs before; `before`, the last one that came in this
    one, too, when the state that was restored was made. It may come again to the process that replaces a lost replica.
    """

    def __init__(
        self, where: Where, began: Mapping[int, int] = _NOTHING, before: Mapping[int, int] = _NOTHING
    ) -> None:
        self._where = where
        self._began = began
        self._before = before
        self._last: dict[int, int] = dict(began)

    @property
    def last(self) -> Mapping[int, int]:
        """By channel the last position that has come to this incarnation, or in the epochs before."""
        return self._last

    @property
    def arrived(self) -> dict[int, int]:
        """By channel the last position that has come to whichever incarnation of the attempt."""
        ahead = {
            channel: last
            for channel, last in self._before.items()
            if last > self._last.get(channel, last - 1)
        }
        return {**self._last, **ahead}

    def check(self, channel: int, positions: Sequence[int]) -> None:
        """Raises InputError unless `positions` go on strictly increasing."""
        before = self._last.get(channel)
        ordered = positions if before is None else [before, *positions]
        if any(map(_not_below, ordered, ordered[1:])):
            self._refuse(channel, ordered)
        self._last[channel] = positions[-1]

    def check_columns(
        self, channels: np.ndarray[Any, Any], positions: np.ndarray[Any, Any]
    ) -> dict[int, int]:
        """The check for a whole bundle at once; the first position per channel.

        A stable sort by channel keeps each channel's own order, so one comparison of neighbours says it all.
        """
        order = np.argsort(channels, kind="stable")
        sorted_channels, sorted_positions = channels[order], positions[order]
        same = sorted_channels[1:] == sorted_channels[:-1]
        cuts = np.flatnonzero(~same) + 1
        starts, ends = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(channels)])) - 1
        names = sorted_channels[starts].tolist()
        first = dict(zip(names, sorted_positions[starts].tolist(), strict=True))
        last = dict(zip(names, sorted_positions[ends].tolist(), strict=True))
        stepped_back = bool((same & (sorted_positions[1:] <= sorted_positions[:-1])).any())
        if stepped_back or any(first[name] <= self._last.get(name, first[name] - 1) for name in names):
            for name in names:
                self.check(name, sorted_positions[sorted_channels == name].tolist())
        self._last.update(last)
        return first

    def _refuse(self, channel: int, ordered: Sequence[int]) -> None:
        left, right = next((a, b) for a, b in pairwise(ordered) if b <= a)
        origin = channel_origin(channel)
        where = Where(self._where.operator, self._where.instance, self._where.epoch, channel, right)
        whence = f"the channel from node {origin.node}, partition {origin.instance}"
        if left == self._began.get(channel):
            raise InputError(
                f"position {right} came on {whence}, which had come to {left} before this epoch began",
                where=where,
                hint="A position is never used again: was a topic, shard or file deleted and made anew under its name, "
                "or do positions begin anew with each file? Then let causal() have a channel that tells the old from "
                "the new, and start from a new checkpointLocation",
            )
        what = "the same position twice" if left == right else f"a step back from {left}"
        raise InputError(
            f"{what} on {whence}",
            where=where,
            hint="A source must give every record of a channel a position that strictly increases and is the same "
            "each time the record is read; check the channel and position expressions given to causal()",
        )


def _not_below(left: Any, right: Any) -> bool:
    return bool(left >= right)

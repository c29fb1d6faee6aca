"""Records that have come and wait for their turn.

The recorded order says from which channel the next records are to be taken, so an instance that repeats keeps what came
too early by channel, in the order in which it came. What is still waiting when an epoch ends goes into the snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from clonos.protocol.frontier import Column, Frontier, numbers_of
from clonos.protocol.ports import Row
from clonos.protocol.recovery.causal.determinant import Run


class Waiting:
    """By channel, positions and rows."""

    def __init__(self, records: Iterable[tuple[int, int, Row]] = ()) -> None:
        self._by_channel: dict[int, deque[tuple[int, Row]]] = {}
        for channel, position, row in records:
            self._by_channel.setdefault(channel, deque()).append((position, row))

    def __bool__(self) -> bool:
        return any(self._by_channel.values())

    def __len__(self) -> int:
        return sum(map(len, self._by_channel.values()))

    @property
    def counts(self) -> dict[int, int]:
        """By channel, how many."""
        return {channel: len(items) for channel, items in self._by_channel.items() if items}

    @property
    def first(self) -> dict[int, int]:
        """By channel, the position of the one that has waited longest."""
        return {channel: items[0][0] for channel, items in self._by_channel.items() if items}

    @property
    def records(self) -> list[tuple[int, int, Row]]:
        """Channel, position and row of each."""
        return [(channel, *item) for channel, items in self._by_channel.items() for item in items]

    def have(self, runs: Sequence[Run]) -> bool:
        """Whether all records of `runs` have come."""
        needed: dict[int, int] = {}
        for channel, count in runs:
            needed[channel] = needed.get(channel, 0) + count
        return all(len(self._by_channel.get(channel, ())) >= count for channel, count in needed.items())

    def put(self, runs: Sequence[Run], positions: Column, rows: Sequence[Row]) -> None:
        """Records that have come."""
        at = 0
        numbers = numbers_of(positions)
        for channel, count in runs:
            waiting = self._by_channel.setdefault(channel, deque())
            waiting.extend(zip(numbers[at : at + count], rows[at : at + count], strict=True))
            at += count

    def put_back(self, channels: Sequence[int], positions: Sequence[int], rows: Sequence[Row]) -> None:
        """Records that were taken and are to be taken again, before all others."""
        for at in reversed(range(len(rows))):
            self._by_channel.setdefault(channels[at], deque()).appendleft((positions[at], rows[at]))

    def take(self, runs: Sequence[Run]) -> tuple[list[int], list[Row]]:
        """The positions and rows of the records of `runs`, which must have come."""
        positions: list[int] = []
        rows: list[Row] = []
        for channel, count in runs:
            waiting = self._by_channel[channel]
            for _ in range(count):
                position, row = waiting.popleft()
                positions.append(position)
                rows.append(row)
        return positions, rows

    def take_some(self, limit: int) -> tuple[list[Run], list[int], list[Row]]:
        """So many at most, in any order of the channels."""
        runs: list[Run] = []
        for channel, items in self._by_channel.items():
            if items and limit:
                runs.append((channel, min(len(items), limit)))
                limit -= runs[-1][1]
        positions, rows = self.take(runs)
        if not self:
            self._by_channel.clear()
        return runs, positions, rows

    def fresh(
        self, frontier: Frontier, runs: list[Run], given: Sequence[int], all_rows: list[Row]
    ) -> tuple[list[Run], Column, list[Row]]:
        """Of a bundle, the records that neither wait already nor are covered by the frontier."""
        kept_runs: list[Run] = []
        positions: list[int] = []
        rows: list[Row] = []
        at = 0
        for channel, count in runs:
            slice_ = given[at : at + count]
            waiting = self._by_channel.get(channel)
            covered = Frontier({channel: waiting[-1][0]}) if waiting else frontier
            skip = covered.uncovered_from(channel, slice_)
            if skip == 0 and len(runs) == 1:
                return runs, given, all_rows
            if skip < count:
                kept_runs.append((channel, count - skip))
                positions.extend(slice_[skip:])
                rows.extend(all_rows[at + skip : at + count])
            at += count
        return kept_runs, positions, rows

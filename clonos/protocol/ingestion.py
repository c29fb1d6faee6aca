"""When rows entered the query: what latency from end to end is measured by.

The stage where a query begins stamps each block with the time at which the first of its rows came. What an instance
hands on has the time of the oldest input that it may be made of, and a sink compares the time with that at which the
rows are visible. It goes by the block and not by the row, so it says how long the oldest row of a block took.

Nothing is decided, recorded or compared by it: a block that is sent again keeps its time where it was kept, and a step
that is repeated may give its rows another one.

Times are microseconds since 1970, by the clocks of the hosts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

UNKNOWN: Final = 0
_MOST: Final = 64
_NO_PART: Final = (1 << 63, 1 << 63)


class Ingested(NamedTuple):
    """So many rows of a channel, one behind the other, and when the oldest of them entered the query."""

    channel: int
    rows: int
    time: int


def oldest(ingested: Iterable[Ingested]) -> int:
    """UNKNOWN where it is not known of all."""
    return min((each.time for each in ingested), default=UNKNOWN)


def within(ingested: Iterable[Ingested], parts: Iterable[tuple[int, int]]) -> Iterator[Ingested]:
    """Of the rows in `parts`, which are in order: each from one index up to another."""
    following = iter(parts)
    begin, end = next(following, _NO_PART)
    at = 0
    for channel, rows, time in ingested:
        count, upto = 0, at + rows
        while begin < upto:
            count += min(end, upto) - max(begin, at)
            if end > upto:
                break
            begin, end = next(following, _NO_PART)
        if count:
            yield Ingested(channel, count, time)
        at = upto


class PendingInput:
    """The times of the input that rows may still be made of: what has just been taken, what waits for its turn, and
    what is gathered until an epoch ends. Records of a channel are consumed in their order."""

    def __init__(self) -> None:
        self._taken: dict[int, deque[Ingested]] = {}

    def take(self, ingested: Iterable[Ingested]) -> None:
        """A bundle."""
        for each in ingested:
            of_channel = self._taken.setdefault(each.channel, deque())
            if of_channel and (of_channel[-1].time == each.time or len(of_channel) == _MOST):
                last = of_channel.pop()
                each = Ingested(each.channel, last.rows + each.rows, min(last.time, each.time))
            of_channel.append(each)

    def keep(self, waiting: Mapping[int, int]) -> None:
        """Of what was taken only these are left: by channel, how many."""
        if not waiting:
            return self._taken.clear()
        for channel in list(self._taken):
            of_channel, left = self._taken[channel], waiting.get(channel, 0)
            rows = sum(each.rows for each in of_channel)
            while of_channel and rows - of_channel[0].rows >= left:
                rows -= of_channel.popleft().rows
            if not of_channel:
                del self._taken[channel]
        return None

    @property
    def oldest(self) -> int | None:
        """None where there is no input: what is made then is made of nothing but state."""
        if not self._taken:
            return None
        return oldest(each for of_channel in self._taken.values() for each in of_channel)
